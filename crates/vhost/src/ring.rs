//! A split ring of virtio in a guest's memory, and the walk along a chain of descriptors.
//!
//! ```text
//!  descriptors: 16 bytes each: address, length, flags, next
//!  available:   flags, index, heads of chains ..., used event     written by the guest
//!  used:        flags, index, (head, bytes) ..., available event  written by us
//! ```
//!
//! Invariants: everything that the guest writes is read once, and checked before it is used. A chain has at
//! most [`CHAIN`] descriptors.
//! Source: Virtual I/O Device (VIRTIO) version 1.2, section 2.7.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::memory::{Memory, Region, UNKNOWN};
use crate::violation::Violation;

/// The most descriptors of a chain: no frame needs more.
pub(crate) const CHAIN: u16 = 256;
/// The most entries of a ring.
const LONGEST: u32 = 32_768;

/// Flag of a descriptor: the chain continues.
const NEXT: u16 = 1;
/// Flag of a descriptor: for writing by the device.
const WRITE: u16 = 2;
/// Flag of a descriptor: a table of descriptors is in its place.
const INDIRECT: u16 = 4;
/// Flag of the available ring: the guest wants no calls.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: we want no kicks.
const NO_NOTIFY: u16 = 1;

/// What was negotiated about rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules {
    /// A frame for the guest may need several chains (VIRTIO_NET_F_MRG_RXBUF).
    pub mergeable: bool,
    /// VIRTIO_F_VERSION_1.
    pub modern: bool,
    /// VIRTIO_RING_F_INDIRECT_DESC.
    pub indirect: bool,
    /// VIRTIO_RING_F_EVENT_IDX.
    pub event_index: bool,
}

impl Rules {
    /// The bytes of the header in front of a frame.
    pub(crate) const fn header(self) -> usize {
        if self.mergeable || self.modern { 12 } else { 10 }
    }
}

/// Where a ring is: addresses in the front end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RingPlace {
    /// The number of its entries.
    pub size: u32,
    /// The descriptors.
    pub descriptors: u64,
    /// The available ring.
    pub available: u64,
    /// The used ring.
    pub used: u64,
}

/// A part of a ring, inside of one region.
#[derive(Debug)]
struct Part {
    region: Arc<Region>,
    at: usize,
}

impl Part {
    fn u16(&self, at: usize) -> &std::sync::atomic::AtomicU16 {
        self.region.mapping().u16(self.at + at)
    }
}

/// A descriptor, as it was read once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Descriptor {
    pub(crate) at: u64,
    pub(crate) len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn from_words(first: u64, second: u64) -> Self {
        let (first, second) = (u64::from_le(first), u64::from_le(second));
        Self {
            at: first,
            len: second as u32,
            flags: (second >> 32) as u16,
            next: (second >> 48) as u16,
        }
    }

    /// Whether it is for writing by us.
    #[inline]
    pub(crate) const fn is_for_writing(self) -> bool {
        self.flags & WRITE != 0
    }
}

#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) memory: Arc<Memory>,
    descriptors: Part,
    available: Part,
    used: Part,
    pub(crate) size: u16,
    pub(crate) rules: Rules,
    losses: u64,
    /// The used index that the guest was last shown.
    shown: u16,
}

