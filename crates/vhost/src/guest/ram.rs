//! The memory of a guest.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

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

    pub(crate) fn regions(&self) -> Vec<Region> {
        self.places().into_iter().map(|place| Region::map(place, &self.file).unwrap()).collect()
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
