//! The backend that a connection goes to, and the reason, for `flowyard lb trace`. No packet is involved.
//!
//! Thread-safety: any thread may call this. The connection table of each core is locked during its lookup.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Choice, ConnKey, Conns, Held, Plan, Sender, State};
use flowyard_frame::{FlowKey, Nanos};

use super::Hub;

/// The backend that a connection goes to, and the reason.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The plan from which the answer was computed.
    pub plan: Arc<Plan>,
    /// The index of the service in the plan.
    pub service: Option<u16>,
    /// The ID of the backend, if it can be determined.
    pub backend: Option<u32>,
    /// The reason.
    pub why: Because,
    /// The entry of the Maglev table that the connection hashes to.
    pub entry: usize,
    /// The size of the Maglev table.
    pub entries: usize,
    /// The checksum of the Maglev table.
    pub checksum: u64,
    /// The backend in that entry, which gets packets of an established connection without an entry.
    pub fall_back: Option<u32>,
    /// The backend that the connection would have if this had not reached its limit of connections.
    pub passed_over: Option<u32>,
    /// An entry of a connection table that is not used because its backend is down or was removed.
    pub left: Option<Kept>,
    /// What an adapter does for the packets of the flow, or why it does nothing, in words for the user; `None` if adapters
    /// get no rules, or the flow is in no connection table.
    pub adapter: Option<String>,
}

/// What decides about the backend of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// No service has this address, protocol and port.
    NoService {
        /// Whether another service has the address.
        is_vip: bool,
    },
    /// The packet is a reply of a DNAT backend in a connection that a table has an entry for.
    Answer,
    /// The packet comes from the address and port of a DNAT backend, but there is no connection that it
    /// could belong to.
    NotAsked,
    /// A connection table has an entry.
    Kept(Kept),
    /// No table has an entry, and another machine has reported the connection. A packet that begins a TCP connection is placed as
    /// a new one.
    Reported,
    /// The connection is new, and the Maglev table decides.
    Entry,
    /// The connection is new, and round robin decides. Only the receiving core knows its position.
    Turns,
    /// The connection is new, and the weights and connections of the backends are compared.
    Compared,
    /// The connection is new, and the network of its client has the backend.
    Network {
        /// How long ago the last connection of the network came.
        age: Nanos,
    },
    /// No backend accepts new connections.
    NoBackend,
    /// Every backend that accepts new connections has reached its limit.
    Full,
}

/// An entry of a connection table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The core that the table belongs to.
    pub core: u16,
    /// The slot of the entry.
    pub slot: u32,
    /// The ID of the backend.
    pub backend: u32,
    /// The state of the connection.
    pub state: State,
    /// Whether the connection is established.
    pub is_established: bool,
}

/// The occupancy of a connection table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy {
    /// Entries in the table.
    pub connections: usize,
    /// Half-open connections among them.
    pub opening: usize,
    /// Unestablished connections among them.
    pub unestablished: usize,
    /// Entries whose packets are answered in front of the balancer.
    pub in_front: usize,
    /// Entries whose packets adapters were asked to mark.
    pub marked: usize,
    /// Packets whose entry was found by a mark.
    pub marked_packets: u64,
    /// The largest number of entries.
    pub capacity: usize,
}

impl Hub {
    /// The backend that packets of `flow` go to, and the reason.
    #[must_use]
    pub fn explain(&self, flow: &FlowKey, now: Nanos) -> Explained {
        let plan = self.plan();
        let conn = ConnKey::of(flow);
        let hash = conn.hash(plan.seed());
        let mut explained = Explained {
            service: None,
            backend: None,
            why: Because::NoService { is_vip: flow.dst_ip().is_some_and(|dst| plan.is_vip(dst)) },
            entry: 0,
            entries: 0,
            checksum: 0,
            fall_back: None,
            passed_over: None,
            left: None,
            adapter: None,
            plan: Arc::clone(&plan),
        };
        let at = flow.dst_ip().and_then(|dst| plan.service(dst, flow.proto, flow.dport));
        let Some(service) = at else {
            self.explain_reply(flow, now, &mut explained);
            return explained;
        };
        explained.service = Some(service);
        if let Some(entry) = plan.entry(service, &conn, hash) {
            (explained.entry, explained.entries) = (entry.entry, entry.entries);
            explained.checksum = entry.checksum;
            explained.fall_back = entry.target.map(|target| target.id);
        }
        let keeps = |kept: &Kept| plan.target(kept.backend).is_some_and(|target| target.keeps);
        let table = plan.services().get(usize::from(service));
        let has_conns = table.is_some_and(|table| !table.service.one_packet);
        if has_conns && let Some(kept) = self.kept(&conn, hash, now, keeps) {
            if keeps(&kept) {
                (explained.backend, explained.why) = (Some(kept.backend), Because::Kept(kept));
                explained.adapter = self.adapter(&kept, Sender::Client);
                return explained;
            }
            explained.left = Some(kept);
        }
        if has_conns && let Some(target) = self.by_report(&plan, service, hash, now) {
            (explained.backend, explained.why) = (Some(target.id), Because::Reported);
            return explained;
        }
        let choice = table.map(|table| table.service.choice);
        let persisted = plan.persisted(service, &conn, now);
        (explained.backend, explained.why) = match (explained.fall_back, choice) {
            _ if let Some((target, age)) = persisted => (Some(target.id), Because::Network { age }),
            (None, _) => (None, Because::NoBackend),
            (Some(_), Some(Choice::RoundRobin)) => (None, Because::Turns),
            (Some(_), Some(choice)) if choice.compares() => match plan.best(service) {
                Some(target) => (Some(target.id), Because::Compared),
                None => (None, Because::Full),
            },
            (Some(backend), _) => (Some(backend), Because::Entry),
        };
        let chosen = explained.backend.and_then(|id| plan.target(id));
        if let Some(full) = chosen.filter(|target| !target.has_room()) {
            explained.passed_over = Some(full.id);
            explained.backend = plan.instead(full, &conn, hash, |_| true).map(|target| target.id);
        }
        let turns = explained.why == Because::Turns;
        let is_full = match explained.passed_over {
            None => turns && table.is_some_and(|table| !plan.has_room(table)),
            Some(_) => explained.backend.is_none(),
        };
        if is_full {
            explained.why = Because::Full;
        }
        explained
    }

