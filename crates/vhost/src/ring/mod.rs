//! A ring of virtio in a guest's memory: what both layouts have in common, and the walk along a chain of
//! descriptors.
//!
//! ```text
//!  Reader, Writer ── Cursor ──> Ring: Split or Packed ── Walk ──> descriptors, indirect tables
//! ```
//!
//! Invariants: everything that the guest writes is read once, and checked before it is used. A chain has at
//! most [`CHAIN`] descriptors.
//! Source: Virtual I/O Device (VIRTIO) version 1.2, sections 2.7 and 2.8.

mod packed;
mod split;

use std::sync::Arc;

use flowyard_mem::Access;

use crate::memory::{Memory, UNKNOWN};
use crate::sys::{Integer, Integers};
use crate::violation::Violation;

pub(crate) use packed::Packed;
pub(crate) use split::Split;

/// The most descriptors of a chain: no frame needs more.
pub(crate) const CHAIN: u16 = 256;
/// How many entries ahead of their use buffers are prefetched. Descriptors are prefetched twice as far ahead, because they name
/// the buffers.
const AHEAD: u16 = 16;
/// The bytes of the header of virtio-net, without and with the number of chains.
pub(crate) const SHORT_HEADER: usize = 10;
pub(crate) const LONG_HEADER: usize = 12;
/// The most entries of a ring.
const LONGEST: u32 = 32_768;

/// Flag of a descriptor: the chain continues.
const NEXT: u16 = 1;
/// Flag of a descriptor: for writing by the device.
const WRITE: u16 = 2;
/// Flag of a descriptor: a table of descriptors is in its place.
const INDIRECT: u16 = 4;

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
    /// VIRTIO_F_RING_PACKED.
    pub packed: bool,
}

impl Rules {
    /// The bytes of the header in front of a frame.
    pub(crate) const fn header(self) -> usize {
        if self.mergeable || self.modern { LONG_HEADER } else { SHORT_HEADER }
    }
}

/// Where a ring is: addresses in the front end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RingPlace {
    /// The number of its entries.
    pub size: u32,
    /// The descriptors.
    pub descriptors: u64,
    /// The available ring; of a packed ring, the area of the driver.
    pub available: u64,
    /// The used ring; of a packed ring, the area of the device.
    pub used: u64,
    /// Where the front end wants the ring to begin: the message VHOST_USER_SET_VRING_BASE. `None`: it has
    /// not said so.
    pub base: Option<u32>,
}

/// A descriptor, as it was read once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Descriptor {
    pub(crate) at: u64,
    pub(crate) len: u32,
    flags: u16,
    /// Of a split ring, the descriptor that follows; of a packed ring, the identifier of the chain.
    number: u16,
}

impl Descriptor {
    /// Whether it is for writing by us.
    #[inline]
    pub(crate) const fn is_for_writing(self) -> bool {
        self.flags & WRITE != 0
    }
}

/// A position in a ring, and how many entries from there on are known to be available.
///
/// It is one integer, because it is stored and loaded for each frame: a load that spans two stores waits until both have left
/// the store buffer, behind stores to lines of the guest's core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor(u32);

impl Cursor {
    #[inline]
    pub(crate) const fn new(at: u16, ahead: u16) -> Self {
        Self((ahead as u32) << 16 | at as u32)
    }

    /// Of a split ring, the number of the next entry. Of a packed ring, the next descriptor, and the wrap counter in bit 15.
    #[inline]
    const fn at(self) -> u16 {
        self.0 as u16
    }

    /// Entries (of a packed ring: descriptors) from there on that are known to be available.
    #[inline]
    pub(crate) const fn ahead(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The same position, from which `ahead` entries are available.
    #[inline]
    pub(crate) const fn with_ahead(self, ahead: u16) -> Self {
        Self::new(self.at(), ahead)
    }

    /// The cursor after it has passed `entries` entries; `at` is the position that follows them.
    #[inline]
    const fn moved(self, at: u16, entries: u16) -> Self {
        Self::new(at, self.ahead().saturating_sub(entries))
    }
}

/// A chain of buffers, as the guest gets it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    /// How the guest names it.
    id: u16,
    /// Entries of the ring that it takes.
    slots: u16,
}

/// What rings of both layouts have.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) memory: Arc<Memory>,
    pub(crate) size: u16,
    pub(crate) rules: Rules,
    losses: u64,
}

impl Common {
    /// # Errors
    /// When the size is not possible.
    fn new(memory: &Arc<Memory>, place: RingPlace, rules: Rules) -> Result<Self, Violation> {
        let is_possible = rules.packed || place.size.is_power_of_two();
        if !is_possible || place.size == 0 || place.size > LONGEST {
            return Err(Violation::Size(place.size));
        }
        let memory = Arc::clone(memory);
        Ok(Self { memory, size: place.size as u16, rules, losses: UNKNOWN })
    }

