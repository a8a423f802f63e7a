//! Room for new connections: how many entries each service has, and which entries may be evicted.
//!
//! An entry is evicted only if the table is full, or its service has reached a limit, or it has the local
//! port that a new connection needs. What may be evicted, in this order: unestablished connections, closing
//! ones, and connections that were idle for half of their timeout. No entry is evicted that the current batch
//! uses, so a batch does not lose entries that it has looked up: unestablished ones stay for two batches (`lru`),
//! others for the current tick.
//!
//! Invariants: a call inspects a fixed number of entries; `held` is the number of entries by service.

use flowyard_frame::Nanos;

use super::state::State;
use super::{Conn, Conns, wheel};

/// The number of services that are counted separately.
pub(super) const SERVICES: usize = 4096;
/// The most entries that are inspected for an eviction.
const LOOKS: usize = 32;
/// The most evictions in a tick that find nothing, for services that do not need entries.
const FAILURES: u32 = 64;
/// The lowest rank of a closing connection; that of an established one is lower.
const CLOSING: u64 = 1 << 16;
/// The lowest rank of an unestablished connection.
const UNESTABLISHED: u64 = 1 << 60;

/// The entries of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// All of them.
    pub all: usize,
    /// The unestablished ones.
    pub unestablished: usize,
}

impl std::ops::Add for Held {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { all: self.all + other.all, unestablished: self.unestablished + other.unestablished }
    }
}

/// The counts by service, and the place where evictions look.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// The entries of each service.
    held: Box<[u32]>,
    /// The next slot to inspect.
    hand: usize,
    /// The tick of the last eviction that found nothing, and how many there were in it.
    failed: (u32, u32),
}

impl Room {
    pub(super) const BYTES: usize = SERVICES * size_of::<u32>();

    pub(super) fn new() -> Self {
        Self { held: vec![0; SERVICES].into(), hand: 0, failed: (0, 0) }
    }

    fn of(&mut self, service: u16) -> &mut u32 {
        &mut self.held[usize::from(service).min(SERVICES - 1)]
    }

    /// Counts an entry that was entered.
    pub(super) fn came(&mut self, service: u16) {
        *self.of(service) += 1;
    }

    /// Counts an entry that was removed.
    pub(super) fn went(&mut self, service: u16) {
        *self.of(service) -= 1;
    }
}

impl Conns {
    /// The entries of the service with this number.
    #[must_use]
    pub fn held(&self, service: u16) -> Held {
        let all = self.room.held[usize::from(service).min(SERVICES - 1)] as usize;
        Held { all, unestablished: self.lru.of(service) }
    }

    /// Whether every slot is in use.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Removes the best of some entries whose service satisfies `may`, and returns it: an unestablished
    /// connection of the service that has the most of them, or of `own`, or else an entry that is not needed any
    /// more. Unless `must` is true, nothing is inspected if many evictions have found nothing in this tick.
    pub fn evict(
        &mut self,
        now: Nanos,
        seed: u64,
        must: bool,
        own: u16,
        may: impl Fn(&Self, u16) -> bool,
    ) -> Option<Conn> {
        let tick = wheel::tick(now);
        if self.room.failed.0 != tick {
            self.room.failed = (tick, 0);
        } else if !must && self.room.failed.1 >= FAILURES {
            return None;
        }
        let crowding = self.crowding(own, 0).filter(|&most| may(self, most));
        let gone = crowding
            .and_then(|most| self.evict_unestablished(most, seed))
            .or_else(|| may(self, own).then(|| self.evict_unestablished(own, seed))?)
            .or_else(|| self.evict_idle(now, seed, &may));
        self.room.failed.1 += u32::from(gone.is_none());
        gone
    }

    /// Removes the best of the next entries, in the order of their slots.
    fn evict_idle(
        &mut self,
        now: Nanos,
        seed: u64,
        may: impl Fn(&Self, u16) -> bool,
    ) -> Option<Conn> {
        let mut best = None;
        for _ in 0..LOOKS.min(self.slots.len()) {
            let slot = self.room.hand % self.slots.len();
            self.room.hand = slot + 1;
            let rank = self.rank(slot as u32, now);
            if rank > best.map(|(rank, _)| rank) && may(self, self.ends[slot].service) {
                best = rank.map(|rank| (rank, slot as u32));
            }
        }
        best.and_then(|(_, slot)| self.remove(slot, seed))
    }

    /// How willingly the entry in `slot` is evicted; `None` if it must stay.
    #[must_use]
    pub fn rank(&self, slot: u32, now: Nanos) -> Option<u64> {
        let conn = self.slots.get(slot as usize).filter(|conn| !conn.is_free())?;
        let timeout = wheel::ticks(self.timeout(conn));
        // At most the number of ticks since the last packet.
        let idle = (u64::from(wheel::tick(now)) + timeout).saturating_sub(conn.deadline.into());
        if !conn.is_established() {
            let batches = u64::from(self.batches_since(slot));
            return (!self.is_busy(slot)).then_some(UNESTABLISHED | idle << 16 | batches);
        }
        let share = (idle * 1000 / timeout.max(1)).min(1000);
        match conn.state() {
            _ if idle == 0 => None,
            State::Opening | State::Closing => Some(CLOSING + share),
            State::Open | State::Datagrams => (share >= 500).then_some(share),
        }
    }
}
