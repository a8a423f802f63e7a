//! The plan: everything that the cores need to know about services and backends, as one immutable
//! generation.
//!
//! ```text
//!  Control ──(a backend was added, removed, failed)──> Plan 7 ──> every core, between batches
//! ```
//!
//! A plan is built completely before it is published and never changes afterwards, so a core uses one
//! generation or the next, never a mixture. A backend has a number (ID) that it keeps from plan to
//! plan. The low 20 bits of an ID are an index into the plan's targets; the high 12 bits count the
//! previous users of that index, so an ID is reused only after 2^12 other backends had its index.
//! For this reason a new plan requires no pass over the connection tables: the ID in a connection
//! shows whether its backend still exists.
//!
//! Thread-safety: shared and read-only; the connection counts are atomic.

use std::net::IpAddr;
use std::sync::Arc;

use flowyard_flow::table::Maglev;
use flowyard_frame::Nanos;

use crate::asked::Asked;
use crate::conns::ConnKey;
use crate::counts::Counts;
use crate::persist::Persist;
use crate::quic::{Reader, Route, ServerId};
use crate::service::{Choice, Exit, Mode, OnDown, Service};

mod compared;
mod configured;
mod entry;
mod limit;
mod replies;

pub use entry::Entry;
pub use limit::{Active, Ceiling};
pub(crate) use replies::cut;

/// Bits of a backend's ID that are its index in the targets; the others count earlier users of it.
const PLACE_BITS: u32 = 20;

/// Services and backends of one generation.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) generation: u64,
    /// The number of entries of each Maglev table that has any.
    pub(crate) entries: u32,
    pub(crate) seed: u64,
    pub(crate) services: Vec<Table>,
    pub(crate) fronts: Fronts,
    /// Indexed by the low bits of a backend's ID.
    pub(crate) targets: Vec<Option<Target>>,
    /// The identity of each target and its index, sorted.
    pub(crate) identities: Vec<(u64, u32)>,
}

/// The addresses of all services. Both lists are sorted by address, protocol and first port.
#[derive(Clone, Default, Debug)]
pub(crate) struct Fronts {
    /// The VIPs.
    pub(crate) vips: Vec<Front>,
    /// The source addresses of replies from DNAT backends. Those of two services may be equal; two that are not equal have no
    /// port of one address in common.
    pub(crate) returns: Vec<Front>,
    /// Service and index of the backends whose ports another service uses, too; sorted.
    pub(crate) shared: Vec<(u16, u16)>,
}

/// A port range of an address, and the service it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Front {
    pub(crate) addr: IpAddr,
    pub(crate) proto: u8,
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) service: u16,
    /// In [`Fronts::returns`], the index of the backend in its service; in [`Fronts::vips`], 0.
    pub(crate) index: u16,
    /// In [`Fronts::returns`], the number of those before it with the same address, protocol and ports.
    pub(crate) before: u16,
}

/// A service with its tables.
#[derive(Clone, Debug)]
pub struct Table {
    /// The configuration.
    pub service: Arc<Service>,
    /// Identifies the service in the connection tables, in this plan and the next ones.
    pub number: u16,
    /// Index in the plan's targets, for each backend.
    pub(crate) members: Vec<u32>,
    pub(crate) maglev: Arc<Maglev>,
    /// The weight of each backend from which `maglev` was built.
    pub(crate) weights: Vec<u32>,
    /// Weighted round-robin sequence of backend indexes.
    pub(crate) turns: Vec<u16>,
    pub(crate) quic: Option<Reader>,
    /// Server ID and backend index, sorted.
    pub(crate) servers: Vec<(ServerId, u16)>,
    /// The backends of clients' networks, if connections stay with them.
    pub persist: Option<Arc<Persist>>,
    /// Datagrams that may be answered, if they are placed one by one and replies are translated.
    pub asked: Option<Arc<Asked>>,
    /// Counters for packets that have no backend; `None` if they are not counted.
    pub counts: Option<Arc<Counts>>,
}

