//! State of the balancer on one core.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_flow::Secret;
use flowyard_flow::table::{Directory, Replica};
use flowyard_frame::Nanos;
use flowyard_works::neighbour::{Neighbour, Neighbours, Place};
use flowyard_yard::front::Front;

use super::ahead::Ahead;
use super::allowance::Allowance;
use super::ends::Ends;
use super::fragments::Fragments;
use super::hops::{self, Hops};
use super::hub::Hub;
use super::leases::Leases;
use super::locals::Locals;
use super::strays::Strays;
use super::way::{Reply, Way};
use crate::{Conns, Exit, Plan, Timeouts, Turns};

/// The largest number of services.
const SERVICES: usize = 4096;

/// Settings of a balancer that do not depend on services.
#[derive(Clone, Debug)]
pub struct BalanceSettings {
    /// Capacity of the connection table of each core.
    pub connections: usize,
    /// Whether new connections are dropped when the table is full; otherwise the Maglev table decides for each
    /// of their packets.
    pub full_drops: bool,
    /// The most unestablished connections of each core; further ones replace the least recently used of them.
    /// Each service can always have an equal part of this number.
    pub opening_most: usize,
    /// Idle timeouts of connections.
    pub timeouts: Timeouts,
    /// The output port and MAC addresses for replies to clients.
    pub clients: Exit,
    /// Whether a reply goes to the MAC address from which the client's packets came, and not to that of
    /// `clients`.
    pub returns: bool,
    /// Source addresses of tunnels and FullNAT connections.
    pub local: Vec<IpAddr>,
    /// The output port of frames that belong to no service, by input port; `None` drops them.
    pub pass: Vec<Option<u16>>,
    /// MAC and IP addresses of the balancer on each port.
    pub places: Vec<Place>,
    /// Lifetime of the resolved MAC address of a next hop.
    pub neighbour_fresh: Nanos,
    /// The number of connections of other machines for which there is room; 0 if connections are not synchronized.
    pub replicated: usize,
    /// The secret of the tables that no other machine has. It need not be that of the choice of backends.
    pub secret: Secret,
}

/// The balancer of one core.
pub struct Balance {
    pub(super) core: usize,
    pub(super) hub: Arc<Hub>,
    pub(super) plan: Arc<Plan>,
    pub(super) hops: Arc<Hops>,
    pub(super) neighbours: Arc<Neighbours>,
    /// Whether it takes part in ARP and neighbour discovery.
    pub(super) speaks: bool,
    /// The next hop to clients, if its MAC address must be resolved.
    pub(super) clients: Option<Arc<Neighbour>>,
    pub(super) turns: Turns,
    /// The connection table of each core.
    pub(super) conns: Arc<[Mutex<Conns>]>,
    /// Which cores' tables have a connection; `None` if there is one core.
    pub(super) directory: Option<Arc<Directory>>,
    /// The way and the hash of the flow, for fragments from clients.
    pub(super) fragments: Fragments<(Way, u64)>,
    /// The translation, for fragments from backends.
    pub(super) answers: Fragments<Reply>,
    /// Ways of packets from clients, for FullNAT connections in other cores' tables.
    pub(super) leases: Leases<Way>,
    /// Translation and backend of replies, for FullNAT connections in other cores' tables.
    pub(super) answer_leases: Leases<(Reply, u32)>,
    /// The addresses that were announced; used on the first core only.
    pub(super) announced: Announced,
    /// The number of times an existing connection got another backend, over all cores.
    pub(super) moves: Arc<AtomicU64>,
    pub(super) locals: Arc<Locals>,
    /// The local port that is tried next.
    pub(super) next_port: Cell<u32>,
    pub(super) strays: Arc<Strays>,
    pub(super) settings: BalanceSettings,
    /// The time of the current batch.
    pub(super) now: Nanos,
    /// When connections expire next if no frames come.
    pub(super) expires: Nanos,
    pub(super) allowance: Allowance,
    /// The ID of the backend of the current packet, for counting.
    pub(super) whose: Cell<Option<u32>>,
    /// The connections that are answered in front.
    pub(super) ahead: Option<Box<Ahead>>,
}

