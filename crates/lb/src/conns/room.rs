//! Room for new connections: how many entries each service has, and which entries may be evicted.
//!
//! An entry is evicted only if the table is full, or its service has reached a limit, or it has the local
//! port that a new connection needs. What may be evicted, in this order: half-open connections, closing
//! ones, and connections that were idle for half of their timeout. A connection that was used in the
//! current tick is never evicted, so a batch does not lose entries that it has looked up.
//!
//! Invariants: a call inspects a fixed number of entries; `held` is the number of entries by service.

use std::collections::VecDeque;

use flowyard_frame::Nanos;

use super::conn::Conn;
use super::state::{State, Timeouts};
use super::{Conns, wheel};

/// The number of services that are counted separately.
const SERVICES: usize = 4096;
/// The most entries that are inspected for an eviction.
const LOOKS: usize = 32;
/// The most half-open connections that are inspected for an eviction.
const LOOKS_OPENING: usize = 16;
/// The most evictions in a tick that find nothing, for services that do not need entries.
const FAILURES: u32 = 64;
/// The most half-open connections whose order is remembered.
const REMEMBERED: usize = 1 << 16;

/// The entries of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// All of them.
    pub all: usize,
    /// The half-open ones.
    pub opening: usize,
}

/// The counts by service, and the places where evictions look.
#[derive(Clone, Debug)]
pub(super) struct Room {
    held: Box<[Held]>,
    /// Slots of half-open connections, the oldest first. Some have changed their state since.
    opened: VecDeque<u32>,
    /// The next slot to inspect.
    hand: usize,
    /// The tick of the last eviction that found nothing, and how many there were in it.
    failed: (u32, u32),
}

impl Room {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            held: vec![Held::default(); SERVICES].into(),
            opened: VecDeque::with_capacity(capacity.min(REMEMBERED)),
            hand: 0,
            failed: (0, 0),
        }
    }

    /// The memory in bytes.
    pub(super) const fn bytes(capacity: usize) -> usize {
        let opened = if capacity < REMEMBERED { capacity } else { REMEMBERED };
        SERVICES * size_of::<Held>() + opened * size_of::<u32>()
    }

    fn of(&mut self, service: u16) -> &mut Held {
        let last = self.held.len() - 1;
        &mut self.held[usize::from(service).min(last)]
    }

    /// Counts an entry that was entered.
    pub(super) fn came(&mut self, slot: u32, service: u16, state: State) {
        let held = self.of(service);
        held.all += 1;
        if state == State::Opening {
            held.opening += 1;
            if self.opened.len() == self.opened.capacity() {
                self.opened.pop_front();
            }
            self.opened.push_back(slot);
        }
    }

    /// Counts an entry that was removed.
    pub(super) fn went(&mut self, service: u16, state: State) {
        let held = self.of(service);
        held.all -= 1;
        held.opening -= usize::from(state == State::Opening);
    }

    /// Counts a half-open connection that is not half-open any more.
    pub(super) fn opened(&mut self, service: u16) {
        self.of(service).opening -= 1;
    }
}

impl Conns {
    /// The entries of the service with this number.
    #[must_use]
    pub fn held(&self, service: u16) -> Held {
        let held = &self.room.held;
        held[usize::from(service).min(held.len() - 1)]
    }

    /// Whether every slot is in use.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// How willingly the entry in `slot` is evicted; `None` if it must stay.
    #[must_use]
    pub fn rank(&self, slot: u32, now: Nanos) -> Option<u64> {
        rank(self.slots.get(slot as usize)?, &self.timeouts, now)
    }

    /// Removes the best of some entries whose service satisfies `may`, and returns it. Unless `must` is true,
    /// nothing is inspected if many evictions have found nothing in this tick.
    pub fn evict(
        &mut self,
        now: Nanos,
        seed: u64,
        must: bool,
        may: impl Fn(&Self, u16) -> bool,
    ) -> Option<Conn> {
        let tick = wheel::tick(now);
        if self.room.failed.0 != tick {
            self.room.failed = (tick, 0);
        } else if !must && self.room.failed.1 >= FAILURES {
            return None;
        }
        let gone = self.evict_opening(now, seed, &may).or_else(|| self.evict_idle(now, seed, &may));
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
            let rank = rank(&self.slots[slot], &self.timeouts, now);
            if rank > best.map(|(rank, _)| rank) && may(self, self.ends[slot].service) {
                best = rank.map(|rank| (rank, slot as u32));
            }
        }
        best.and_then(|(_, slot)| self.remove(slot, seed))
    }

    /// Removes one of the oldest half-open connections whose service satisfies `may`, and returns it.
    pub fn evict_opening(
        &mut self,
        now: Nanos,
        seed: u64,
        may: impl Fn(&Self, u16) -> bool,
    ) -> Option<Conn> {
        for _ in 0..LOOKS_OPENING {
            let slot = self.room.opened.pop_front()?;
            let conn = &self.slots[slot as usize];
            if conn.is_free() || conn.state() != State::Opening {
                continue;
            }
            let is_old = rank(conn, &self.timeouts, now).is_some();
            if is_old && may(self, self.ends[slot as usize].service) {
                return self.remove(slot, seed);
            }
            self.room.opened.push_back(slot);
        }
        None
    }
}

/// How willingly an entry is evicted; `None` if it must stay.
fn rank(conn: &Conn, timeouts: &Timeouts, now: Nanos) -> Option<u64> {
    if conn.is_free() {
        return None;
    }
    let timeout = wheel::ticks(timeouts.of(conn.state()));
    // At most the number of ticks since the last packet.
    let idle = (u64::from(wheel::tick(now)) + timeout).saturating_sub(conn.deadline.into());
    let share = idle * 1000 / timeout.max(1);
    match conn.state() {
        _ if idle == 0 => None,
        State::Opening => Some(2_000_000 + share),
        State::Closing => Some(1_000_000 + share),
        State::Open | State::Datagrams => (share >= 500).then_some(share),
    }
}
