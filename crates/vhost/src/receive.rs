//! The receiving half of a queue: frames that the guest transmits.

use crate::ring::Ring;
use crate::violation::Violation;

/// The most descriptors that are read in one burst, besides those of the last frame.
const BURST: u16 = 512;

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
///
/// Thread-safety: belongs to one thread.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    /// The number of the ring at its port.
    number: u16,
    /// Whether the guest has disabled the queue: its frames are taken and dropped, as the protocol demands.
    is_disabled: bool,
    /// The entry that is read next.
    next: u16,
    /// The first entry without a frame, as `begin` saw it.
    end: u16,
    /// Descriptors that may be read in this burst.
    left: u16,
}

impl Receiver {
    pub(crate) fn new(mut ring: Ring, number: u16, is_disabled: bool) -> Self {
        let next = ring.start();
        Self { ring, number, is_disabled, next, end: next, left: 0 }
    }

    /// The number of the ring at its port.
    #[inline]
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Looks for frames; returns in how many entries there are some.
    ///
    /// # Errors
    /// When the guest's index is not possible, or its memory is lost.
    #[inline]
    pub fn begin(&mut self) -> Result<u16, Violation> {
        self.end = self.ring.end(self.next)?;
        self.left = BURST;
        if self.is_disabled {
            self.discard()?;
        }
        let waiting = self.end.wrapping_sub(self.next);
        if waiting > 0 {
            self.ring.prefetch_buffer(self.next);
        }
        Ok(waiting)
    }

    /// Returns the buffers of a disabled queue.
    #[cold]
    fn discard(&mut self) -> Result<(), Violation> {
        while self.next != self.end {
            let head = self.ring.head(self.next)?;
            self.ring.set_used(self.next, head, 0);
            self.next = self.next.wrapping_add(1);
        }
        Ok(())
    }

    /// Copies the next frame, without the header of virtio-net, into `to`. `None`: nothing is left in this
    /// burst.
    ///
    /// # Errors
    /// When a chain of descriptors breaks the rules.
    #[inline]
    pub fn read(&mut self, to: &mut [u8]) -> Result<Option<Got>, Violation> {
        if self.next == self.end || self.left == 0 {
            return Ok(None);
        }
        let head = self.ring.head(self.next)?;
        if self.end.wrapping_sub(self.next) > 2 {
            self.ring.prefetch(self.next.wrapping_add(2));
        }
        let header = self.ring.rules.header();
        let (mut skip, mut len, mut fits) = (header, 0_usize, true);
        let mut walk = self.ring.walk(head);
        while let Some(d) = walk.step()? {
            if d.is_for_writing() {
                return Err(Violation::Direction { transmits: true });
            }
            let outside = Violation::Address { at: d.at, len: d.len };
            let skipped = skip.min(d.len as usize);
            let count = d.len as usize - skipped;
            skip -= skipped;
            if count == 0 {
                continue;
            }
            let at = d.at.checked_add(skipped as u64).ok_or(outside)?;
            fits &= to.len() - len.min(to.len()) >= count;
            let is_there = if fits {
                self.ring.memory.read(at, &mut to[len..len + count])
            } else {
                self.ring.memory.has(at, count)
            };
            if !is_there {
                return Err(outside);
            }
            len += count;
        }
        if skip > 0 {
            return Err(Violation::Header { header: header as u16 });
        }
        self.left = self.left.saturating_sub(walk.count());
        self.ring.set_used(self.next, head, 0);
        self.next = self.next.wrapping_add(1);
        if self.next != self.end {
            self.ring.prefetch_buffer(self.next);
        }
        Ok(Some(match (fits, len) {
            (_, 0) => Got::Empty,
            (true, len) => Got::Frame(len),
            (false, _) => Got::TooLong,
        }))
    }

    /// Gives the buffers of the frames that were read back to the guest. Returns whether it wants to be
    /// called.
    #[inline]
    #[must_use]
    pub fn finish(&mut self) -> bool {
        self.ring.show(self.next)
    }
}
