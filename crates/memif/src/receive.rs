//! The receiving half of a queue.

use std::sync::atomic::Ordering;

use flowyard_mem::Access;

use crate::buffers::{Buffers, Prefetcher};
use crate::ring::{NEXT, Ring, Violation, violation};

/// A frame that was taken from a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Got {
    /// It has this many bytes, which were copied.
    Frame(usize),
    /// It is longer than the room for it.
    TooLong,
    /// It has no bytes.
    Empty,
}

/// Receives from one ring: `begin`, then `read` until nothing is left, then `finish`.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    buffers: Buffers,
    /// The slot that is read next.
    next: u16,
    /// The first slot that has no frame yet, as `begin` saw it.
    end: u16,
    prefetcher: Prefetcher,
    /// Client: the first slot that the server may not fill yet.
    given: u16,
}

impl Receiver {
    pub(crate) fn new(ring: Ring, buffers: Buffers) -> Self {
        ring.set_polled(true);
        let prefetcher = Prefetcher::new(Access::Read, 0);
        let mut new = Self { ring, buffers, next: 0, end: 0, prefetcher, given: 0 };
        match new.buffers {
            // The slots from before are not ours: the client begins with an empty ring.
            Buffers::Named(_) => {
                let tail = new.ring.tail().load(Ordering::Acquire);
                (new.next, new.end) = (tail, tail);
            }
            Buffers::Own { .. } => new.give(),
        }
        new
    }

    /// Client: the server has connected. That of DPDK sets both indices to 0 when it connects, so the empty slots are
    /// given to it again.
    pub(crate) fn give_again(&self) {
        if let Buffers::Own { .. } = self.buffers {
            self.ring.head().store(self.given, Ordering::Release);
        }
    }

    /// Looks for frames; returns in how many slots there are some.
    ///
    /// # Errors
    /// When the peer's index is not possible.
    #[inline]
    pub fn begin(&mut self) -> Result<u16, Violation> {
        let index = match self.buffers {
            Buffers::Named(_) => self.ring.head(),
            Buffers::Own { .. } => self.ring.tail(),
        };
        // The index and the first descriptors come from the other side's cache. One wait is enough for both.
        self.prefetcher.begin(&self.ring, self.next);
        // Acquire: makes visible what the peer wrote before it advanced the index.
        self.end = index.load(Ordering::Acquire);
        let waiting = self.end.wrapping_sub(self.next);
        if waiting > self.ring.size {
            let size = self.ring.size;
            return violation(format!("{waiting} slots of a ring with {size} have frames"));
        }
        self.prefetcher.advance(&self.ring, &self.buffers, self.next, self.end);
        Ok(waiting)
    }

    /// Copies the next frame to `to`; `None` if there is none.
    ///
    /// # Errors
    /// When a descriptor is not possible, or a frame has no end.
    #[inline]
    pub fn read(&mut self, to: &mut [u8]) -> Result<Option<Got>, Violation> {
        if self.next == self.end {
            return Ok(None);
        }
        let (mut at, mut len, mut fits) = (self.next, 0_usize, true);
        loop {
            let d = self.ring.descriptor(at);
            let (region, place) = self.buffers.locate(at, d)?;
            let count = d.length as usize;
            match to.get_mut(len..).and_then(|rest| rest.get_mut(..count)) {
                Some(part) if fits => fits = region.read(place, part),
                _ => fits = false,
            }
            len += count;
            at = at.wrapping_add(1);
            if d.flags & NEXT == 0 {
                break;
            }
            if at == self.end {
                return violation("a frame continues behind the last slot");
            }
        }
        self.next = at;
        self.prefetcher.advance(&self.ring, &self.buffers, self.next, self.end);
        Ok(Some(match (fits, len) {
            (_, 0) => Got::Empty,
            (true, len) => Got::Frame(len),
            (false, _) => Got::TooLong,
        }))
    }

    /// Gives the buffers of the frames that were read back to the peer.
    #[inline]
    pub fn finish(&mut self) {
        match self.buffers {
            // Release: our reads of the buffers precede this store.
            Buffers::Named(_) => self.ring.tail().store(self.next, Ordering::Release),
            Buffers::Own { .. } => self.give(),
        }
    }

    #[cfg(test)]
    pub(crate) fn ring(&self) -> Ring {
        self.ring.clone()
    }

    #[cfg(test)]
    pub(crate) const fn next_slot(&self) -> u16 {
        self.next
    }

    /// Client: all slots but those with frames are empty.
    fn give(&mut self) {
        let end = self.next.wrapping_add(self.ring.size);
        while self.given != end {
            self.ring.set_descriptor(self.given, self.buffers.empty(self.given));
            self.given = self.given.wrapping_add(1);
        }
        self.ring.head().store(end, Ordering::Release);
    }
}
