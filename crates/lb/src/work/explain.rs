//! Explain: which backend a connection goes to, and why. For people who ask; no packet is touched.
//!
//! Thread-safety: any thread; each core's connections are locked for as long as one is looked for.

use std::sync::{Arc, PoisonError};

use crate::{Choice, ConnKey, Conns, Plan, State};
use flowyard_frame::{FlowKey, Nanos};

use super::Hub;

/// Which backend a connection goes to, and why. Services and backends are numbered as in the plan.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The plan it goes by.
    pub plan: Arc<Plan>,
    /// The service.
    pub service: Option<u16>,
    /// The backend, if one is sure.
    pub backend: Option<u32>,
    /// Why.
    pub why: Because,
    /// The hash of the connection.
    pub hash: u64,
    /// The number of its entry in the table.
    pub entry: usize,
    /// How many entries there are.
    pub entries: usize,
    /// The checksum of the table.
    pub checksum: u64,
    /// The backend in that entry: for packets of which nothing is known.
    pub fall_back: Option<u32>,
    /// A connection that is kept with a backend that is down or gone.
    pub left: Option<Kept>,
}

/// Why a connection goes where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// No service has this address, protocol and port; but one of another port or protocol may.
    NoService {
        /// Whether the address is a VIP.
        is_vip: bool,
    },
    /// It comes from a backend (by DNAT): it is an answer.
    Answer,
    /// It is kept.
    Kept(Kept),
    /// It is new, and goes by the entry of the table.
    Entry,
    /// It is new, and goes in turns: only the core that gets it knows to whom.
    Turns,
    /// It is new, and goes where the fewest connections are.
    Fewest,
    /// No backend takes new connections.
    NoBackend,
}

/// A connection that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The core that keeps it.
    pub core: u16,
    /// Its slot there.
    pub slot: u32,
    /// Its backend.
    pub backend: u32,
    /// What it is doing.
    pub state: State,
}

/// How full a core's table of connections is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy {
    /// Connections.
    pub connections: usize,
    /// Of these, those that are opening.
    pub opening: usize,
    /// The most.
    pub capacity: usize,
}

impl Hub {
    /// Which backend packets of `flow` go to, and why.
    #[must_use]
    pub fn explain(&self, flow: &FlowKey, now: Nanos) -> Explained {
        let plan = self.plan();
        let conn = ConnKey::of(flow);
        let hash = conn.hash(plan.seed());
        let mut told = Explained {
            service: None,
            backend: None,
            why: Because::NoService { is_vip: flow.dst_ip().is_some_and(|dst| plan.is_vip(dst)) },
            hash,
            entry: 0,
            entries: 0,
            checksum: 0,
            fall_back: None,
            left: None,
            plan: Arc::clone(&plan),
        };
        let at = flow.dst_ip().and_then(|dst| plan.service(dst, flow.proto, flow.dport));
        let Some(service) = at else {
            let from = flow.src_ip().and_then(|src| plan.returned_by(src, flow.proto, flow.sport));
            if let Some(from) = from {
                (told.service, told.backend) = (Some(from.service), Some(from.id));
                told.why = Because::Answer;
            }
            return told;
        };
        told.service = Some(service);
        if let Some(entry) = plan.entry(service, &conn, hash) {
            (told.entry, told.entries) = (entry.entry, entry.entries);
            told.checksum = entry.checksum;
            told.fall_back = entry.target.map(|target| target.id);
        }
        let keeps = |kept: &Kept| plan.target(kept.backend).is_some_and(|target| target.keeps);
        if let Some(kept) = self.kept(&conn, hash, now, keeps) {
            if keeps(&kept) {
                (told.backend, told.why) = (Some(kept.backend), Because::Kept(kept));
                return told;
            }
            told.left = Some(kept);
        }
        let choice = plan.services().get(usize::from(service)).map(|table| table.service.choice);
        (told.backend, told.why) = match (told.fall_back, choice) {
            (None, _) => (None, Because::NoBackend),
            (Some(_), Some(Choice::RoundRobin)) => (None, Because::Turns),
            (Some(_), Some(Choice::LeastConnections)) => {
                (plan.fewest(service).map(|target| target.id), Because::Fewest)
            }
            (Some(backend), _) => (Some(backend), Because::Entry),
        };
        told
    }

    /// The connection with this key, whichever core keeps it: one that `stays`, if there is one, for a
    /// core that has another asks the others before it chooses anew.
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
            Some(Kept { core, slot, backend: conn.backend, state: conn.state() })
        });
        all.reduce(|first, next| if stays(&first) || !stays(&next) { first } else { next })
    }

    /// How full the tables of connections are, by core.
    #[must_use]
    pub fn occupancy(&self) -> Vec<Occupancy> {
        let of = |conns: &Conns| Occupancy {
            connections: conns.len(),
            opening: conns.opening(),
            capacity: conns.capacity(),
        };
        let tables = self.conns();
        let all = tables.iter().flat_map(|tables| tables.iter());
        all.map(|table| of(&table.lock().unwrap_or_else(PoisonError::into_inner))).collect()
    }
}
