//! The wheel: lists of slots, one for each tick to come.
//!
//! A tick is 2^27 ns, an eighth of a second. What is due later than the wheel reaches hangs in its last
//! list and is looked at again there.
//!
//! Invariants: a slot hangs in one list, `prev` of the first is the list's number with the top bit.

use flowyard_frame::Nanos;

use super::{Conn, NONE};

/// Lists of the wheel: nine minutes.
const LISTS: u32 = 4096;
/// In `prev`: this is the first of the list with that number.
const FIRST: u32 = 1 << 31;

/// The tick that `now` is in.
#[inline]
pub(super) const fn tick(now: Nanos) -> u32 {
    (now >> 27) as u32
}

/// The first tick that begins `time` after `now` or later.
#[inline]
pub(super) const fn after(now: Nanos, time: Nanos) -> u32 {
    let end = now.saturating_add(time).saturating_add((1 << 27) - 1) >> 27;
    if end > NONE as u64 { NONE } else { end as u32 }
}

/// The lists.
#[derive(Clone, Debug)]
pub(super) struct Wheel {
    first: Box<[u32]>,
    /// The next tick to look at: all before are done.
    at: u32,
}

impl Wheel {
    pub(super) const BYTES: usize = LISTS as usize * 4;

    pub(super) fn new() -> Self {
        Self { first: vec![NONE; LISTS as usize].into(), at: 0 }
    }

    /// Hangs `slot` where its deadline is.
    pub(super) fn link(&mut self, slots: &mut [Conn], slot: u32) {
        let deadline = slots[slot as usize].deadline;
        let tick = deadline.clamp(self.at, self.at.saturating_add(LISTS - 1));
        let list = tick % LISTS;
        let next = std::mem::replace(&mut self.first[list as usize], slot);
        if let Some(next) = slots.get_mut(next as usize) {
            next.prev = slot;
        }
        let conn = &mut slots[slot as usize];
        (conn.next, conn.prev) = (next, FIRST | list);
    }

    /// Takes `slot` out of its list.
    pub(super) fn unlink(&mut self, slots: &mut [Conn], slot: u32) {
        let Conn { next, prev, .. } = slots[slot as usize];
        if prev & FIRST != 0 {
            self.first[(prev & !FIRST) as usize] = next;
        } else {
            slots[prev as usize].next = next;
        }
        if let Some(next) = slots.get_mut(next as usize) {
            next.prev = prev;
        }
    }

    /// Takes out a slot whose time, as the wheel knows it, has come; `None` when all are done.
    pub(super) fn due(&mut self, slots: &mut [Conn], now: Nanos) -> Option<u32> {
        let now = tick(now);
        // A clock that jumps far has passed every list once: no need to go round again.
        self.at = self.at.max(now.saturating_sub(LISTS));
        while self.at <= now {
            let slot = self.first[(self.at % LISTS) as usize];
            if slot != NONE {
                self.unlink(slots, slot);
                return Some(slot);
            }
            if self.at == now {
                return None; // more may be hung in this list yet
            }
            self.at += 1;
        }
        None
    }
}
