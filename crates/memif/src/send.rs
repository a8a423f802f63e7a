//! The transmitting half of a queue.

use std::sync::atomic::Ordering;

use flowyard_mem::Access;

use crate::buffers::{Buffers, Prefetcher};
use crate::ring::{Descriptor, NEXT, Ring, Violation, violation};

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is in the ring.
    Done,
    /// The ring has no room for it now.
    Full,
    /// It is longer than what all buffers of the ring hold.
    TooLong,
}

/// Transmits into one ring: `begin`, then `write` each frame, then `finish`.
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    buffers: Buffers,
    /// The slot that is filled next.
    next: u16,
    /// The first slot that may not be filled, as `begin` saw it.
    end: u16,
    prefetcher: Prefetcher,
    /// What `finish` has published.
    published: u16,
}

impl Sender {
    pub(crate) fn new(ring: Ring, buffers: Buffers) -> Self {
        let next = match buffers {
            Buffers::Named(_) => ring.tail().load(Ordering::Acquire),
            Buffers::Own { .. } => 0,
        };
        let prefetcher = Prefetcher::new(Access::Write, next);
        Self { ring, buffers, next, end: next, prefetcher, published: next }
    }

    /// Looks for empty slots, unless `wanted` of them are known; returns how many are known now. The peer changes its index
    /// with each batch, so a look takes the time in which a cache line comes from another core.
    ///
    /// # Errors
    /// When the peer's index is not possible.
    #[inline]
    pub fn begin(&mut self, wanted: u16) -> Result<u16, Violation> {
        if self.end.wrapping_sub(self.next) < wanted {
            self.look()?;
        }
        self.prefetcher.begin(&self.ring, self.next);
        self.prefetcher.advance(&self.ring, &self.buffers, self.next, self.end);
        Ok(self.end.wrapping_sub(self.next))
    }

    /// Reads the peer's index, which never goes back.
    fn look(&mut self) -> Result<(), Violation> {
        let end = match self.buffers {
            Buffers::Named(_) => self.ring.head().load(Ordering::Acquire),
            Buffers::Own { .. } => {
                self.ring.tail().load(Ordering::Acquire).wrapping_add(self.ring.size)
            }
        };
        let (room, size) = (end.wrapping_sub(self.next), self.ring.size);
        if room > size || room < self.end.wrapping_sub(self.next) {
            return violation(format!("{room} slots of a ring with {size} are empty"));
        }
        self.end = end;
        Ok(())
    }

    /// Copies `frame` into the ring, over several buffers if it is longer than one.
    ///
    /// # Errors
    /// When a descriptor is not possible.
    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> Result<Sent, Violation> {
        let (mut at, mut rest) = (self.next, frame);
        loop {
            if at == self.end {
                // The frame needs more slots than are known.
                self.look()?;
            }
            if at == self.end {
                let is_all = at.wrapping_sub(self.next) == self.ring.size;
                return Ok(if is_all { Sent::TooLong } else { Sent::Full });
            }
            let d = match self.buffers {
                Buffers::Named(_) => self.ring.descriptor(at),
                Buffers::Own { .. } => self.buffers.empty(at),
            };
            if d.length == 0 {
                return violation("a buffer has no room");
            }
            let (region, place) = self.buffers.locate(at, d)?;
            let (part, left) = rest.split_at(rest.len().min(d.length as usize));
            if !region.write(place, part) {
                return violation("a buffer is outside of its region");
            }
            let flags = if left.is_empty() { 0 } else { NEXT };
            self.ring.set_descriptor(at, Descriptor { flags, length: part.len() as u32, ..d });
            (at, rest) = (at.wrapping_add(1), left);
            if rest.is_empty() {
                self.next = at;
                self.prefetcher.advance(&self.ring, &self.buffers, self.next, self.end);
                return Ok(Sent::Done);
            }
        }
    }

    /// Shows the peer what was written. Returns whether that was anything: then the peer must be woken if it sleeps.
    #[inline]
    #[must_use]
    pub fn finish(&mut self) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        let index = match self.buffers {
            Buffers::Named(_) => self.ring.tail(),
            Buffers::Own { .. } => self.ring.head(),
        };
        // Release: what was written precedes this store.
        index.store(self.next, Ordering::Release);
        true
    }

    pub(crate) fn ring(&self) -> Ring {
        self.ring.clone()
    }
}