/// A backend, with what is needed to forward a packet to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Identifies the backend in all plans; see the head of this file.
    pub id: u32,
    /// Identifies the backend on all machines, by its service, name, address and port: 1 to `Replica::MOST`.
    pub identity: u64,
    /// The index of its service in the plan.
    pub service: u16,
    /// Its index in the service.
    pub index: u16,
    /// How packets are forwarded to it.
    pub mode: Mode,
    /// The address that packets are forwarded to.
    pub addr: IpAddr,
    /// The destination port after translation; `None` keeps the client's.
    pub port: Option<u16>,
    /// The output port and MAC addresses.
    pub exit: Exit,
    /// Whether packets of existing connections go to this backend. Datagrams that are placed one by one do not belong to
    /// connections, even if there are entries from before.
    pub keeps: bool,
    /// The datagrams whose replies are translated without an entry, if that is needed.
    pub asked: Option<Arc<Asked>>,
    /// Whether new connections of a network that has this backend still go to it.
    pub lasts: bool,
    /// Whether a backend of another service has its address and port, and replies of both return through the balancer.
    pub shares: bool,
    /// The effective weight for new connections, in hundredths of a configured one. It includes
    /// health, drain and slow start.
    pub weight: u32,
    /// Current connections over all cores.
    pub active: Arc<Active>,
    /// The limit of its connections, if it has one.
    pub ceiling: Option<Ceiling>,
    /// Traffic counters.
    pub counts: Arc<Counts>,
}

impl Target {
    /// The index of this backend in its plan: unique in one plan, beginning at 0.
    #[must_use]
    #[inline]
    pub const fn place(&self) -> usize {
        place(self.id) as usize
    }
}

/// A core's position in the round-robin sequence of each service.
#[derive(Clone, Debug, Default)]
pub struct Turns(Vec<u32>);

impl Plan {
    /// The number of this plan. It increases by one with each plan.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The seed of connection hashes.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The services, in the order of the configuration.
    #[must_use]
    pub fn services(&self) -> &[Table] {
        &self.services
    }

    /// The index of the service with this VIP, protocol and port.
    #[must_use]
    pub fn service(&self, addr: IpAddr, proto: u8, port: u16) -> Option<u16> {
        front(&self.fronts.vips, addr, proto, port).map(|front| front.service)
    }

    /// Whether this is the VIP of any service.
    #[must_use]
    pub fn is_vip(&self, addr: IpAddr) -> bool {
        let vips = &self.fronts.vips;
        let at = vips.partition_point(|front| front.addr < addr);
        vips.get(at).is_some_and(|front| front.addr == addr)
    }

    /// Whether the balancer answers ARP requests and neighbour solicitations for this address.
    #[must_use]
    pub fn answers_for(&self, addr: IpAddr) -> bool {
        let answers = |table: &Table| table.service.vip == addr && table.service.answers;
        self.services.iter().any(answers)
    }

    /// The backend with this ID, or `None` if it was removed.
    #[must_use]
    #[inline]
    pub fn target(&self, id: u32) -> Option<&Target> {
        let place = id & ((1 << PLACE_BITS) - 1);
        let target = self.targets.get(place as usize)?.as_ref()?;
        (target.id == id).then_some(target)
    }

    /// The backend with this identity.
    #[must_use]
    pub fn identified(&self, identity: u64) -> Option<&Target> {
        let at = self.identities.binary_search_by_key(&identity, |(identity, _)| *identity).ok()?;
        self.targets.get(self.identities[at].1 as usize)?.as_ref()
    }

