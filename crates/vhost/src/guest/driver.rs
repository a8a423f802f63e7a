//! The memory of a guest, and the driver's side of a ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

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
pub struct DriverRing {
    size: u16,
    event_index: bool,
    /// Positions of the descriptors, the available ring and the used ring.
    parts: [usize; 3],
    /// Free descriptors.
    free: Vec<u16>,
    /// By head: the descriptors of the chain.
    chains: Vec<Vec<u16>>,
    /// The available index, and the used index that was taken.
    available: u16,
    taken: u16,
    /// The available index of the last kick.
    kicked: u16,
}

impl DriverRing {
    /// A ring of `size` entries in new memory.
    #[must_use]
    pub fn new(ram: &mut Ram, size: u16, event_index: bool) -> Self {
        let count = usize::from(size);
        let parts =
            [ram.take(16 * count, 16), ram.take(6 + 2 * count, 2), ram.take(6 + 8 * count, 4)];
        let mut ring = Self {
            size,
            event_index,
            parts,
            free: Vec::new(),
            chains: Vec::new(),
            available: 0,
            taken: 0,
            kicked: 0,
        };
        ring.reset(ram);
        ring
    }

    /// Empties the ring, as a driver does after it has reset its device.
    pub fn reset(&mut self, ram: &Ram) {
        let count = usize::from(self.size);
        let [descriptors, available, used] = self.parts;
        ram.write(descriptors, &vec![0; 16 * count]);
        ram.write(available, &vec![0; 6 + 2 * count]);
        ram.write(used, &vec![0; 6 + 8 * count]);
        self.free = (0..self.size).rev().collect();
        self.chains = vec![Vec::new(); count];
        (self.available, self.taken, self.kicked) = (0, 0, 0);
    }

    /// Entries of the ring.
    #[must_use]
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// Positions of the descriptors, the available ring and the used ring.
    #[must_use]
    pub const fn parts(&self) -> [usize; 3] {
        self.parts
    }

    /// Free descriptors.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    fn set_descriptor(ram: &Ram, at: usize, buffer: (u64, usize), flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&buffer.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&(buffer.1 as u32).to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        ram.write(at, &bytes);
    }

    /// Makes a chain of buffers available; in the table at `table`, if there is one. Returns its head, or
    /// `None` if too few descriptors are free.
    pub fn add(&mut self, ram: &Ram, buffers: &[Buffer], table: Option<usize>) -> Option<u16> {
        let needed = if table.is_some() { 1 } else { buffers.len() };
        if self.free.len() < needed || buffers.is_empty() {
            return None;
        }
        let own: Vec<u16> = (0..needed).filter_map(|_| self.free.pop()).collect();
        let of = |number: usize| match table {
            Some(at) => (at + 16 * number, number as u16 + 1),
            None => {
                let next = own.get(number + 1).copied().unwrap_or_default();
                (self.parts[0] + 16 * usize::from(own[number]), next)
            }
        };
        for (number, buffer) in buffers.iter().enumerate() {
            let (at, next) = of(number);
            let flags =
                u16::from(number + 1 < buffers.len()) | u16::from(buffer.is_for_writing) << 1;
            Self::set_descriptor(ram, at, (ram.guest(buffer.at), buffer.len), flags, next);
        }
        let head = own[0];
        if let Some(table) = table {
            let at = self.parts[0] + 16 * usize::from(head);
            Self::set_descriptor(ram, at, (ram.guest(table), 16 * buffers.len()), 4, 0);
        }
        self.chains[usize::from(head)] = own;
        let entry = usize::from(self.available % self.size);
        ram.write(self.parts[1] + 4 + 2 * entry, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        ram.mapping.u16(self.parts[1] + 2).store(self.available.to_le(), Ordering::Release);
        Some(head)
    }

    /// Whether the device wants a kick for what was made available since the last call.
    pub fn wants_kick(&mut self, ram: &Ram) -> bool {
        fence(Ordering::SeqCst);
        let (old, new) = (std::mem::replace(&mut self.kicked, self.available), self.available);
        let used = self.parts[2];
        if self.event_index {
            let at = used + 4 + 8 * usize::from(self.size);
            let event = u16::from_le(ram.mapping.u16(at).load(Ordering::Acquire));
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            old != new && u16::from_le(ram.mapping.u16(used).load(Ordering::Acquire)) & 1 == 0
        }
    }

    /// The next chain that the device has used: its head, and the bytes that it wrote.
    ///
    /// # Panics
    /// When the device returns a chain that it has not got.
    pub fn used(&mut self, ram: &Ram) -> Option<(u16, usize)> {
        let at = self.parts[2];
        let index = u16::from_le(ram.mapping.u16(at + 2).load(Ordering::Acquire));
        if index == self.taken {
            return None;
        }
        let mut bytes = [0; 8];
        ram.read(at + 4 + 8 * usize::from(self.taken % self.size), &mut bytes);
        let [a, b, c, d, len @ ..] = bytes;
        let (head, len) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(len));
        self.taken = self.taken.wrapping_add(1);
        let chain = std::mem::take(&mut self.chains[head as usize]);
        assert!(!chain.is_empty(), "the device returned chain {head}, which it has not got");
        self.free.extend(chain);
        if self.event_index {
            // Call about the next one.
            let event = self.parts[1] + 4 + 2 * usize::from(self.size);
            ram.mapping.u16(event).store(self.taken.to_le(), Ordering::Release);
            fence(Ordering::SeqCst);
        }
        Some((head as u16, len as usize))
    }
}
