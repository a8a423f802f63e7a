//! The memory of a guest, and the driver's side of a ring of either layout.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::Agreed;
use super::packed::PackedRing;
use super::split::SplitRing;
use crate::memory::{Region, RegionPlace};
use crate::sys::Mapping;

/// The guest's address of the first byte of its memory.
const GUEST: u64 = 0x4000_0000;
/// The front end's address of the same byte.
const USER: u64 = 0x7f00_0000_0000;

/// The memory of a guest: a file, and regions of equal length that follow each other, so that a buffer may
/// lie in two.
#[derive(Debug)]
pub struct Ram {
    file: OwnedFd,
    mapping: Mapping,
    regions: u64,
    /// Bytes that were given out.
    taken: usize,
}

impl Ram {
    /// `len` bytes, in `regions` regions.
    ///
    /// # Panics
    /// When there is no memory, or a region is not of whole pages.
    #[must_use]
    pub fn new(len: usize, regions: u64) -> Self {
        assert!(len.is_multiple_of(4096 * regions as usize), "regions of whole pages");
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len as u64).unwrap();
        let mapping = Mapping::new(&file, 0, len as u64).unwrap();
        Self { file, mapping, regions, taken: 0 }
    }

    /// Makes the file shorter than its regions, as a hostile front end can.
    ///
    /// # Panics
    /// When the file cannot be truncated.
    pub fn truncate(&self) {
        ftruncate(&self.file, 0).unwrap();
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) const fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(crate) fn places(&self) -> Vec<RegionPlace> {
        let len = self.mapping.len() as u64 / self.regions;
        (0..self.regions)
            .map(|at| at * len)
            .map(|at| RegionPlace { guest: GUEST + at, len, user: USER + at, offset: at })
            .collect()
    }

    pub(crate) fn regions(&self) -> Vec<Arc<Region>> {
        self.places()
            .into_iter()
            .map(|place| Arc::new(Region::map(place, &self.file).unwrap()))
            .collect()
    }

    /// Takes `len` bytes; returns their position. The memory of a ring is aligned.
    ///
    /// # Panics
    /// When the memory is used up.
    pub fn take(&mut self, len: usize, align: usize) -> usize {
        let at = self.taken.next_multiple_of(align);
        self.taken = at + len;
        assert!(self.taken <= self.mapping.len(), "the guest has too little memory");
        at
    }

    /// The guest's address of a position.
    #[must_use]
    pub const fn guest(&self, at: usize) -> u64 {
        GUEST + at as u64
    }

    /// The front end's address of a position.
    #[must_use]
    pub const fn user(&self, at: usize) -> u64 {
        USER + at as u64
    }

    /// Writes bytes at a position.
    ///
    /// # Panics
    /// When they do not lie in the memory.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(self.mapping.write(at, bytes));
    }

    /// Reads bytes at a position.
    ///
    /// # Panics
    /// When they do not lie in the memory.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(self.mapping.read(at, bytes));
    }
}

/// A buffer of a chain: position, bytes, and whether it is for the device to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Its position in the memory.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
    /// Whether the device writes to it.
    pub is_for_writing: bool,
}

/// The driver's side of a ring.
#[derive(Debug)]
pub enum DriverRing {
    /// A split ring.
    Split(SplitRing),
    /// A packed ring.
    Packed(PackedRing),
}

/// Does with the ring, whichever it is, what is written behind it.
macro_rules! with {
    ($driver:expr, $ring:ident => $what:expr) => {
        match $driver {
            DriverRing::Split($ring) => $what,
            DriverRing::Packed($ring) => $what,
        }
    };
}

impl DriverRing {
    /// A ring of `size` entries in new memory.
    #[must_use]
    pub fn new(ram: &mut Ram, size: u16, agreed: Agreed) -> Self {
        if agreed.packed {
            Self::Packed(PackedRing::new(ram, size, agreed.event_index))
        } else {
            Self::Split(SplitRing::new(ram, size, agreed.event_index))
        }
    }

    /// Empties the ring, as a driver does after it has reset its device.
    pub fn reset(&mut self, ram: &Ram) {
        with!(self, ring => ring.reset(ram));
    }

    /// Entries of the ring.
    #[must_use]
    pub const fn size(&self) -> u16 {
        with!(self, ring => ring.size)
    }

    /// Positions of the descriptors, the available ring and the used ring; of a packed ring, of the
    /// descriptors, the driver area and the device area.
    #[must_use]
    pub const fn parts(&self) -> [usize; 3] {
        with!(self, ring => ring.parts)
    }

    /// Free descriptors.
    #[must_use]
    pub fn free(&self) -> usize {
        with!(self, ring => ring.free())
    }

    /// What the front end is to send as the base of an empty ring.
    #[must_use]
    pub const fn base(&self) -> u16 {
        match self {
            Self::Split(_) => 0,
            Self::Packed(_) => 1 << 15,
        }
    }

    /// Makes a chain of buffers available; in the table at `table`, if there is one. Returns its head or
    /// identifier, or `None` if too few descriptors are free.
    pub fn add(&mut self, ram: &Ram, buffers: &[Buffer], table: Option<usize>) -> Option<u16> {
        with!(self, ring => ring.add(ram, buffers, table))
    }

    /// Whether the device wants a kick for what was made available since the last call.
    pub fn wants_kick(&mut self, ram: &Ram) -> bool {
        with!(self, ring => ring.wants_kick(ram))
    }

    /// Asks for a call about whatever is used next.
    pub fn allow_calls(&mut self, ram: &Ram) {
        with!(self, ring => ring.allow_calls(ram));
    }

    /// Asks for a call about the chain (of a packed ring: the descriptor) that comes `more` behind the next
    /// one. Without event indices, asks for no call.
    pub fn delay_calls(&mut self, ram: &Ram, more: u16) {
        with!(self, ring => ring.delay_calls(ram, more));
    }

    /// The next chain that the device has used: its head or identifier, and the bytes that it wrote.
    ///
    /// # Panics
    /// When the device returns a chain that it has not got.
    pub fn used(&mut self, ram: &Ram) -> Option<(u16, usize)> {
        with!(self, ring => ring.used(ram))
    }
}
