//! Leases: short-lived copies of entries of another core's connection table.
//!
//! ```text
//!  a packet of another core's connection ──> lease? ──> its result, without that core's lock
//!                                              │ none, expired, or the packet changes the connection
//!                                              └──> that core's table, under its lock ──> a lease
//! ```
//!
//! A FullNAT connection stays in one table, because its local address belongs to that core. If its packets
//! arrive on several cores (a split flow, or a flow that moved), each core would need that table's lock
//! for every packet. A lease expires before any timeout of the connection can: the connection was used
//! when the lease began, so it still exists. All leases end when any existing connection gets another
//! backend or is evicted, which is rare, and when the plan changes.
//!
//! Invariants: the size is fixed; a newer lease replaces an older one in the same entry; packets with SYN,
//! FIN or RST never use a lease.
//! Thread-safety: used by one core.

use crate::{ConnKey, Timeouts};
use flowyard_frame::{FlowKey, Nanos};

/// Number of entries.
const PLACES: usize = 1024;
/// The longest duration of a lease, in nanoseconds.
const LONGEST: Nanos = 100_000_000;

#[derive(Clone, Copy)]
struct Lease<T> {
    key: ConnKey,
    /// The time at which it expires.
    until: Nanos,
    /// The number of connections that had got another backend when the lease began.
    moves: u64,
    value: T,
}

/// Leases by the 5-tuple of the packets that they apply to.
pub(super) struct Leases<T> {
    entries: Box<[Option<Lease<T>>]>,
    length: Nanos,
}

impl<T: Copy> Leases<T> {
    /// No leases, for connections with these timeouts.
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        let least = timeouts.open.min(timeouts.datagrams);
        Self { entries: vec![None; PLACES].into(), length: LONGEST.min(least / 4) }
    }

    /// Whether a packet with these TCP flags may use a lease, because it does not change the state of its
    /// connection.
    #[inline]
    pub(super) const fn covers(flags: u8) -> bool {
        flags & (FlowKey::SYN | FlowKey::FIN | FlowKey::RST) == 0
    }

    /// The value of the lease with this key, if it has not expired and `moves` has not changed since.
    #[inline]
    pub(super) fn get(&self, key: &ConnKey, hash: u64, now: Nanos, moves: u64) -> Option<T> {
        let lease = self.entries[place(hash)].as_ref()?;
        (lease.key == *key && now < lease.until && moves == lease.moves).then_some(lease.value)
    }

    /// Ends all leases.
    pub(super) fn clear(&mut self) {
        self.entries.fill(None);
    }

    /// Begins a lease at `now`. `moves` must have been read before the value.
    pub(super) fn put(&mut self, key: &ConnKey, hash: u64, now: Nanos, moves: u64, value: T) {
        let until = now.saturating_add(self.length);
        self.entries[place(hash)] = Some(Lease { key: *key, until, moves, value });
    }
}

#[inline]
const fn place(hash: u64) -> usize {
    (hash >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests;
