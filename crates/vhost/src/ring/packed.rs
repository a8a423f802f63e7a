//! A packed ring: one ring of descriptors, in which both sides write.
//!
//! ```text
//!  descriptors: 16 bytes each: address, length, identifier, flags
//!      the guest: AVAIL = its wrap counter, USED = the opposite     a descriptor is available
//!      we:        AVAIL = USED = our wrap counter                   the chain that began here is used
//!  driver area: when the guest wants to be called                   written by the guest
//!  device area: no kicks; and the position at which we continue     written by us
//! ```
//!
//! A position is the number of a descriptor, with the wrap counter in bit 15. A ring has no index in memory
//! from which a process that starts again could learn its position. So this one is kept in the device area, in
//! the field that has no meaning for the guest while the flags say that it should not kick.
//!
//! Invariants: of what is used in a burst, the guest sees the first chain last, so that it sees all or nothing.
//! Source: Virtual I/O Device (VIRTIO) version 1.2, section 2.8.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use flowyard_mem::{Access, barrier};

use super::{CHAIN, Chain, Common, Cursor, Descriptor, NEXT, Ring, RingPlace, Rules, WRITE};
use crate::memory::Memory;
use crate::sys::Integers;
use crate::violation::Violation;

/// Flags of a descriptor, which say with the wrap counters whose it is.
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// The wrap counter in a position.
const WRAP: u16 = 1 << 15;
/// Flags of both areas: no notifications, or one about the descriptor that the area names.
const DISABLE: u16 = 1;
const ONE: u16 = 2;
/// Descriptors in front of a cursor about which it is known whether they are available.
const LOOK: u16 = 2 * CHAIN;

#[derive(Debug)]
pub(crate) struct Packed {
    common: Common,
    /// Two words for each descriptor.
    descriptors: Integers<AtomicU64>,
    driver: Integers<AtomicU32>,
    device: Integers<AtomicU32>,
    /// The position in front of which the guest was shown everything.
    shown: u16,
    /// Descriptors that the guest was shown since the last call of [`Ring::wants_call`].
    unanswered: u16,
    /// Where the first chain of this burst is marked as used, and the word that does it.
    held: Option<(usize, u64)>,
}

impl Packed {
    /// The position that is `count` descriptors behind another one; `count` is at most the ring's size.
    #[inline]
    fn behind(&self, at: u16, count: u16) -> u16 {
        let (number, wrap) = (u32::from(at & !WRAP) + u32::from(count), at & WRAP);
        let size = u32::from(self.common.size);
        if number >= size { (number - size) as u16 | (wrap ^ WRAP) } else { number as u16 | wrap }
    }

    /// The second word of the descriptor at a position: length, identifier, flags.
    #[inline]
    fn word(&self, at: u16, order: Ordering) -> u64 {
        u64::from_le(self.descriptors[2 * usize::from(at & !WRAP) + 1].load(order))
    }

    /// Whether the guest's flag AVAIL, and the device's flag USED, have the value of the wrap counter at a
    /// position.
    #[inline]
    fn marks(&self, at: u16) -> (bool, bool) {
        // Acquire: makes visible what the guest wrote before it made the descriptor available.
        let flags = (self.word(at, Ordering::Acquire) >> 48) as u16;
        let wrap = at & WRAP != 0;
        ((flags & AVAIL != 0) == wrap, (flags & USED != 0) == wrap)
    }

    /// Writes our position, and that we want no kicks.
    #[inline]
    fn keep(&self, at: u16) {
        let word = u32::from(at) | u32::from(DISABLE) << 16;
        self.device[0].store(word.to_le(), Ordering::Relaxed);
    }

    /// The position that is kept in the device area, or else the base of the front end.
    fn begin(&self) -> u16 {
        let word = u32::from_le(self.device[0].load(Ordering::Acquire));
        let kept = word as u16;
        let is_kept = word >> 16 == u32::from(DISABLE) && kept & !WRAP < self.common.size;
        let mut at = if is_kept { kept } else { self.shown };
        // A process that was killed between the two stores of `show` has used more than is kept. This finds
        // its end if each chain was of one descriptor.
        for _ in 0..self.common.size {
            if self.marks(at) != (true, true) {
                break;
            }
            at = self.behind(at, 1);
        }
        at
    }
}

impl Ring for Packed {
    const IS_KNOWN_AT_END: bool = true;

    fn new(memory: &Arc<Memory>, place: RingPlace, rules: Rules) -> Result<Self, Violation> {
        let common = Common::new(memory, place, rules)?;
        let count = usize::from(common.size);
        let descriptors = common.part("descriptor ring", place.descriptors, 2 * count)?;
        let driver = common.part("driver area", place.available, 1)?;
        let device = common.part("device area", place.used, 1)?;
        // The lower half is where to look next, and the upper half where to use next. Both are equal when
        // nothing is in flight, and DPDK sets the lower one only.
        let shown = place.base.map_or(WRAP, |base| base as u16);
        if shown & !WRAP >= common.size {
            return Err(Violation::Number { number: shown & !WRAP, count: common.size });
        }
        if memory.has_loss() {
            return Err(Violation::Lost);
        }
        Ok(Self { common, descriptors, driver, device, shown, unanswered: 0, held: None })
    }

    #[inline]
    fn common(&self) -> &Common {
        &self.common
    }

