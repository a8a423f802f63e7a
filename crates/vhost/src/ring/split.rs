//! A split ring: descriptors, and one ring of numbers in each direction.
//!
//! ```text
//!  descriptors: 16 bytes each: address, length, flags, next
//!  available:   flags, index, heads of chains ..., used event     written by the guest
//!  used:        flags, index, (head, bytes) ..., available event  written by us
//! ```
//!
//! Source: Virtual I/O Device (VIRTIO) version 1.2, section 2.7.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use flowyard_mem::{Access, barrier};

use super::{Chain, Common, Cursor, Descriptor, NEXT, Ring, RingPlace, Rules};
use crate::memory::Memory;
use crate::sys::Integers;
use crate::violation::Violation;

/// Flag of the available ring: the guest wants no calls.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: we want no kicks.
const NO_NOTIFY: u16 = 1;

#[derive(Debug)]
pub(crate) struct Split {
    common: Common,
    /// Two words for each descriptor.
    descriptors: Integers<AtomicU64>,
    available: Integers<AtomicU16>,
    /// The used ring, as integers of 16 bits (flags, index, event) and of 32 bits (the entries, from the second integer on).
    used: Integers<AtomicU16>,
    entries: Integers<AtomicU32>,
    /// The used index that the guest was last shown.
    shown: u16,
    /// The used index for which [`Ring::wants_call`] was last answered.
    answered: u16,
}

impl Split {
    /// Asks the guest for no kicks, because this side polls.
    fn set_no_kicks(&self) {
        if self.common.rules.event_index {
            // A kick is due when the guest's index passes this value, which it has just done.
            let past = self.shown.wrapping_sub(1);
            let event = 2 + 4 * usize::from(self.common.size);
            self.used[event].store(past.to_le(), Ordering::Relaxed);
        }
        self.used[0].store(NO_NOTIFY.to_le(), Ordering::Relaxed);
    }

    /// `number` is below the ring's size.
    #[inline]
    fn read(&self, number: u16) -> Descriptor {
        let at = 2 * usize::from(number);
        let first = self.descriptors[at].load(Ordering::Relaxed);
        Self::descriptor(first, self.descriptors[at + 1].load(Ordering::Relaxed))
    }

    /// The position of an entry among `size` entries.
    #[inline]
    fn index(&self, entry: u16) -> usize {
        usize::from(entry & (self.common.size - 1))
    }
}

impl Ring for Split {
    const IS_KNOWN_AT_END: bool = false;

    fn new(memory: &Arc<Memory>, place: RingPlace, rules: Rules) -> Result<Self, Violation> {
        let common = Common::new(memory, place, rules)?;
        let count = usize::from(common.size);
        let event = usize::from(rules.event_index);
        let descriptors = common.part("descriptor table", place.descriptors, 2 * count)?;
        let available = common.part("available ring", place.available, 2 + count + event)?;
        let used = common.part("used ring", place.used, 2 + 4 * count + event)?;
        let entries = common.part("used ring", place.used, 1 + 2 * count)?;
        if memory.has_loss() {
            return Err(Violation::Lost);
        }
        Ok(Self { common, descriptors, available, used, entries, shown: 0, answered: 0 })
    }

    #[inline]
    fn common(&self) -> &Common {
        &self.common
    }

    /// It begins where its used ring ends, not at the base that the front end sends: with frames that are
    /// always done in order, that is the same number, also after this process was killed.
    fn start(&mut self) -> Cursor {
        self.shown = u16::from_le(self.used[1].load(Ordering::Acquire));
        self.answered = self.shown;
        self.set_no_kicks();
        Cursor::new(self.shown, 0)
    }

    fn stop(mut self) -> u32 {
        self.start().at().into()
    }

    #[inline]
    fn look(&mut self, cursor: &mut Cursor) -> Result<(), Violation> {
        self.common.check()?;
        // Acquire: makes visible what the guest wrote before it advanced the index.
        let end = u16::from_le(self.available[1].load(Ordering::Acquire));
        let (ahead, size) = (end.wrapping_sub(cursor.at()), self.common.size);
        if ahead > size {
            return Err(Violation::Index { ahead, size });
        }
        *cursor = cursor.with_ahead(ahead);
        Ok(())
    }

