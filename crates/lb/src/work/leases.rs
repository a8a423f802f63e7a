//! Leases: what another core's table said of a connection, believed for a while.
//!
//! ```text
//!  a packet of another core's connection ──> lease? ──> what was said, without that core's lock
//!                                              │ none, too old, or a packet that changes the connection
//!                                              └──> its table, under its lock ──> a lease
//! ```
//!
//! A FullNAT connection stays in one table, for its local port is its slot there. Where its packets come to
//! several cores (a split flow, a flow that moved) each of them would want that table's lock for each
//! packet. A lease ends before any timeout can: the connection is still there, and was touched when
//! the lease began. It ends at once when any known connection gets another backend, which is rare,
//! and with the plan.
//!
//! Invariants: fixed in size; a newer lease takes the place of an older one; packets with SYN, FIN or RST
//! never use one.
//! Thread-safety: one core's.

use crate::{ConnKey, Timeouts};
use flowyard_frame::{FlowKey, Nanos};

/// Leases that are remembered.
const PLACES: usize = 1024;
/// The longest one, in nanoseconds.
const LONGEST: Nanos = 100_000_000;

/// Until when something is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Term {
    /// From then on it is not.
    pub(super) until: Nanos,
    /// How often known connections had got another backend when it was said.
    pub(super) moves: u64,
}

/// What other cores said, by the 5-tuple of the packets that it is about.
pub(super) struct Leases<T> {
    entries: Box<[Option<(ConnKey, Term, T)>]>,
    length: Nanos,
}

impl<T: Copy> Leases<T> {
    /// For connections with these timeouts.
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        let least = timeouts.open.min(timeouts.datagrams);
        Self { entries: vec![None; PLACES].into(), length: LONGEST.min(least / 4) }
    }

    /// Whether a packet with these TCP flags leaves its connection as it is.
    #[inline]
    pub(super) const fn covers(flags: u8) -> bool {
        flags & (FlowKey::SYN | FlowKey::FIN | FlowKey::RST) == 0
    }

    /// What was said, if that is still so at `now`, after so many `moves`.
    #[inline]
    pub(super) fn get(&self, key: &ConnKey, hash: u64, now: Nanos, moves: u64) -> Option<T> {
        let (whose, term, said) = self.entries[place(hash)].as_ref()?;
        (whose == key && now < term.until && moves == term.moves).then_some(*said)
    }

    /// Forgets all: the plan is another.
    pub(super) fn clear(&mut self) {
        self.entries.fill(None);
    }

    /// Remembers what was said at `now`; `moves` were read before.
    pub(super) fn put(&mut self, key: &ConnKey, hash: u64, now: Nanos, moves: u64, said: T) {
        let term = Term { until: now.saturating_add(self.length), moves };
        self.entries[place(hash)] = Some((*key, term, said));
    }
}

#[inline]
const fn place(hash: u64) -> usize {
    (hash >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests;
