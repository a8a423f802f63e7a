//! Unestablished connections: for each service a list of its entries, the least recently used first.
//!
//! ```text
//!  service 3:  oldest ─> slot 9 ─> slot 4 ─> slot 7 <─ newest     evicted and expired at this end ─┐
//!                └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A connection is unestablished until both of its sides, or its client twice, were seen ([`Conns::seen`],
//! [`Conns::answered`]); a packet with a forged source address makes an unestablished entry. Such an entry is
//! in the list of its service and not in the wheel, by the same two links. All entries of a list have the same
//! timeout, so the list is also in the order of their deadlines, and entries expire at its old end.
//!
//! Invariants: an entry is in the list of its service exactly while it is unestablished; a list is in the order
//! of the last packets; an entry that this batch or the one before has used is not evicted; a call inspects a
//! fixed number of lists.

use flowyard_frame::Nanos;

use super::conn::{Conn, NONE};
use super::room::SERVICES;
use super::{Conns, wheel};

/// The most lists that one call inspects for expired entries.
const VISITS: usize = 256;
/// The lists that are compared in a search for the longest.
const LOOKS: usize = 8;

/// The entries of one service.
#[derive(Clone, Copy, Debug)]
struct List {
    oldest: u32,
    newest: u32,
    len: u32,
}

/// The lists of all services.
#[derive(Clone, Debug)]
pub(super) struct Lru {
    lists: Box<[List]>,
    /// Lists from this number on were never used.
    used: usize,
    /// Entries in all lists.
    len: usize,
    /// Before this tick no entry of a list expires.
    due: u32,
    /// As `due`, for the lists that the current round of [`Conns::expire`] has passed.
    soon: u32,
    /// The list at which this round goes on.
    hand: usize,
    /// The list that was the longest of those that were compared.
    longest: usize,
    /// The list that is compared next.
    look: usize,
    /// The low bits of the number of batches so far.
    batch: u16,
}

impl Lru {
    pub(super) const BYTES: usize = SERVICES * size_of::<List>();

    pub(super) fn new() -> Self {
        Self {
            lists: vec![List { oldest: NONE, newest: NONE, len: 0 }; SERVICES].into(),
            used: 0,
            len: 0,
            due: u32::MAX,
            soon: u32::MAX,
            hand: 0,
            longest: 0,
            look: 0,
            batch: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The entries of a service.
    pub(super) fn of(&self, service: u16) -> usize {
        self.lists[at(service)].len as usize
    }

    /// Whether an entry may have expired.
    pub(super) const fn is_due(&self, now: Nanos) -> bool {
        self.due <= wheel::tick(now)
    }

    /// Adds `slot` as the one that was used last.
    pub(super) fn add(&mut self, slots: &mut [Conn], slot: u32, service: u16) {
        let at = at(service);
        let list = &mut self.lists[at];
        let before = std::mem::replace(&mut list.newest, slot);
        list.len += 1;
        match slots.get_mut(before as usize) {
            Some(before) => before.next = slot,
            None => list.oldest = slot,
        }
        let conn = &mut slots[slot as usize];
        (conn.prev, conn.next) = (before, NONE);
        self.due = self.due.min(conn.deadline);
        self.soon = self.soon.min(conn.deadline);
        self.len += 1;
        self.used = self.used.max(at + 1);
        if list.len > self.lists[self.longest].len {
            self.longest = at;
        }
    }

    /// Removes `slot`.
    pub(super) fn take(&mut self, slots: &mut [Conn], slot: u32, service: u16) {
        let Conn { next, prev, .. } = slots[slot as usize];
        let list = &mut self.lists[at(service)];
        match slots.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => list.oldest = next,
        }
        match slots.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => list.newest = prev,
        }
        list.len -= 1;
        self.len -= 1;
    }

    /// The list with the most entries. Only a few lists are compared with the last answer, so that a list that
    /// does not grow is found later.
    fn longest(&mut self) -> u16 {
        for _ in 0..LOOKS.min(self.used) {
            let at = self.look % self.used;
            self.look = at + 1;
            if self.lists[at].len > self.lists[self.longest].len {
                self.longest = at;
            }
        }
        self.longest as u16
    }
}

/// The list of a service.
fn at(service: u16) -> usize {
    usize::from(service).min(SERVICES - 1)
}