impl Ring {
    /// The ring at `place`.
    ///
    /// # Errors
    /// When its size is not possible, or a part of it does not lie in memory.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        place: RingPlace,
        rules: Rules,
    ) -> Result<Self, Violation> {
        if !place.size.is_power_of_two() || place.size > LONGEST {
            return Err(Violation::Size(place.size));
        }
        let count = place.size as usize;
        let event = 2 * usize::from(rules.event_index);
        let part = |name, at, bytes, align| {
            let missing = Violation::Place { part: name, at, size: place.size };
            let (region, at) = memory.find_user(at, bytes).ok_or(missing)?;
            if !region.mapping().is_aligned(at, align) {
                return Err(missing);
            }
            Ok(Part { region: Arc::clone(region), at })
        };
        let ring = Self {
            descriptors: part("descriptor table", place.descriptors, 16 * count, 8)?,
            available: part("available ring", place.available, 4 + 2 * count + event, 2)?,
            used: part("used ring", place.used, 4 + 8 * count + event, 4)?,
            memory: Arc::clone(memory),
            size: place.size as u16,
            rules,
            losses: UNKNOWN,
            shown: 0,
        };
        if memory.has_loss() { Err(Violation::Lost) } else { Ok(ring) }
    }

    /// Begins where the used ring ends, and asks for no kicks. Returns the first entry.
    pub(crate) fn start(&mut self) -> u16 {
        self.shown = u16::from_le(self.used.u16(2).load(Ordering::Acquire));
        self.set_no_kicks();
        self.shown
    }

    /// Asks the guest for no kicks, because this side polls.
    fn set_no_kicks(&self) {
        if self.rules.event_index {
            // A kick is due when the guest's index passes this value, which it has just done.
            let past = self.shown.wrapping_sub(1);
            let at = 4 + 8 * usize::from(self.size);
            self.used.u16(at).store(past.to_le(), Ordering::Relaxed);
        }
        self.used.u16(0).store(NO_NOTIFY.to_le(), Ordering::Relaxed);
    }

    /// The end of the entries that the guest has made available, after `next`.
    ///
    /// # Errors
    /// When the guest's index is not possible, or its memory is lost.
    #[inline]
    pub(crate) fn end(&mut self, next: u16) -> Result<u16, Violation> {
        if self.memory.is_lost(&mut self.losses) {
            return Err(Violation::Lost);
        }
        // Acquire: makes visible what the guest wrote before it advanced the index.
        let end = u16::from_le(self.available.u16(2).load(Ordering::Acquire));
        let ahead = end.wrapping_sub(next);
        if ahead > self.size {
            return Err(Violation::Index { ahead, size: self.size });
        }
        Ok(end)
    }

    /// The head of the chain in this entry.
    ///
    /// # Errors
    /// When there is no such descriptor.
    #[inline]
    pub(crate) fn head(&self, entry: u16) -> Result<u16, Violation> {
        let at = 4 + 2 * usize::from(entry & (self.size - 1));
        let number = u16::from_le(self.available.u16(at).load(Ordering::Relaxed));
        if number >= self.size {
            return Err(Violation::Number { number, count: self.size });
        }
        Ok(number)
    }

    /// Asks for the cache line of the first descriptor of an entry.
    #[inline]
    pub(crate) fn prefetch(&self, entry: u16) {
        if let Ok(head) = self.head(entry) {
            let part = &self.descriptors;
            part.region.mapping().prefetch(part.at + 16 * usize::from(head));
        }
    }

    /// Asks for the first cache line of the buffer that an entry names. What is read here is not used
    /// otherwise.
    #[inline]
    pub(crate) fn prefetch_buffer(&self, entry: u16) {
        if let Ok(head) = self.head(entry) {
            self.memory.prefetch(self.descriptor(head).at);
        }
    }

    /// `number` is below the ring's size.
    #[inline]
    fn descriptor(&self, number: u16) -> Descriptor {
        let at = self.descriptors.at + 16 * usize::from(number);
        let mapping = self.descriptors.region.mapping();
        let first = mapping.u64(at).load(Ordering::Relaxed);
        Descriptor::from_words(first, mapping.u64(at + 8).load(Ordering::Relaxed))
    }

    /// Walks the chain that begins with `head`, which is below the ring's size.
    #[inline]
    pub(crate) fn walk(&self, head: u16) -> Walk<'_> {
        Walk { ring: self, table: None, next: Some(head), left: CHAIN }
    }

    /// Writes a used entry, which the guest sees after [`Self::show`].
    #[inline]
    pub(crate) fn set_used(&self, entry: u16, head: u16, bytes: u32) {
        let at = self.used.at + 4 + 8 * usize::from(entry & (self.size - 1));
        let mapping = self.used.region.mapping();
        mapping.u32(at).store(u32::from(head).to_le(), Ordering::Relaxed);
        mapping.u32(at + 4).store(bytes.to_le(), Ordering::Relaxed);
    }

    /// Shows the guest the used entries up to `next`. Returns whether the guest wants to be called.
    #[inline]
    pub(crate) fn show(&mut self, next: u16) -> bool {
        if self.shown == next {
            return false;
        }
        let before = std::mem::replace(&mut self.shown, next);
        // Release: the used entries, and what was written into buffers, precede this store.
        self.used.u16(2).store(next.to_le(), Ordering::Release);
        // The guest allows calls and then looks at the index; this side does so in the other order.
        fence(Ordering::SeqCst);
        if self.rules.event_index {
            let at = 4 + 2 * usize::from(self.size);
            let event = u16::from_le(self.available.u16(at).load(Ordering::Relaxed));
            next.wrapping_sub(event).wrapping_sub(1) < next.wrapping_sub(before)
        } else {
            u16::from_le(self.available.u16(0).load(Ordering::Relaxed)) & NO_INTERRUPT == 0
        }
    }
}

