//! The transmitting half of a queue: frames that the guest receives.

use std::sync::Arc;

use flowyard_mem::{Access, Pending};

use crate::memory::Memory;
use crate::ring::{
    CHAIN, Chain, Cursor, LONG_HEADER, Packed, Prefetcher, Ring, RingPlace, Rules, SHORT_HEADER,
    Split,
};
use crate::violation::Violation;

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is in the guest's memory.
    Done,
    /// The guest has not given enough buffers for it yet.
    Full,
    /// It is longer than the guest's buffers can hold.
    TooLong,
}

/// A buffer of the guest.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    at: u64,
    len: u32,
}

/// Transmits into one ring: `begin`, then `write` each frame, then `finish`.
///
/// Thread-safety: belongs to one thread.
#[derive(Debug)]
pub struct Sender {
    /// The number of the ring at its port.
    number: u16,
    /// Batches since the last look whether the guest wants a call.
    pending: Pending,
    layout: Layout,
}

#[derive(Debug)]
enum Layout {
    Split(Writer<Split>),
    Packed(Writer<Packed>),
}

/// Does with the writer, whichever it is, what is written behind it.
macro_rules! with {
    ($sender:expr, $writer:ident => $what:expr) => {
        match &mut $sender.layout {
            Layout::Split($writer) => $what,
            Layout::Packed($writer) => $what,
        }
    };
}

impl Sender {
    pub(crate) fn new(
        memory: &Arc<Memory>,
        place: RingPlace,
        rules: Rules,
        number: u16,
    ) -> Result<Self, Violation> {
        let layout = if rules.packed {
            Layout::Packed(Writer::new(Packed::new(memory, place, rules)?))
        } else {
            Layout::Split(Writer::new(Split::new(memory, place, rules)?))
        };
        Ok(Self { number, pending: Pending::default(), layout })
    }

    /// The number of the ring at its port.
    #[inline]
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Looks for empty buffers, unless `wanted` entries with buffers are known. Returns how many entries with buffers are known now; an
    /// entry is a descriptor in a packed ring. The guest changes its index with each batch, so a look takes the time in which a cache line
    /// comes from another core.
    ///
    /// # Errors
    /// When the guest's index is not possible, or its memory is lost.
    #[inline]
    pub fn begin(&mut self, wanted: u16) -> Result<u16, Violation> {
        with!(self, writer => writer.begin(wanted))
    }

    /// Copies `frame`, behind a header of virtio-net, into buffers of the guest. Looks for more buffers if it needs several and too
    /// few are known.
    ///
    /// # Errors
    /// When a chain of descriptors breaks the rules.
    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> Result<Sent, Violation> {
        with!(self, writer => writer.write(frame))
    }

    /// Shows the guest what was written.
    #[inline]
    pub fn finish(&mut self) {
        if with!(self, writer => writer.ring.show(writer.next)) {
            self.pending.shown();
        }
    }

    /// As [`crate::Receiver::must_call`].
    #[inline]
    #[must_use]
    pub fn must_call(&mut self) -> bool {
        self.pending.is_due() && self.wants_call()
    }

    /// As [`crate::Receiver::wants_call`].
    #[inline]
    #[must_use]
    pub fn wants_call(&mut self) -> bool {
        with!(self, writer => writer.ring.wants_call())
    }
}

/// Fills a ring of one layout.
#[derive(Debug)]
struct Writer<R> {
    ring: R,
    /// The entry that is filled next, and how many have buffers, as `begin` saw it.
    next: Cursor,
    prefetcher: Prefetcher,
    /// Buffers of the frame that is written, and the chains that they are from, with the bytes written to
    /// each. Both have all the room that they can need.
    buffers: Vec<Buffer>,
    chains: Vec<(Chain, u32)>,
}

impl<R: Ring> Writer<R> {
    fn new(mut ring: R) -> Self {
        let next = ring.start();
        let (buffers, chains) =
            (Vec::with_capacity(CHAIN.into()), Vec::with_capacity(CHAIN.into()));
        Self { ring, next, prefetcher: Prefetcher::new(Access::Write), buffers, chains }
    }

    #[inline]
    fn begin(&mut self, wanted: u16) -> Result<u16, Violation> {
        if self.next.ahead() < wanted {
            self.ring.look(&mut self.next)?;
        }
        self.ring.prefetch_index();
        self.prefetcher.advance(&self.ring, self.next);
        Ok(self.next.ahead())
    }