    fn start(&mut self) -> Cursor {
        self.shown = self.begin();
        self.keep(self.shown);
        Cursor::new(self.shown, 0)
    }

    fn stop(self) -> u32 {
        let at = u32::from(self.begin());
        // Another device could take what is kept for its own.
        self.device[0].store(0, Ordering::Relaxed);
        at | at << 16
    }

    #[inline]
    fn look(&mut self, cursor: &mut Cursor) -> Result<(), Violation> {
        self.common.check()?;
        let most = LOOK.min(self.common.size);
        let mut ahead = cursor.ahead();
        while ahead < most && self.marks(self.behind(cursor.at(), ahead)) == (true, false) {
            ahead += 1;
        }
        *cursor = cursor.with_ahead(ahead);
        Ok(())
    }

    #[inline]
    fn head(&self, cursor: Cursor) -> Result<u16, Violation> {
        Ok(cursor.at() & !WRAP)
    }

    #[inline]
    fn take(&self, number: u16, chain: &mut Chain) -> Result<(Descriptor, Option<u16>), Violation> {
        let at = 2 * usize::from(number);
        let first = self.descriptors[at].load(Ordering::Relaxed);
        let d = Self::descriptor(first, self.descriptors[at + 1].load(Ordering::Relaxed));
        let size = self.common.size;
        // The guest writes the identifier into the last one of a chain.
        *chain = Chain { id: d.number, slots: chain.slots + 1 };
        if d.flags & NEXT == 0 {
            return Ok((d, None));
        }
        if chain.slots == size {
            return Err(Violation::Chain { most: size });
        }
        Ok((d, Some(if number + 1 == size { 0 } else { number + 1 })))
    }

    #[inline]
    fn descriptor(first: u64, second: u64) -> Descriptor {
        let (first, second) = (u64::from_le(first), u64::from_le(second));
        Descriptor {
            at: first,
            len: second as u32,
            number: (second >> 32) as u16,
            flags: (second >> 48) as u16,
        }
    }

    /// All descriptors of a table are of the chain, and its only flag is WRITE.
    #[inline]
    fn following(_: Descriptor, number: u16, count: u16) -> Result<Option<u16>, Violation> {
        Ok(if number + 1 < count { Some(number + 1) } else { None })
    }

    #[inline]
    fn pass(&self, cursor: &mut Cursor, chain: Chain) {
        *cursor = cursor.moved(self.behind(cursor.at(), chain.slots), chain.slots);
    }

    #[inline]
    fn set_used(&mut self, cursor: Cursor, chain: Chain, bytes: u32) {
        let wrap = if cursor.at() & WRAP == 0 { 0 } else { AVAIL | USED };
        let flags = wrap | if bytes > 0 { WRITE } else { 0 };
        let word = u64::from(bytes) | u64::from(chain.id) << 32 | u64::from(flags) << 48;
        let at = 2 * usize::from(cursor.at() & !WRAP) + 1;
        if self.held.is_none() {
            self.held = Some((at, word.to_le()));
        } else {
            self.descriptors[at].store(word.to_le(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn show(&mut self, cursor: Cursor) -> bool {
        let Some((at, word)) = self.held.take() else { return false };
        let (old, new) = (std::mem::replace(&mut self.shown, cursor.at()), cursor.at());
        // Release: the other chains, and what was written into buffers, precede this store.
        self.descriptors[at].store(word, Ordering::Release);
        self.keep(new);
        let lap = if new & !WRAP <= old & !WRAP { self.common.size } else { 0 };
        let count = (new & !WRAP).wrapping_add(lap).wrapping_sub(old & !WRAP);
        self.unanswered = self.unanswered.saturating_add(count);
        true
    }

    #[inline]
    fn wants_call(&mut self) -> bool {
        let count = std::mem::take(&mut self.unanswered);
        if count == 0 {
            return false;
        }
        // The guest allows calls and then looks at descriptors; this side does so in the other order.
        barrier();
        let area = u32::from_le(self.driver[0].load(Ordering::Relaxed));
        match (area >> 16) as u16 & 3 {
            DISABLE => false,
            ONE if self.common.rules.event_index => {
                let size = self.common.size;
                let (new, event) = (self.shown & !WRAP, area as u16 & !WRAP);
                // Relative to this lap: what is of the lap before is below zero.
                let lap = if (area as u16 ^ self.shown) & WRAP == 0 { 0 } else { size };
                let behind = new.wrapping_sub(event.wrapping_sub(lap)).wrapping_sub(1);
                // A whole lap has passed each descriptor.
                count >= size || behind < count
            }
            _ => true,
        }
    }

    /// The descriptors follow each other in memory, and [`Self::look`] has read a part of each.
    #[inline]
    fn prefetch_descriptor(&self, cursor: Cursor, entry: u16) {
        let at = usize::from(self.behind(cursor.at(), entry) & !WRAP);
        self.descriptors.prefetch(2 * at, Access::Write);
    }

    #[inline]
    fn prefetch_buffer(&self, cursor: Cursor, entry: u16, access: Access) {
        let at = 2 * usize::from(self.behind(cursor.at(), entry) & !WRAP);
        let place = self.descriptors[at].load(Ordering::Relaxed);
        self.common.memory.prefetch(u64::from_le(place), self.common.rules.header(), access);
    }
}
