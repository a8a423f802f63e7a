//! The driver's side of a packed ring.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{Ordering, fence};

use super::ram::{Buffer, Ram};

/// Bits of a descriptor's flags.
const AVAIL: u16 = 0x80;
const USED: u16 = 0x8000;

/// The driver's side of a packed ring.
#[derive(Debug)]
pub struct PackedRing {
    pub(super) size: u16,
    event_index: bool,
    /// Positions of the descriptors, the driver area and the device area.
    pub(super) parts: [usize; 3],
    /// Descriptors that the device has got and not returned.
    taken: u16,
    /// The identifiers that the device has, with the number of descriptors of each.
    chains: BTreeMap<u16, u16>,
    /// Identifiers that the device has, in the order in which it must return them (VIRTIO_F_IN_ORDER).
    order: VecDeque<u16>,
    /// Identifiers that are free.
    free: Vec<u16>,
    /// Where the next chain is made available, and where the next one will be used.
    add: Place,
    take: Place,
    /// Descriptors that were made available since the last kick.
    fresh: u16,
}

/// A place in a ring, and how often it has passed the end.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    slot: u16,
    laps: u32,
}

impl Place {
    fn forward(&mut self, count: u16, size: u16) {
        for _ in 0..count {
            self.slot += 1;
            if self.slot == size {
                *self = Self { slot: 0, laps: self.laps + 1 };
            }
        }
    }

    /// The wrap counter: 1 in the first lap.
    const fn wrap(self) -> bool {
        self.laps.is_multiple_of(2)
    }

    /// As it is written into an event: descriptor, and the wrap counter in bit 15.
    fn event(self) -> u16 {
        self.slot | u16::from(self.wrap()) << 15
    }
}

impl PackedRing {
    /// A ring of `size` descriptors in new memory.
    pub(super) fn new(ram: &mut Ram, size: u16, event_index: bool) -> Self {
        let parts = [ram.take(16 * usize::from(size), 16), ram.take(4, 4), ram.take(4, 4)];
        let mut ring = Self {
            size,
            event_index,
            parts,
            taken: 0,
            chains: BTreeMap::new(),
            order: VecDeque::new(),
            free: Vec::new(),
            add: Place::default(),
            take: Place::default(),
            fresh: 0,
        };
        ring.reset(ram);
        ring
    }

    /// Empties the ring, as a driver does after it has reset its device.
    pub(super) fn reset(&mut self, ram: &Ram) {
        ram.write(self.parts[0], &vec![0; 16 * usize::from(self.size)]);
        ram.write(self.parts[1], &[0; 4]);
        ram.write(self.parts[2], &[0; 4]);
        self.chains.clear();
        self.order.clear();
        self.free = (0..self.size).collect();
        (self.taken, self.fresh) = (0, 0);
        (self.add, self.take) = (Place::default(), Place::default());
    }

    /// Free descriptors.
    pub(super) fn free(&self) -> usize {
        usize::from(self.size - self.taken)
    }

    /// A descriptor without its flags.
    fn write(ram: &Ram, at: usize, buffer: (u64, usize), id: u16) {
        ram.write(at, &buffer.0.to_le_bytes());
        ram.write(at + 8, &(buffer.1 as u32).to_le_bytes());
        ram.write(at + 12, &id.to_le_bytes());
    }

    /// See [`super::DriverRing::add`].
    pub(super) fn add(
        &mut self,
        ram: &Ram,
        buffers: &[Buffer],
        table: Option<usize>,
    ) -> Option<u16> {
        let needed = if table.is_some() { 1 } else { buffers.len() };
        if self.free() < needed || buffers.is_empty() {
            return None;
        }
        let id = self.free.pop()?;
        if let Some(table) = table {
            for (number, buffer) in buffers.iter().enumerate() {
                let at = table + 16 * number;
                Self::write(ram, at, (ram.guest(buffer.at), buffer.len), 0);
                ram.write(at + 14, &(u16::from(buffer.is_for_writing) << 1).to_le_bytes());
            }
        }
        let mut at = self.add;
        let mut flags = Vec::new();
        for number in 0..needed {
            let place = self.parts[0] + 16 * usize::from(at.slot);
            let own = if at.wrap() { AVAIL } else { USED };
            let what = if let Some(table) = table {
                Self::write(ram, place, (ram.guest(table), 16 * buffers.len()), id);
                4
            } else {
                let buffer = buffers[number];
                // Only the last one's identifier counts.
                let id = if number + 1 == needed { id } else { 0xFFFF };
                Self::write(ram, place, (ram.guest(buffer.at), buffer.len), id);
                u16::from(number + 1 < needed) | u16::from(buffer.is_for_writing) << 1
            };
            flags.push((place + 14, own | what));
            at.forward(1, self.size);
        }
        // The first one's flags make all of them available.
        for (place, flags) in flags.into_iter().rev() {
            ram.mapping().u16(place).store(flags.to_le(), Ordering::Release);
        }
        self.add = at;
        self.chains.insert(id, needed as u16);
        self.order.push_back(id);
        self.taken += needed as u16;
        self.fresh += needed as u16;
        Some(id)
    }

    /// See [`super::DriverRing::wants_kick`].
    pub(super) fn wants_kick(&mut self, ram: &Ram) -> bool {
        fence(Ordering::SeqCst);
        let fresh = std::mem::take(&mut self.fresh);
        let mut area = [0; 4];
        ram.read(self.parts[2], &mut area);
        match u16::from_le_bytes([area[2], area[3]]) {
            1 => false,
            0 => fresh > 0,
            other => panic!("flags {other} in the device area"),
        }
    }

    /// See [`super::DriverRing::allow_calls`].
    pub(super) fn allow_calls(&mut self, ram: &Ram) {
        ram.mapping().u16(self.parts[1] + 2).store(0, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// See [`super::DriverRing::delay_calls`].
    pub(super) fn delay_calls(&mut self, ram: &Ram, more: u16) {
        let mut at = self.take;
        at.forward(more, self.size);
        let flags: u16 = if self.event_index { 2 } else { 1 };
        ram.write(self.parts[1], &at.event().to_le_bytes());
        ram.mapping().u16(self.parts[1] + 2).store(flags.to_le(), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// See [`super::DriverRing::used`].
    ///
    /// # Panics
    /// When the device returns a chain that it has not got, or another one than the first that it got, or its flags are wrong.
    pub(super) fn used(&mut self, ram: &Ram) -> Option<(u16, usize)> {
        let place = self.parts[0] + 16 * usize::from(self.take.slot);
        let flags = u16::from_le(ram.mapping().u16(place + 14).load(Ordering::Acquire));
        let wrap = self.take.wrap();
        if self.chains.is_empty() || (flags & AVAIL != 0, flags & USED != 0) != (wrap, wrap) {
            return None;
        }
        let mut bytes = [0; 6];
        ram.read(place + 8, &mut bytes);
        let [a, b, c, d, id @ ..] = bytes;
        let (len, id) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes(id));
        let count = self.chains.remove(&id);
        let count =
            count.unwrap_or_else(|| panic!("the device returned chain {id}, which it has not got"));
        assert_eq!(self.order.pop_front(), Some(id), "the device returns chains in order");
        assert_eq!(flags & 2 != 0, len > 0, "whether something was written");
        self.take.forward(count, self.size);
        self.taken -= count;
        self.free.insert(0, id);
        if self.event_index {
            self.delay_calls(ram, 0);
        }
        Some((id, len as usize))
    }
}
