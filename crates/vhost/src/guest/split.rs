//! The driver's side of a split ring.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use super::ram::{Buffer, Ram};

/// The driver's side of a split ring.
#[derive(Debug)]
pub struct SplitRing {
    pub(super) size: u16,
    event_index: bool,
    /// Positions of the descriptors, the available ring and the used ring.
    pub(super) parts: [usize; 3],
    /// Free descriptors.
    free: Vec<u16>,
    /// By head: the descriptors of the chain.
    chains: Vec<Vec<u16>>,
    /// Heads that the device has, in the order in which it must return them (VIRTIO_F_IN_ORDER).
    order: VecDeque<u16>,
    /// The available index, and the used index that was taken.
    available: u16,
    taken: u16,
    /// The available index of the last kick.
    kicked: u16,
}

impl SplitRing {
    /// A ring of `size` entries in new memory.
    pub(super) fn new(ram: &mut Ram, size: u16, event_index: bool) -> Self {
        let count = usize::from(size);
        let parts =
            [ram.take(16 * count, 16), ram.take(6 + 2 * count, 2), ram.take(6 + 8 * count, 4)];
        let mut ring = Self {
            size,
            event_index,
            parts,
            free: Vec::new(),
            chains: Vec::new(),
            order: VecDeque::new(),
            available: 0,
            taken: 0,
            kicked: 0,
        };
        ring.reset(ram);
        ring
    }

    /// Empties the ring, as a driver does after it has reset its device.
    pub(super) fn reset(&mut self, ram: &Ram) {
        let count = usize::from(self.size);
        let [descriptors, available, used] = self.parts;
        ram.write(descriptors, &vec![0; 16 * count]);
        ram.write(available, &vec![0; 6 + 2 * count]);
        ram.write(used, &vec![0; 6 + 8 * count]);
        self.free = (0..self.size).rev().collect();
        self.chains = vec![Vec::new(); count];
        self.order.clear();
        (self.available, self.taken, self.kicked) = (0, 0, 0);
    }

    /// Free descriptors.
    pub(super) fn free(&self) -> usize {
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
    pub(super) fn add(
        &mut self,
        ram: &Ram,
        buffers: &[Buffer],
        table: Option<usize>,
    ) -> Option<u16> {
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
        self.order.push_back(head);
        let entry = usize::from(self.available % self.size);
        ram.write(self.parts[1] + 4 + 2 * entry, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        ram.mapping().u16(self.parts[1] + 2).store(self.available.to_le(), Ordering::Release);
        Some(head)
    }

    /// Whether the device wants a kick for what was made available since the last call.
    pub(super) fn wants_kick(&mut self, ram: &Ram) -> bool {
        fence(Ordering::SeqCst);
        let (old, new) = (std::mem::replace(&mut self.kicked, self.available), self.available);
        let used = self.parts[2];
        if self.event_index {
            let at = used + 4 + 8 * usize::from(self.size);
            let event = u16::from_le(ram.mapping().u16(at).load(Ordering::Acquire));
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            old != new && u16::from_le(ram.mapping().u16(used).load(Ordering::Acquire)) & 1 == 0
        }
    }

    /// See [`super::DriverRing::allow_calls`].
    pub(super) fn allow_calls(&mut self, ram: &Ram) {
        if self.event_index {
            self.delay_calls(ram, 0);
        } else {
            ram.mapping().u16(self.parts[1]).store(0, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }

    /// See [`super::DriverRing::delay_calls`].
    pub(super) fn delay_calls(&mut self, ram: &Ram, more: u16) {
        if self.event_index {
            let event = self.parts[1] + 4 + 2 * usize::from(self.size);
            let at = self.taken.wrapping_add(more);
            ram.mapping().u16(event).store(at.to_le(), Ordering::Release);
        } else {
            ram.mapping().u16(self.parts[1]).store(1_u16.to_le(), Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    /// The next chain that the device has used: its head, and the bytes that it wrote.
    ///
    /// # Panics
    /// When the device returns a chain that it has not got, or another one than the first that it got.
    pub(super) fn used(&mut self, ram: &Ram) -> Option<(u16, usize)> {
        let at = self.parts[2];
        let index = u16::from_le(ram.mapping().u16(at + 2).load(Ordering::Acquire));
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
        let first = self.order.pop_front();
        assert_eq!(first.map(u32::from), Some(head), "the device returns chains in order");
        self.free.extend(chain);
        if self.event_index {
            // Call about the next one.
            let event = self.parts[1] + 4 + 2 * usize::from(self.size);
            ram.mapping().u16(event).store(self.taken.to_le(), Ordering::Release);
            fence(Ordering::SeqCst);
        }
        Some((head as u16, len as usize))
    }
}