    /// The `count` integers of a part of the ring, whose first is at `at`.
    ///
    /// # Errors
    /// When they do not lie in one region, or are not aligned.
    fn part<T: Integer>(
        &self,
        part: &'static str,
        at: u64,
        count: usize,
    ) -> Result<Integers<T>, Violation> {
        let missing = Violation::Place { part, at, size: self.size.into() };
        let (region, at) = self.memory.find_user(at, count * size_of::<T>()).ok_or(missing)?;
        Integers::new(region.mapping(), at, count).ok_or(missing)
    }

    /// # Errors
    /// When the memory is lost.
    #[inline]
    fn check(&mut self) -> Result<(), Violation> {
        if self.memory.is_lost(&mut self.losses) { Err(Violation::Lost) } else { Ok(()) }
    }
}

/// A ring of one of the two layouts.
pub(crate) trait Ring: Sized {
    /// Whether what [`Walk::end`] returns is known only at the end of the chain.
    const IS_KNOWN_AT_END: bool;

    /// The ring at `place`.
    ///
    /// # Errors
    /// When its size is not possible, or a part of it does not lie in memory.
    fn new(memory: &Arc<Memory>, place: RingPlace, rules: Rules) -> Result<Self, Violation>;

    fn common(&self) -> &Common;

    /// Asks for no kicks. Returns where the ring begins.
    fn start(&mut self) -> Cursor;

    /// Leaves the ring to others. Returns the base that the front end receives.
    fn stop(self) -> u32;

    /// Finds out how many entries the guest has made available.
    ///
    /// # Errors
    /// When the guest's index is not possible, or its memory is lost.
    fn look(&mut self, cursor: &mut Cursor) -> Result<(), Violation>;

    /// The number of the first descriptor of the chain at `cursor`, where there is one.
    ///
    /// # Errors
    /// When there is no such descriptor.
    fn head(&self, cursor: Cursor) -> Result<u16, Violation>;

    /// Reads the descriptor with this number, which is below the ring's size, and counts it as one of `chain`.
    /// Also returns the number of the one that follows.
    ///
    /// # Errors
    /// When the chain breaks the rules.
    fn take(&self, number: u16, chain: &mut Chain) -> Result<(Descriptor, Option<u16>), Violation>;

    /// The descriptor in two words of memory.
    fn descriptor(first: u64, second: u64) -> Descriptor;

    /// The number of the descriptor that follows `d` in an indirect table of `count`.
    ///
    /// # Errors
    /// When it does not exist.
    fn following(d: Descriptor, number: u16, count: u16) -> Result<Option<u16>, Violation>;

    /// Moves the cursor behind a chain.
    fn pass(&self, cursor: &mut Cursor, chain: Chain);

    /// Gives the chain at `cursor` back, which the guest sees after [`Self::show`].
    fn set_used(&mut self, cursor: Cursor, chain: Chain, bytes: u32);

    /// Shows the guest what it was given back in front of `cursor`. Returns whether that was anything.
    fn show(&mut self, cursor: Cursor) -> bool;

    /// Whether the guest wants to be called about something that it was shown since the last call of this function.
    fn wants_call(&mut self) -> bool;

    /// Prefetches the place that [`Self::show`] will write, if it is in a cache line of its own.
    fn prefetch_index(&self) {}

    /// Prefetches the first descriptor of the entry that is `entry` entries behind `cursor`, and the place that marks it as used.
    fn prefetch_descriptor(&self, cursor: Cursor, entry: u16);

    /// Prefetches the beginning of the buffer of that entry. The descriptor is read for this, and again when it is used.
    fn prefetch_buffer(&self, cursor: Cursor, entry: u16, access: Access);

    /// The chain at `cursor`, where there is one, and its descriptor, if it has only one, which names no table. Nearly every
    /// chain is like that.
    ///
    /// # Errors
    /// When there is no such descriptor.
    #[inline]
    fn single(&self, cursor: Cursor) -> Result<Option<(Descriptor, Chain)>, Violation> {
        let head = self.head(cursor)?;
        let mut chain = Chain { id: head, slots: 0 };
        let (d, next) = self.take(head, &mut chain)?;
        Ok((next.is_none() && d.flags & INDIRECT == 0).then_some((d, chain)))
    }