    /// Whether packets of `flow`, which is to no service, are replies of a backend. If several services have its address and
    /// port, those whose connections are known come first.
    fn explain_reply(&self, flow: &FlowKey, now: Nanos, explained: &mut Explained) {
        let plan = Arc::clone(&explained.plan);
        for (from, asked) in plan.answering(flow).iter().filter_map(|front| plan.asked(front, flow))
        {
            let asked = ConnKey::of(&asked);
            let hash = asked.hash(plan.seed());
            let is_from = |kept: &Kept| kept.backend == from.id;
            let kept = self.kept(&asked, hash, now, is_from).filter(is_from);
            let has_asked =
                from.asked.as_ref().is_some_and(|all| all.has(hash, self.datagrams(), now));
            if kept.is_none() && !has_asked && explained.service.is_some() {
                continue;
            }
            (explained.service, explained.backend) = (Some(from.service), Some(from.id));
            explained.why = match (kept, has_asked) {
                (None, false) => Because::NotAsked,
                (None, true) => Because::Answer,
                (Some(kept), _) => {
                    explained.adapter = self.adapter(&kept, Sender::Backend);
                    Because::Answer
                }
            };
            if explained.why == Because::Answer {
                return;
            }
        }
    }

    /// The entry of the connection with this key in any core's table. An entry for which `stays` is true has
    /// priority, because a core whose entry is not usable queries the other cores before it chooses again.
    fn kept(
        &self,
        key: &ConnKey,
        hash: u64,
        now: Nanos,
        stays: impl Fn(&Kept) -> bool,
    ) -> Option<Kept> {
        let tables = self.conns()?;
        let all = (0..).zip(tables.iter()).filter_map(|(core, table)| {
            let conns = table.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = conns.find(key, hash, now)?;
            let conn = conns.get(slot, now)?;
            let is_established = conn.is_established();
            Some(Kept { core, slot, backend: conn.backend, state: conn.state(), is_established })
        });
        all.reduce(|first, next| if stays(&first) || !stays(&next) { first } else { next })
    }

    /// The time for which a datagram without an entry may be answered: the same as with one.
    fn datagrams(&self) -> Nanos {
        let Some(tables) = self.conns() else { return 0 };
        let first = tables.first();
        first.map_or(0, |conns| {
            conns.lock().unwrap_or_else(PoisonError::into_inner).timeouts().datagrams
        })
    }

    /// What an adapter does for packets of the connection in an entry.
    fn adapter(&self, kept: &Kept, sender: Sender) -> Option<String> {
        let tables = self.conns()?;
        let conns = tables.get(usize::from(kept.core))?;
        conns.lock().unwrap_or_else(PoisonError::into_inner).ahead(kept.slot, sender)
    }

    /// The entries of the service with this name in the tables of all cores.
    #[must_use]
    pub fn held(&self, service: &str) -> Held {
        let plan = self.plan();
        let number = plan.services().iter().find(|table| table.service.name == service);
        let (Some(tables), Some(table)) = (self.conns(), number) else { return Held::default() };
        let of = |conns: &Mutex<Conns>| {
            conns.lock().unwrap_or_else(PoisonError::into_inner).held(table.number)
        };
        tables.iter().map(of).fold(Held::default(), |all, one| all + one)
    }

    /// The occupancy of each core's connection table.
    #[must_use]
    pub fn occupancy(&self) -> Vec<Occupancy> {
        let of = |conns: &Conns| Occupancy {
            connections: conns.len(),
            opening: conns.opening(),
            unestablished: conns.unestablished(),
            in_front: conns.in_front(),
            marked: conns.marked(),
            marked_packets: conns.found_by_mark(),
            capacity: conns.capacity(),
        };
        let tables = self.conns();
        let all = tables.iter().flat_map(|tables| tables.iter());
        all.map(|table| of(&table.lock().unwrap_or_else(PoisonError::into_inner))).collect()
    }
}
