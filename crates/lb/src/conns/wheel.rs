//! Timing wheel: one list of slots for each of the next ticks.
//!
//! A tick is 2^27 ns, about an eighth of a second. A slot whose deadline is beyond the last list is
//! put into that list and inspected again when its tick is reached.
//!
//! Invariants: a slot is in one list; `prev` of the first slot of a list is the list's number with
//! the top bit set.

use flowyard_frame::Nanos;

use super::conn::{Conn, NONE};

/// Number of lists; they cover nine minutes.
const LISTS: u32 = 4096;
/// Set in `prev` of the first slot of a list.
const FIRST: u32 = 1 << 31;

/// The tick that contains `now`.
#[inline]
pub(super) const fn tick(now: Nanos) -> u32 {
    (now >> 27) as u32
}

/// The first tick that begins at least `time` after `now`.
#[inline]
pub(super) const fn after(now: Nanos, time: Nanos) -> u32 {
    let end = now.saturating_add(time).saturating_add((1 << 27) - 1) >> 27;
    if end > NONE as u64 { NONE } else { end as u32 }
}

/// When a tick begins.
pub(super) const fn begin(tick: u32) -> Nanos {
    (tick as Nanos) << 27
}

/// The number of ticks in `time`, rounded up.
#[inline]
pub(super) const fn ticks(time: Nanos) -> u64 {
    time.div_ceil(1 << 27)
}

#[derive(Clone, Debug)]
pub(super) struct Wheel {
    /// The first slot of each list.
    first: Box<[u32]>,
    /// The next tick to process; the lists of all earlier ticks are empty.
    at: u32,
}

impl Wheel {
    pub(super) const BYTES: usize = LISTS as usize * 4;

    pub(super) fn new() -> Self {
        Self { first: vec![NONE; LISTS as usize].into(), at: 0 }
    }

    /// Puts `slot` into the list of its deadline.
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

    /// Removes `slot` from its list.
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

    /// Whether lists of earlier ticks may have slots.
    pub(super) const fn is_behind(&self, now: Nanos) -> bool {
        self.at < tick(now)
    }

    /// Removes and returns a slot whose list is due; `None` if there is no more.
    pub(super) fn due(&mut self, slots: &mut [Conn], now: Nanos) -> Option<u32> {
        let now = tick(now);
        // After a long jump of the clock every list is due, so one round is enough.
        self.at = self.at.max(now.saturating_sub(LISTS));
        while self.at <= now {
            let slot = self.first[(self.at % LISTS) as usize];
            if slot != NONE {
                self.unlink(slots, slot);
                return Some(slot);
            }
            if self.at == now {
                return None; // more slots may still be added to this list
            }
            self.at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::FlowKey;

    use super::*;
    use crate::ConnKey;

    fn conn(deadline: u32) -> Conn {
        let key = ConnKey::of(&FlowKey::ZERO);
        let (next, prev) = (NONE, NONE);
        Conn { key, backend: 0, deadline, next, prev, first: 0, port: 0, address: 0, marks: 0 }
    }

    /// A slot comes up in the tick of its deadline; if that is beyond the last list, in the tick of the last list,
    /// and not earlier.
    #[test]
    fn a_slot_comes_up_at_its_deadline_or_with_the_last_list() {
        let start = 1000;
        let last = start + LISTS - 1;
        for deadline in [1, start, start + 1, last - 1, last, last + 1, last + LISTS, NONE - 1] {
            let mut slots = [conn(deadline)];
            let mut wheel = Wheel::new();
            let due = |wheel: &mut Wheel, slots: &mut [Conn], tick: u32| {
                wheel.due(slots, u64::from(tick) << 27)
            };
            assert_eq!(due(&mut wheel, &mut slots, start), None);
            wheel.link(&mut slots, 0);
            let came = (start..=last + 1).find(|tick| due(&mut wheel, &mut slots, *tick).is_some());
            assert_eq!(came, Some(deadline.clamp(start, last)), "deadline {deadline}");
        }
    }
}