    #[inline]
    fn head(&self, cursor: Cursor) -> Result<u16, Violation> {
        let at = 2 + self.index(cursor.at());
        let number = u16::from_le(self.available[at].load(Ordering::Relaxed));
        if number >= self.common.size {
            return Err(Violation::Number { number, count: self.common.size });
        }
        Ok(number)
    }

    #[inline]
    fn take(&self, number: u16, chain: &mut Chain) -> Result<(Descriptor, Option<u16>), Violation> {
        chain.slots = 1;
        let d = self.read(number);
        Ok((d, Self::following(d, number, self.common.size)?))
    }

    #[inline]
    fn descriptor(first: u64, second: u64) -> Descriptor {
        let (first, second) = (u64::from_le(first), u64::from_le(second));
        Descriptor {
            at: first,
            len: second as u32,
            flags: (second >> 32) as u16,
            number: (second >> 48) as u16,
        }
    }

    #[inline]
    fn following(d: Descriptor, _: u16, count: u16) -> Result<Option<u16>, Violation> {
        // What is wrong about one that names a table is found by the walk.
        if d.flags & (NEXT | super::INDIRECT) != NEXT {
            return Ok(None);
        }
        if d.number >= count {
            return Err(Violation::Number { number: d.number, count });
        }
        Ok(Some(d.number))
    }

    #[inline]
    fn pass(&self, cursor: &mut Cursor, chain: Chain) {
        *cursor = cursor.moved(cursor.at().wrapping_add(chain.slots), chain.slots);
    }

    #[inline]
    fn set_used(&mut self, cursor: Cursor, chain: Chain, bytes: u32) {
        let at = 1 + 2 * self.index(cursor.at());
        self.entries[at].store(u32::from(chain.id).to_le(), Ordering::Relaxed);
        self.entries[at + 1].store(bytes.to_le(), Ordering::Relaxed);
    }

    #[inline]
    fn show(&mut self, cursor: Cursor) -> bool {
        let next = cursor.at();
        if self.shown == next {
            return false;
        }
        self.shown = next;
        // Release: the used entries, and what was written into buffers, precede this store.
        self.used[1].store(next.to_le(), Ordering::Release);
        true
    }

    #[inline]
    fn wants_call(&mut self) -> bool {
        let next = self.shown;
        let before = std::mem::replace(&mut self.answered, next);
        if before == next {
            return false;
        }
        // The guest allows calls and then looks at the index; this side does so in the other order.
        barrier();
        if self.common.rules.event_index {
            let at = 2 + usize::from(self.common.size);
            let event = u16::from_le(self.available[at].load(Ordering::Relaxed));
            next.wrapping_sub(event).wrapping_sub(1) < next.wrapping_sub(before)
        } else {
            u16::from_le(self.available[0].load(Ordering::Relaxed)) & NO_INTERRUPT == 0
        }
    }

    /// The guest polls the used index, so its line is in the guest's cache.
    #[inline]
    fn prefetch_index(&self) {
        self.used.prefetch(1, Access::Write);
    }

    #[inline]
    fn prefetch_descriptor(&self, cursor: Cursor, entry: u16) {
        let at = cursor.at().wrapping_add(entry);
        if let Ok(head) = self.head(Cursor::new(at, 0)) {
            self.descriptors.prefetch(2 * usize::from(head), Access::Read);
        }
        self.entries.prefetch(1 + 2 * self.index(at), Access::Write);
    }

    #[inline]
    fn prefetch_buffer(&self, cursor: Cursor, entry: u16, access: Access) {
        let at = cursor.at().wrapping_add(entry);
        if let Ok(head) = self.head(Cursor::new(at, 0)) {
            self.common.memory.prefetch(self.read(head).at, self.common.rules.header(), access);
        }
    }
}