/// A table of descriptors in a guest's buffer.
#[derive(Clone, Copy, Debug)]
struct Table {
    at: u64,
    count: u16,
}

/// The descriptors of a chain, each read once.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    ring: &'a Ring,
    /// The indirect table, if the walk is in one.
    table: Option<Table>,
    next: Option<u16>,
    left: u16,
}

impl Walk<'_> {
    /// Descriptors that were read.
    #[inline]
    pub(crate) const fn count(&self) -> u16 {
        CHAIN - self.left
    }

    /// The next descriptor of a buffer; `None` at the end of the chain.
    ///
    /// # Errors
    /// When the chain breaks the rules.
    #[inline]
    pub(crate) fn step(&mut self) -> Result<Option<Descriptor>, Violation> {
        let Some(number) = self.next else { return Ok(None) };
        let Some(left) = self.left.checked_sub(1) else {
            return Err(Violation::Chain { most: CHAIN });
        };
        self.left = left;
        let d = match self.table {
            None => self.ring.descriptor(number),
            Some(table) => self.indirect(table, number)?,
        };
        if d.flags & INDIRECT != 0 {
            return self.enter(d);
        }
        self.next = None;
        if d.flags & NEXT != 0 {
            let count = self.table.map_or(self.ring.size, |table| table.count);
            if d.next >= count {
                return Err(Violation::Number { number: d.next, count });
            }
            self.next = Some(d.next);
        }
        Ok(Some(d))
    }

    /// Continues in the table that an indirect descriptor names.
    fn enter(&mut self, d: Descriptor) -> Result<Option<Descriptor>, Violation> {
        let wrong = |why| Err(Violation::Indirect(why));
        if !self.ring.rules.indirect {
            return wrong("it was not negotiated");
        }
        if self.table.is_some() {
            return wrong("it is in a table itself");
        }
        if d.flags & NEXT != 0 {
            return wrong("another one follows it");
        }
        let count = d.len / 16;
        if !d.len.is_multiple_of(16) || count == 0 || count > LONGEST {
            return wrong("its length is not that of a table");
        }
        self.table = Some(Table { at: d.at, count: count as u16 });
        self.next = Some(0);
        self.step()
    }

    fn indirect(&self, table: Table, number: u16) -> Result<Descriptor, Violation> {
        let mut bytes = [[0; 8]; 2];
        let missing = Violation::Address { at: table.at, len: 16 * u32::from(table.count) };
        let at = table.at.checked_add(16 * u64::from(number)).ok_or(missing)?;
        if !self.ring.memory.read(at, bytes.as_flattened_mut()) {
            return Err(missing);
        }
        Ok(Descriptor::from_words(u64::from_ne_bytes(bytes[0]), u64::from_ne_bytes(bytes[1])))
    }
}
