//! The plan: everything the cores need to know of services and backends, as of one generation.
//!
//! ```text
//!  Control ──(a backend came, went, fell ill)──> Plan 7 ──> every core, between batches
//! ```
//!
//! A plan is made whole and never changes, so a core works by one generation or the next, never by
//! half of one. Backends are numbered: a number stays with its backend from plan to plan, and is
//! not used again before 2^12 others had its place. So a connection table needs no visit when a
//! plan comes: the number in a connection says whether its backend is still there.
//!
//! Thread-safety: shared and read-only; the counts of connections are atomic.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flowyard_flow::table::Maglev;

use crate::conns::ConnKey;
use crate::counts::Counts;
use crate::quic::{Reader, Route, ServerId};
use crate::service::{Choice, Exit, Mode, OnDown, Service};

mod entry;

pub use entry::Entry;

/// Bits of a backend's number that say its place; the others count who had it before.
const PLACE_BITS: u32 = 20;

/// Services and backends of one generation.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) generation: u64,
    pub(crate) seed: u64,
    pub(crate) services: Vec<Table>,
    /// By address, protocol and first port: which service.
    pub(crate) fronts: Vec<Front>,
    /// By place.
    pub(crate) targets: Vec<Option<Target>>,
    /// As `fronts`, by the addresses that answers of DNAT backends come from.
    pub(crate) returns: Vec<Front>,
}

/// Some ports of an address, and whose they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Front {
    pub(crate) addr: IpAddr,
    pub(crate) proto: u8,
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) service: u16,
    /// Of addresses that answers come from: the index of the backend.
    pub(crate) index: u16,
}

/// A service with its tables.
#[derive(Clone, Debug)]
pub struct Table {
    /// As described.
    pub service: Arc<Service>,
    /// Places of its backends, by index.
    pub(crate) members: Vec<u32>,
    pub(crate) maglev: Arc<Maglev>,
    /// By index: what the table was made of.
    pub(crate) weights: Vec<u32>,
    /// Indexes of backends in turns, by weight.
    pub(crate) turns: Vec<u16>,
    pub(crate) quic: Option<Reader>,
    /// Server IDs, sorted, with the index of the backend.
    pub(crate) servers: Vec<(ServerId, u16)>,
    /// What is counted for it when there is no backend to count it for.
    pub counts: Option<Arc<Counts>>,
}

/// A backend, as packets need it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its number.
    pub id: u32,
    /// The index of its service.
    pub service: u16,
    /// Its index in the service.
    pub index: u16,
    /// How packets get there.
    pub mode: Mode,
    /// Its address.
    pub addr: IpAddr,
    /// Its port, if it is another than the client's.
    pub port: Option<u16>,
    /// Where packets to it leave.
    pub exit: Exit,
    /// Whether connections that it has stay.
    pub keeps: bool,
    /// What new connections weigh now: health, drain and slow start are in it.
    pub weight: u32,
    /// Connections that it has, over all cores.
    pub active: Arc<AtomicU32>,
    /// What the cores count for it.
    pub counts: Arc<Counts>,
}

impl Target {
    /// Its place: backends of one plan have different ones, from 0 on.
    #[must_use]
    #[inline]
    pub const fn place(&self) -> usize {
        place(self.id) as usize
    }
}

/// What a core remembers of its turns.
#[derive(Clone, Debug, Default)]
pub struct Turns(Vec<u32>);

impl Plan {
    /// Which plan this is: each has a higher number than the one before.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The seed of the hashes of connections.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The services.
    #[must_use]
    pub fn services(&self) -> &[Table] {
        &self.services
    }

    /// The service at this address.
    #[must_use]
    pub fn service(&self, addr: IpAddr, proto: u8, port: u16) -> Option<u16> {
        front(&self.fronts, addr, proto, port).map(|front| front.service)
    }

    /// Whether a service has this address, whatever the port.
    #[must_use]
    pub fn is_vip(&self, addr: IpAddr) -> bool {
        let at = self.fronts.partition_point(|front| front.addr < addr);
        self.fronts.get(at).is_some_and(|front| front.addr == addr)
    }

    /// Whether this is the VIP of a service whose balancer answers for it.
    #[must_use]
    pub fn answers_for(&self, addr: IpAddr) -> bool {
        let answers = |table: &Table| table.service.vip == addr && table.service.answers;
        self.services.iter().any(answers)
    }

    /// The service whose backend (by DNAT) has this address.
    #[must_use]
    pub fn returning(&self, addr: IpAddr, proto: u8, port: u16) -> Option<&Table> {
        let front = front(&self.returns, addr, proto, port)?;
        self.services.get(usize::from(front.service))
    }

    /// The backend (by DNAT) that has this address.
    #[must_use]
    pub fn returned_by(&self, addr: IpAddr, proto: u8, port: u16) -> Option<&Target> {
        let front = front(&self.returns, addr, proto, port)?;
        self.member(self.services.get(usize::from(front.service))?, front.index)
    }