    /// Walks the chain at `cursor`, where there is one.
    ///
    /// # Errors
    /// When there is no such descriptor.
    #[inline]
    fn walk(&self, cursor: Cursor) -> Result<Walk<'_, Self>, Violation> {
        let head = self.head(cursor)?;
        let chain = Chain { id: head, slots: 0 };
        Ok(Walk { ring: self, table: None, next: Some(head), left: CHAIN, chain })
    }
}

/// Prefetches descriptors and buffers of the next entries of a ring. The guest has written them on another core, so each is a
/// cache miss; these misses overlap with the work on the entries before.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    /// Entries from the cursor on whose descriptors have been prefetched.
    descriptors: u16,
    /// Entries from the cursor on whose buffers have been prefetched.
    buffers: u16,
    /// What the buffers are used for.
    access: Access,
}

impl Prefetcher {
    pub(crate) const fn new(access: Access) -> Self {
        Self { descriptors: 0, buffers: 0, access }
    }

    /// Prefetches what has come within reach of the cursor.
    #[inline]
    pub(crate) fn advance<R: Ring>(&mut self, ring: &R, cursor: Cursor) {
        while self.descriptors < cursor.ahead().min(2 * AHEAD) {
            ring.prefetch_descriptor(cursor, self.descriptors);
            self.descriptors += 1;
        }
        while self.buffers < cursor.ahead().min(AHEAD) {
            ring.prefetch_buffer(cursor, self.buffers, self.access);
            self.buffers += 1;
        }
    }

    /// Follows the cursor, which has passed a chain, and prefetches several entries from time to time.
    #[inline]
    pub(crate) fn pass<R: Ring>(&mut self, ring: &R, cursor: Cursor, chain: Chain) {
        self.descriptors = self.descriptors.saturating_sub(chain.slots);
        self.buffers = self.buffers.saturating_sub(chain.slots);
        if self.buffers <= AHEAD / 2 {
            self.advance(ring, cursor);
        }
    }
}

/// Stops the ring at `place`. Returns its base, which is the former one if there is no such ring.
pub(crate) fn stop(memory: &Arc<Memory>, place: RingPlace, rules: Rules) -> u32 {
    let stopped = if rules.packed {
        Packed::new(memory, place, rules).map(Ring::stop)
    } else {
        Split::new(memory, place, rules).map(Ring::stop)
    };
    // Without a base, a packed ring begins in its first lap, whose wrap counters are 1.
    let first = if rules.packed { 1 << 15 | 1 << 31 } else { 0 };
    stopped.unwrap_or_else(|_| place.base.unwrap_or(first))
}

/// A table of descriptors in a guest's buffer.
#[derive(Clone, Copy, Debug)]
struct Table {
    at: u64,
    count: u16,
}

/// The descriptors of a chain, each read once.
#[derive(Debug)]
pub(crate) struct Walk<'a, R> {
    ring: &'a R,
    /// The indirect table, if the walk is in one.
    table: Option<Table>,
    next: Option<u16>,
    left: u16,
    chain: Chain,
}

impl<R: Ring> Walk<'_, R> {
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
        let (d, next) = match self.table {
            None => self.ring.take(number, &mut self.chain)?,
            Some(table) => self.indirect(table, number)?,
        };
        if d.flags & INDIRECT != 0 {
            return self.enter(d);
        }
        self.next = next;
        Ok(Some(d))
    }

    /// The chain, of which descriptors may be left that nobody needs.
    ///
    /// # Errors
    /// When the chain breaks the rules.
    #[inline]
    pub(crate) fn end(mut self) -> Result<Chain, Violation> {
        // No entry of the ring follows one that names a table.
        while R::IS_KNOWN_AT_END && self.table.is_none() && self.next.is_some() {
            self.step()?;
        }
        Ok(self.chain)
    }

    /// Continues in the table that an indirect descriptor names.
    #[cold]
    fn enter(&mut self, d: Descriptor) -> Result<Option<Descriptor>, Violation> {
        let wrong = |why| Err(Violation::Indirect(why));
        if !self.ring.common().rules.indirect {
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

    fn indirect(&self, table: Table, number: u16) -> Result<(Descriptor, Option<u16>), Violation> {
        let mut bytes = [[0; 8]; 2];
        let missing = Violation::Address { at: table.at, len: 16 * u32::from(table.count) };
        let at = table.at.checked_add(16 * u64::from(number)).ok_or(missing)?;
        if !self.ring.common().memory.read(at, bytes.as_flattened_mut()) {
            return Err(missing);
        }
        let d = R::descriptor(u64::from_ne_bytes(bytes[0]), u64::from_ne_bytes(bytes[1]));
        let next =
            if d.flags & INDIRECT == 0 { R::following(d, number, table.count)? } else { None };
        Ok((d, next))
    }
}
