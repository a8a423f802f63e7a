//! The receiving half of a queue: frames that the guest transmits.

use std::sync::Arc;

use flowyard_mem::{Access, Pending};

use crate::memory::Memory;
use crate::ring::{Chain, Cursor, Packed, Prefetcher, Ring, RingPlace, Rules, Split};
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
    /// The number of the ring at its port.
    number: u16,
    /// Batches since the last look whether the guest wants a call.
    pending: Pending,
    layout: Layout,
}

#[derive(Debug)]
enum Layout {
    Split(Reader<Split>),
    Packed(Reader<Packed>),
}

/// Does with the reader, whichever it is, what is written behind it.
macro_rules! with {
    ($receiver:expr, $reader:ident => $what:expr) => {
        match &mut $receiver.layout {
            Layout::Split($reader) => $what,
            Layout::Packed($reader) => $what,
        }
    };
}

impl Receiver {
    pub(crate) fn new(
        memory: &Arc<Memory>,
        place: RingPlace,
        rules: Rules,
        number: u16,
        is_disabled: bool,
    ) -> Result<Self, Violation> {
        let layout = if rules.packed {
            Layout::Packed(Reader::new(Packed::new(memory, place, rules)?, is_disabled))
        } else {
            Layout::Split(Reader::new(Split::new(memory, place, rules)?, is_disabled))
        };
        Ok(Self { number, pending: Pending::default(), layout })
    }

    /// The number of the ring at its port.
    #[inline]
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Looks for frames. Returns in how many entries there are some, which are descriptors in a packed ring: no
    /// more frames than these are read in this burst.
    ///
    /// # Errors
    /// When the guest's index is not possible, or its memory is lost.
    #[inline]
    pub fn begin(&mut self) -> Result<u16, Violation> {
        with!(self, reader => reader.begin())
    }

    /// Copies the next frame, without the header of virtio-net, into `to`. `None`: nothing is left in this
    /// burst.
    ///
    /// # Errors
    /// When a chain of descriptors breaks the rules.
    #[inline]
    pub fn read(&mut self, to: &mut [u8]) -> Result<Option<Got>, Violation> {
        with!(self, reader => reader.read(to))
    }

    /// Gives the buffers of the frames that were read back to the guest.
    #[inline]
    pub fn finish(&mut self) {
        if with!(self, reader => reader.ring.show(reader.next)) {
            self.pending.shown();
        }
    }

    /// Whether the guest is to be called now. A core asks this once in each turn, behind [`Self::finish`]. This function looks for the
    /// guest's answer only in the first turn that has given the guest nothing, and after several batches.
    #[inline]
    #[must_use]
    pub fn must_call(&mut self) -> bool {
        self.pending.is_due() && self.wants_call()
    }

    /// Whether the guest wants to be called about what was given back to it since the last look. Looks in any turn.
    #[inline]
    #[must_use]
    pub fn wants_call(&mut self) -> bool {
        with!(self, reader => reader.ring.wants_call())
    }
}

/// Reads a ring of one layout.
#[derive(Debug)]
struct Reader<R> {
    ring: R,
    /// Whether the guest has disabled the queue: its frames are taken and dropped, as the protocol demands.
    is_disabled: bool,
    /// The entry that is read next, and how many have frames, as `begin` saw it.
    next: Cursor,
    prefetcher: Prefetcher,
    /// Descriptors that may be read in this burst.
    left: u16,
}

impl<R: Ring> Reader<R> {
    fn new(mut ring: R, is_disabled: bool) -> Self {
        let next = ring.start();
        Self { ring, is_disabled, next, prefetcher: Prefetcher::new(Access::Read), left: 0 }
    }

    #[inline]
    fn begin(&mut self) -> Result<u16, Violation> {
        self.ring.look(&mut self.next)?;
        if self.next.ahead() > 0 {
            self.ring.prefetch_index();
        }
        self.left = BURST;
        if self.is_disabled {
            self.discard()?;
        }
        self.prefetcher.advance(&self.ring, self.next);
        Ok(self.next.ahead())
    }

    /// Takes the frames of a disabled queue, as many as in a burst.
    #[cold]
    fn discard(&mut self) -> Result<(), Violation> {
        while self.read(&mut [])?.is_some() {}
        // What is left is not read before the next burst.
        self.next = self.next.with_ahead(0);
        Ok(())
    }

    #[inline]
    fn read(&mut self, to: &mut [u8]) -> Result<Option<Got>, Violation> {
        if self.next.ahead() == 0 || self.left == 0 {
            return Ok(None);
        }
        let Some((d, chain)) = self.ring.single(self.next)? else { return self.read_chain(to) };
        let common = self.ring.common();
        let (header, len) = (common.rules.header(), d.len as usize);
        if len <= header || len - header > to.len() || d.is_for_writing() {
            return self.read_chain(to);
        }
        match common.memory.find(d.at) {
            Some((region, at, left)) if left >= len => {
                region.mapping().read(at + header, &mut to[..len - header]);
            }
            _ => return self.read_chain(to),
        }
        self.left -= 1;
        self.take(chain);
        Ok(Some(Got::Frame(len - header)))
    }

    /// Gives the chain at the next entry back.
    #[inline]
    fn take(&mut self, chain: Chain) {
        self.ring.set_used(self.next, chain, 0);
        self.ring.pass(&mut self.next, chain);
        self.prefetcher.pass(&self.ring, self.next, chain);
    }

    /// Copies a frame in several buffers, or in a part of one, or finds out what is wrong with it.
    #[inline(never)]
    fn read_chain(&mut self, to: &mut [u8]) -> Result<Option<Got>, Violation> {
        let common = self.ring.common();
        let header = common.rules.header();
        let (mut skip, mut len, mut fits) = (header, 0_usize, true);
        let mut walk = self.ring.walk(self.next)?;
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
                common.memory.read(at, &mut to[len..len + count])
            } else {
                common.memory.has(at, count)
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
        let chain = walk.end()?;
        self.take(chain);
        Ok(Some(match (fits, len) {
            (_, 0) => Got::Empty,
            (true, len) => Got::Frame(len),
            (false, _) => Got::TooLong,
        }))
    }
}
