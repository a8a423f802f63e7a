//! Where a client puts rings and buffers in its memory.
//!
//! ```text
//!  region 0: | rings to the server | rings to the client | buffers of ring 0 | buffers of ring 1 | ...
//! ```
//!
//! Slot i of a ring always has buffer i of that ring, so the client needs nothing that the server has written to
//! find a buffer.

use crate::message::AddRing;
use crate::ring;

/// The places of rings and buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Rings to the server, and to the client.
    pub rings: (u16, u16),
    /// The descriptors of a ring, as a power of two.
    pub log2_ring: u8,
    /// The bytes of a buffer.
    pub buffer_bytes: u32,
}

impl Layout {
    const fn size(&self) -> usize {
        1 << self.log2_ring
    }

    /// A ring in whole cache lines.
    const fn ring_bytes(&self) -> usize {
        ring::bytes(self.size()).next_multiple_of(64)
    }

    const fn all_rings(&self) -> usize {
        self.rings.0 as usize + self.rings.1 as usize
    }

    const fn number(&self, to_server: bool, index: u16) -> usize {
        if to_server { index as usize } else { self.rings.0 as usize + index as usize }
    }

    const fn stride(&self) -> usize {
        (self.buffer_bytes as usize).next_multiple_of(64)
    }

    const fn buffers(&self) -> usize {
        (self.all_rings() * self.ring_bytes()).next_multiple_of(4096)
    }

    /// The bytes of the region; `None` if offsets of 32 bits do not reach all of it.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        let buffers = self.all_rings().checked_mul(self.size())?.checked_mul(self.stride())?;
        let all = self.buffers().checked_add(buffers)?.next_multiple_of(4096);
        u32::try_from(all).is_ok().then_some(all)
    }

    /// The ring with this number in its direction.
    #[must_use]
    pub const fn ring(&self, to_server: bool, index: u16) -> AddRing {
        let offset = self.number(to_server, index) * self.ring_bytes();
        let (log2_ring, offset) = (self.log2_ring, offset as u32);
        AddRing { to_server, index, region: 0, offset, log2_ring, private: 0 }
    }

    /// Where the buffer of a slot begins.
    #[must_use]
    pub const fn buffer(&self, to_server: bool, index: u16, slot: u16) -> u32 {
        let slot = slot as usize & (self.size() - 1);
        let buffer = self.number(to_server, index) * self.size() + slot;
        (self.buffers() + buffer * self.stride()) as u32
    }
}