/// Announcements of addresses.
#[derive(Default)]
pub(super) struct Announced {
    /// The generation of the plan that the addresses were read from.
    pub(super) generation: Option<u64>,
    /// The number of announcements of each address, and the earliest time of the next one.
    pub(super) addrs: BTreeMap<IpAddr, (u8, Nanos)>,
    /// Whether all announcements were sent.
    pub(super) done: bool,
}

impl Balance {
    /// Creates the balancers of `cores` cores, which use the plans of `hub`.
    #[must_use]
    pub fn group(hub: &Arc<Hub>, cores: usize, settings: &BalanceSettings) -> Vec<Self> {
        Self::group_behind(hub, cores, settings, None)
    }

    /// As [`Balance::group`], with a front that answers packets of established connections, or marks them.
    #[must_use]
    pub fn group_behind(
        hub: &Arc<Hub>,
        cores: usize,
        settings: &BalanceSettings,
        front: Option<&Arc<dyn Front>>,
    ) -> Vec<Self> {
        let (has_locals, secret) = (!settings.local.is_empty(), settings.secret);
        let directory = (2..=Directory::CORES).contains(&cores).then(|| {
            let entries = settings.connections.saturating_mul(cores);
            Arc::new(Directory::new(cores, entries, secret.key("directory")))
        });
        let table = |core| {
            let table = Conns::new(settings.connections, settings.timeouts, has_locals);
            let mut table = table.with_secret(secret);
            if let Some(directory) = &directory {
                table = table.with_directory(directory, core as u16);
            }
            match front {
                Some(front) if front.answers() => table = table.with_front(Arc::clone(front)),
                Some(front) => table = table.with_marks(Arc::clone(front)),
                None => {}
            }
            Mutex::new(if settings.returns { table.with_macs() } else { table })
        };
        let conns: Arc<[Mutex<Conns>]> = (0..cores).map(table).collect();
        let locals = Arc::new(Locals::new(&settings.local, cores));
        hub.begin(cores, &conns, &locals, &settings.pass);
        if settings.replicated > 0 {
            let new = || Arc::new(Replica::new(settings.replicated, secret.key("replica")));
            hub.replica.get_or_init(new);
            hub.ends.get_or_init(Ends::new);
        }
        let (places, fresh) = (&settings.places, settings.neighbour_fresh);
        let neighbours = hub.neighbours(|| Neighbours::new(places.clone(), fresh));
        let clients = hops::neighbour(settings.clients, &neighbours);
        let (moves, strays) = (Arc::new(AtomicU64::new(0)), Arc::new(Strays::new()));
        let one = |core| {
            let ((plan, hops), mut turns) = (hub.ways(), Plan::turns_for(SERVICES));
            plan.make_turns(core, &mut turns);
            Self {
                core,
                hub: Arc::clone(hub),
                plan,
                hops,
                neighbours: Arc::clone(&neighbours),
                speaks: neighbours.speaks(),
                clients: clients.clone(),
                turns,
                conns: Arc::clone(&conns),
                directory: directory.clone(),
                fragments: Fragments::new(secret.key("fragments"), core, conns.len()),
                answers: Fragments::new(secret.key("answers"), core, conns.len()),
                leases: Leases::new(&settings.timeouts),
                answer_leases: Leases::new(&settings.timeouts),
                announced: Announced::default(),
                moves: Arc::clone(&moves),
                locals: Arc::clone(&locals),
                next_port: Cell::new(0),
                strays: Arc::clone(&strays),
                settings: settings.clone(),
                now: 0,
                expires: 0,
                allowance: Allowance::default(),
                whose: Cell::new(None),
                ahead: front
                    .filter(|front| front.answers())
                    .map(|front| Box::new(Ahead::new(Arc::clone(front)))),
            }
        };
        (0..cores).map(one).collect()
    }

    /// The connection table of a core, locked.
    pub(super) fn table(&self, core: usize) -> Option<MutexGuard<'_, Conns>> {
        #[cfg(test)]
        super::tests::ASKED.set(super::tests::ASKED.get() + usize::from(core != self.core));
        Some(self.conns.get(core)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over the newest plan, if there is a newer one.
    #[inline]
    pub(super) fn renew_plan(&mut self) {
        if self.hub.generation() != self.plan.generation() {
            (self.plan, self.hops) = self.hub.ways();
            self.plan.make_turns(self.core, &mut self.turns);
            self.leases.clear();
            self.answer_leases.clear();
        }
    }
}