    /// The backend with this number, if it is still there.
    #[must_use]
    #[inline]
    pub fn target(&self, id: u32) -> Option<&Target> {
        let place = id & ((1 << PLACE_BITS) - 1);
        let target = self.targets.get(place as usize)?.as_ref()?;
        (target.id == id).then_some(target)
    }

    /// All backends.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().flatten()
    }

    /// The backend for a new connection.
    #[must_use]
    pub fn choose(
        &self,
        service: u16,
        key: &ConnKey,
        hash: u64,
        turns: &mut Turns,
    ) -> Option<&Target> {
        let table = self.services.get(usize::from(service))?;
        let index = match table.service.choice {
            Choice::Maglev => table.maglev.get(hash)?,
            Choice::SourceHash => table.maglev.get(key.source_hash(self.seed))?,
            Choice::RoundRobin => {
                let turn = turns.0.get_mut(usize::from(service))?;
                let at = *turn as usize % table.turns.len().max(1);
                *turn = at as u32 + 1;
                *table.turns.get(at)?
            }
            Choice::LeastConnections => return self.least(table),
        };
        self.member(table, index)
    }

    /// The backend for a packet of which nothing is known: a connection that is not kept. The same
    /// on every machine and every core, whatever the service's choice.
    #[must_use]
    pub fn fall_back(&self, service: u16, key: &ConnKey, hash: u64) -> Option<&Target> {
        let table = self.services.get(usize::from(service))?;
        let hash = match table.service.choice {
            Choice::SourceHash => key.source_hash(self.seed),
            _ => hash,
        };
        self.member(table, table.maglev.get(hash)?)
    }

    /// The backend that the connection ID in this UDP payload names, if the service routes QUIC.
    #[must_use]
    pub fn by_connection_id(&self, service: u16, payload: &[u8]) -> Option<&Target> {
        let table = self.services.get(usize::from(service))?;
        let Route::Server(id) = table.quic.as_ref()?.route(payload) else { return None };
        let at = table.servers.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.member(table, table.servers[at].1)
    }

    fn member(&self, table: &Table, index: u16) -> Option<&Target> {
        let place = *table.members.get(usize::from(index))?;
        self.targets.get(place as usize)?.as_ref()
    }

    /// The fewest connections for its weight; of equals the first.
    fn least(&self, table: &Table) -> Option<&Target> {
        let all =
            table.members.iter().filter_map(|&place| self.targets.get(place as usize)?.as_ref());
        let load = |target: &Target| u64::from(target.active.load(Ordering::Relaxed)) + 1;
        all.filter(|target| target.weight > 0)
            .min_by(|a, b| (load(a) * u64::from(b.weight)).cmp(&(load(b) * u64::from(a.weight))))
    }

    /// Makes room for the turns of every service. `core` begins elsewhere than others.
    pub fn make_turns(&self, core: usize, turns: &mut Turns) {
        turns.0.resize(self.services.len(), core as u32);
    }

    /// Room for as many services as there will ever be.
    #[must_use]
    pub fn turns_for(services: usize) -> Turns {
        Turns(Vec::with_capacity(services))
    }
}

impl Table {
    /// Equal on two machines that send the same connections to the same backends.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        self.maglev.checksum()
    }
}

fn front(fronts: &[Front], addr: IpAddr, proto: u8, port: u16) -> Option<&Front> {
    let after = fronts.partition_point(|f| (f.addr, f.proto, f.first) <= (addr, proto, port));
    let front = fronts.get(after.checked_sub(1)?)?;
    let is = front.addr == addr && front.proto == proto && port <= front.last;
    is.then_some(front)
}

/// The number of the next backend in `place`, after one with number `before`.
pub(crate) const fn next_id(before: Option<u32>, place: u32) -> u32 {
    match before {
        Some(id) => id.wrapping_add(1 << PLACE_BITS),
        None => place,
    }
}

/// The place in a number.
pub(crate) const fn place(id: u32) -> u32 {
    id & ((1 << PLACE_BITS) - 1)
}

/// The most backends there can be at a time.
pub(crate) const PLACES: usize = 1 << PLACE_BITS;

/// In turns by weight: as often as its weight says, and spread evenly. Long rows are cut: then shares are
/// right to one in 4096.
pub(crate) fn turns(weights: &[u32]) -> Vec<u16> {
    let divisor = weights.iter().copied().filter(|&w| w > 0).fold(0, gcd).max(1);
    let Some(heaviest) = weights.iter().copied().max().filter(|&w| w > 0) else {
        return Vec::new();
    };
    let rounds = (heaviest / divisor).min(4096);
    let mut turns = Vec::new();
    let mut saved = vec![0u64; weights.len()];
    for _ in 0..rounds {
        for (index, (&weight, saved)) in weights.iter().zip(&mut saved).enumerate() {
            *saved += u64::from(weight);
            if *saved >= u64::from(heaviest) {
                *saved -= u64::from(heaviest);
                turns.push(index as u16);
            }
        }
    }
    turns
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether a backend that is up or not keeps its connections. Where all are down and health is not
/// believed, it is as if it were up.
pub(crate) const fn keeps(service: &Service, is_up: bool) -> bool {
    is_up || matches!(service.on_down, OnDown::Keep)
}