    #[inline]
    fn write(&mut self, frame: &[u8]) -> Result<Sent, Violation> {
        if self.next.ahead() == 0 {
            return Ok(Sent::Full);
        }
        let common = self.ring.common();
        let header = common.rules.header();
        let total = header + frame.len();
        let Some((first, chain)) = self.ring.single(self.next)? else {
            return self.write_slowly(frame);
        };
        if !first.is_for_writing() {
            return Err(Violation::Direction { transmits: false });
        }
        match common.memory.find(first.at) {
            Some((region, at, left)) if left >= total && first.len as usize >= total => {
                let mapping = region.mapping();
                if header == LONG_HEADER {
                    mapping.write_if_changed(at, long_header(1));
                } else {
                    mapping.write_if_changed(at, [0; SHORT_HEADER]);
                }
                mapping.write(at + header, frame);
            }
            _ => return self.write_slowly(frame),
        }
        self.take(chain, total as u32);
        Ok(Sent::Done)
    }

    /// Looks for buffers. Returns whether there are more than were known.
    fn finds_more(&mut self) -> Result<bool, Violation> {
        let known = self.next.ahead();
        self.ring.look(&mut self.next)?;
        Ok(self.next.ahead() > known)
    }

    /// Gives the chain at the next entry back.
    #[inline]
    fn take(&mut self, chain: Chain, bytes: u32) {
        self.ring.set_used(self.next, chain, bytes);
        self.ring.pass(&mut self.next, chain);
        self.prefetcher.pass(&self.ring, self.next, chain);
    }

    /// A frame that needs several buffers.
    #[cold]
    fn write_slowly(&mut self, frame: &[u8]) -> Result<Sent, Violation> {
        let header = self.ring.common().rules.header();
        let total = header + frame.len();
        while let Some(other) = self.collect(total)? {
            if other != Sent::Full || !self.finds_more()? {
                return Ok(other);
            }
        }
        let bytes = long_header(self.chains.len() as u16);
        let mut parts = [&bytes[..header], frame].into_iter();
        let mut part = parts.next().unwrap_or_default();
        for buffer in &self.buffers {
            let outside = Violation::Address { at: buffer.at, len: buffer.len };
            let (mut at, mut left) = (buffer.at, buffer.len as usize);
            while left > 0 {
                if part.is_empty() {
                    let Some(other) = parts.next() else { break };
                    part = other;
                }
                let (now, rest) = part.split_at(part.len().min(left));
                if !self.ring.common().memory.write(at, now) {
                    return Err(outside);
                }
                left -= now.len();
                if left > 0 {
                    at = at.checked_add(now.len() as u64).ok_or(outside)?;
                }
                part = rest;
            }
        }
        for (chain, written) in self.chains.drain(..) {
            self.ring.set_used(self.next, chain, written);
            self.ring.pass(&mut self.next, chain);
            self.prefetcher.pass(&self.ring, self.next, chain);
        }
        Ok(Sent::Done)
    }

    /// Collects buffers for `total` bytes, without taking them. Returns what else became of the frame.
    fn collect(&mut self, total: usize) -> Result<Option<Sent>, Violation> {
        self.buffers.clear();
        self.chains.clear();
        let common = self.ring.common();
        let (mut room, mut cursor) = (0, self.next);
        while room < total {
            if !self.chains.is_empty() && !common.rules.mergeable {
                return Ok(Some(Sent::TooLong));
            }
            if cursor.ahead() == 0 {
                let is_all = self.next.ahead() == common.size;
                return Ok(Some(if is_all { Sent::TooLong } else { Sent::Full }));
            }
            let (mut walk, before) = (self.ring.walk(cursor)?, room);
            while room < total
                && let Some(d) = walk.step()?
            {
                if !d.is_for_writing() {
                    return Err(Violation::Direction { transmits: false });
                }
                if self.buffers.len() == usize::from(CHAIN) {
                    return Ok(Some(Sent::TooLong));
                }
                self.buffers.push(Buffer { at: d.at, len: d.len });
                room += d.len as usize;
            }
            let chain = walk.end()?;
            self.chains.push((chain, (room.min(total) - before) as u32));
            self.ring.pass(&mut cursor, chain);
        }
        Ok(None)
    }
}

/// The header of virtio-net, without offloads, of a frame in `chains` chains of buffers.
#[inline]
fn long_header(chains: u16) -> [u8; LONG_HEADER] {
    let mut bytes = [0; LONG_HEADER];
    bytes[SHORT_HEADER..].copy_from_slice(&chains.to_le_bytes());
    bytes
}