impl Conns {
    /// The number of unestablished connections.
    #[must_use]
    pub const fn unestablished(&self) -> usize {
        self.lru.len()
    }

    /// Begins a batch of packets: entries that are used from now on stay until the batch after it has ended.
    #[inline]
    pub fn begin(&mut self) {
        self.lru.batch = self.lru.batch.wrapping_add(1);
        if !self.gone.is_empty() {
            self.unlist_gone();
        }
    }

    /// The number of batches since the last packet of an unestablished connection, modulo 2^16.
    pub(super) fn batches_since(&self, slot: u32) -> u16 {
        self.lru.batch.wrapping_sub(self.ends[slot as usize].batch)
    }

    /// Whether this batch or the one before has used the unestablished connection in `slot`. With the batch
    /// before, another core that has just found the entry has the time to send its packet.
    pub(super) fn is_busy(&self, slot: u32) -> bool {
        self.batches_since(slot) < 2
    }

    /// Puts an entry into the list of its service, or into the wheel.
    pub(super) fn link(&mut self, slot: u32) {
        if self.slots[slot as usize].is_established() {
            return self.wheel.link(&mut self.slots, slot);
        }
        let end = &mut self.ends[slot as usize];
        end.batch = self.lru.batch;
        self.lru.add(&mut self.slots, slot, end.service);
    }

    /// Takes an entry out of its list.
    pub(super) fn unlink(&mut self, slot: u32) {
        if self.slots[slot as usize].is_established() {
            return self.wheel.unlink(&mut self.slots, slot);
        }
        self.lru.take(&mut self.slots, slot, self.ends[slot as usize].service);
    }

    /// Removes and returns the least recently used of a service's unestablished connections; `None` if it has
    /// none, or has used all of them in this batch or the one before.
    pub fn evict_unestablished(&mut self, service: u16, seed: u64) -> Option<Conn> {
        let slot = self.lru.lists[at(service)].oldest;
        if slot == NONE || self.is_busy(slot) {
            return None;
        }
        self.remove(slot, seed)
    }

    /// The service whose unestablished connections make room for one of `service`: the one that has the most,
    /// or `service` itself. `None` if `service` has less than `part` and no other is known that has more.
    pub fn crowding(&mut self, service: u16, part: usize) -> Option<u16> {
        let (most, own) = (self.lru.longest(), self.lru.of(service));
        if self.lru.of(most) > own.max(part) {
            return Some(most);
        }
        (own >= part).then_some(service)
    }

    /// Whether [`Conns::advance`] has used its budget, and may have more entries to inspect.
    #[must_use]
    pub const fn is_behind(&self, now: Nanos) -> bool {
        self.wheel.is_behind(now) || self.lru.is_due(now)
    }

    /// Removes expired unestablished connections, at most `budget`, and returns their number.
    pub(super) fn expire(
        &mut self,
        now: Nanos,
        budget: usize,
        seed: u64,
        gone: &mut dyn FnMut(&Conn),
    ) -> usize {
        let tick = wheel::tick(now);
        let mut expired = 0;
        if !self.lru.is_due(now) {
            return expired;
        }
        if self.lru.hand == 0 {
            self.lru.soon = u32::MAX; // a round begins
        }
        for _ in 0..VISITS {
            let head = |conns: &Self| conns.lru.lists[conns.lru.hand].oldest;
            while let Some(conn) = self.slots.get(head(self) as usize) {
                if tick < conn.deadline {
                    self.lru.soon = self.lru.soon.min(conn.deadline);
                    break;
                }
                if expired == budget {
                    return expired;
                }
                gone(conn);
                self.remove(head(self), seed);
                expired += 1;
            }
            self.lru.hand += 1;
            if self.lru.hand >= self.lru.used {
                let soon = std::mem::replace(&mut self.lru.soon, u32::MAX);
                (self.lru.hand, self.lru.due) = (0, soon);
                break;
            }
        }
        expired
    }

    /// The unestablished connections of a service, the least recently used first.
    #[cfg(test)]
    pub(super) fn list(&self, service: u16) -> Vec<u32> {
        let first = self.lru.lists[at(service)].oldest;
        let next = |slot: &u32| Some(self.slots[*slot as usize].next).filter(|&next| next != NONE);
        std::iter::successors(Some(first).filter(|&first| first != NONE), next).collect()
    }
}