    /// The backends of all services, by index.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().flatten()
    }

    /// The backend for a new connection with this key and hash, by the service's choice, whether or not it has reached its
    /// limit of connections. `None` if no backend accepts new connections.
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
            Choice::Maglev | Choice::SourceHash => {
                table.maglev.get(self.hash_of(table, key, hash))?
            }
            Choice::RoundRobin => {
                let turn = turns.0.get_mut(usize::from(service))?;
                let at = *turn as usize % table.turns.len().max(1);
                *turn = at as u32 + 1;
                *table.turns.get(at)?
            }
            _ => return self.compared(table, |_| true),
        };
        self.member(table, index)
    }

    /// The backend for a packet of an established connection that no table has an entry for. Every
    /// machine and core gives the same answer, whatever the service's choice.
    #[must_use]
    pub fn fall_back(&self, service: u16, key: &ConnKey, hash: u64) -> Option<&Target> {
        let table = self.services.get(usize::from(service))?;
        self.member(table, table.maglev.get(self.hash_of(table, key, hash))?)
    }

    /// The hash by which the Maglev table of a service is indexed for a connection.
    #[inline]
    fn hash_of(&self, table: &Table, key: &ConnKey, hash: u64) -> u64 {
        match (&table.service.persist, table.service.choice) {
            (Some(persist), _) => persist.network(key, self.seed).hash(),
            (None, Choice::SourceHash) => key.source_hash(self.seed),
            (None, _) => hash,
        }
    }

    /// The backend that the network of a client was given, and how long ago its last connection came. `None` if the service has
    /// no persistence, or the backend does not get the next connection.
    #[must_use]
    pub fn persisted(&self, service: u16, key: &ConnKey, now: Nanos) -> Option<(&Target, Nanos)> {
        let table = self.services.get(usize::from(service))?;
        let (settings, persist) = table.service.persist.zip(table.persist.as_ref())?;
        let network = settings.network(key, self.seed);
        let (backend, age) = persist.get(network, settings.timeout, now)?;
        Some((self.target(backend).filter(|target| target.lasts)?, age))
    }

    /// The backend for a packet of a connection that gets no entry: that of its client's network, or as [`Self::fall_back`].
    #[must_use]
    pub fn without_entry(
        &self,
        service: u16,
        key: &ConnKey,
        hash: u64,
        now: Nanos,
    ) -> Option<&Target> {
        let persisted = self.persisted(service, key, now).map(|(target, _)| target);
        persisted.or_else(|| self.fall_back(service, key, hash))
    }

    /// The backend named by the QUIC connection ID in this UDP payload; `None` if the service does
    /// not route QUIC or the ID names no backend.
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

    /// Resizes `turns` to the services of this plan. Each core starts at a different position.
    pub fn make_turns(&self, core: usize, turns: &mut Turns) {
        turns.0.resize(self.services.len(), core as u32);
    }

    /// Round-robin positions with capacity for `services` services, so that later plans with no more
    /// services than this allocate nothing.
    #[must_use]
    pub fn turns_for(services: usize) -> Turns {
        Turns(Vec::with_capacity(services))
    }
}

impl Table {
    /// Checksum of the Maglev table. It is equal on two machines that send the same connections to
    /// the same backends.
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

/// The ID of the next backend at index `place`, after one with the ID `before`.
pub(crate) const fn next_id(before: Option<u32>, place: u32) -> u32 {
    match before {
        Some(id) => id.wrapping_add(1 << PLACE_BITS),
        None => place,
    }
}

/// The index in the targets that is part of an ID.
pub(crate) const fn place(id: u32) -> u32 {
    id & ((1 << PLACE_BITS) - 1)
}

/// The largest number of backends at a time.
pub(crate) const PLACES: usize = 1 << PLACE_BITS;

/// Weighted round-robin sequence: each backend occurs in proportion to its weight, evenly spread. The
/// sequence has at most 4096 rounds; if it is cut, shares are exact to one in 4096.
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

/// Whether a backend keeps its existing connections. The caller passes `is_up` as true if all
/// backends are down and health is ignored.
pub(crate) const fn keeps(service: &Service, is_up: bool) -> bool {
    is_up || matches!(service.on_down, OnDown::Keep)
}

#[cfg(test)]
mod tests;
