//! The driver's side of a ring of either layout.

use super::Agreed;
use super::packed::PackedRing;
use super::ram::{Buffer, Ram};
use super::split::SplitRing;

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
    /// When the device returns a chain that it has not got, or another one than the first that it got.
    pub fn used(&mut self, ram: &Ram) -> Option<(u16, usize)> {
        with!(self, ring => ring.used(ram))
    }
}
