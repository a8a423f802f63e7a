//! The transmitting half of a queue: frames that the guest receives.

use crate::ring::{CHAIN, Ring};
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
    ring: Ring,
    number: u16,
    /// The entry that is filled next.
    next: u16,
    /// The first entry without a buffer, as `begin` saw it.
    end: u16,
    /// Buffers of the frame that is written, and the chains that they are from, with the bytes written to
    /// each. Both have all the room that they can need.
    buffers: Vec<Buffer>,
    chains: Vec<(u16, u32)>,
}

impl Sender {
    pub(crate) fn new(mut ring: Ring, number: u16) -> Self {
        let next = ring.start();
        let (buffers, chains) =
            (Vec::with_capacity(CHAIN.into()), Vec::with_capacity(CHAIN.into()));
        Self { ring, number, next, end: next, buffers, chains }
    }

    /// The number of the ring at its port.
    #[inline]
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Looks for empty buffers; returns in how many entries there are some.
    ///
    /// # Errors
    /// When the guest's index is not possible, or its memory is lost.
    #[inline]
    pub fn begin(&mut self) -> Result<u16, Violation> {
        self.end = self.ring.end(self.next)?;
        let room = self.end.wrapping_sub(self.next);
        if room > 0 {
            self.ring.prefetch_buffer(self.next);
        }
        Ok(room)
    }

    /// Copies `frame`, behind a header of virtio-net, into buffers of the guest.
    ///
    /// # Errors
    /// When a chain of descriptors breaks the rules.
    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> Result<Sent, Violation> {
        if self.next == self.end {
            return Ok(Sent::Full);
        }
        if self.end.wrapping_sub(self.next) > 2 {
            self.ring.prefetch(self.next.wrapping_add(2));
        }
        let header = self.ring.rules.header();
        let total = header + frame.len();
        let head = self.ring.head(self.next)?;
        let mut walk = self.ring.walk(head);
        let Some(first) = walk.step()? else { return Ok(Sent::TooLong) };
        if !first.is_for_writing() {
            return Err(Violation::Direction { transmits: false });
        }
        if (first.len as usize) < total {
            return self.write_slowly(frame);
        }
        let outside = Violation::Address { at: first.at, len: first.len };
        let bytes = Header::of(1).bytes;
        match self.ring.memory.find(first.at) {
            Some((region, at, left)) if left >= total => {
                region.mapping().write(at, &bytes[..header]);
                region.mapping().write(at + header, frame);
            }
            _ => {
                let behind = first.at.checked_add(header as u64).ok_or(outside)?;
                let memory = &self.ring.memory;
                if !memory.write(first.at, &bytes[..header]) || !memory.write(behind, frame) {
                    return Err(outside);
                }
            }
        }
        self.ring.set_used(self.next, head, total as u32);
        self.next = self.next.wrapping_add(1);
        if self.next != self.end {
            self.ring.prefetch_buffer(self.next);
        }
        Ok(Sent::Done)
    }

    /// A frame that needs several buffers.
    #[cold]
    fn write_slowly(&mut self, frame: &[u8]) -> Result<Sent, Violation> {
        let header = self.ring.rules.header();
        let total = header + frame.len();
        if let Some(other) = self.collect(total)? {
            return Ok(other);
        }
        let bytes = Header::of(self.chains.len() as u16).bytes;
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
                if !self.ring.memory.write(at, now) {
                    return Err(outside);
                }
                left -= now.len();
                if left > 0 {
                    at = at.checked_add(now.len() as u64).ok_or(outside)?;
                }
                part = rest;
            }
        }
        for (head, written) in self.chains.drain(..) {
            self.ring.set_used(self.next, head, written);
            self.next = self.next.wrapping_add(1);
        }
        Ok(Sent::Done)
    }

    /// Collects buffers for `total` bytes, without taking them. Returns what else became of the frame.
    fn collect(&mut self, total: usize) -> Result<Option<Sent>, Violation> {
        self.buffers.clear();
        self.chains.clear();
        let (mut room, mut entry) = (0, self.next);
        while room < total {
            if !self.chains.is_empty() && !self.ring.rules.mergeable {
                return Ok(Some(Sent::TooLong));
            }
            if entry == self.end {
                let is_all = entry.wrapping_sub(self.next) == self.ring.size;
                return Ok(Some(if is_all { Sent::TooLong } else { Sent::Full }));
            }
            let head = self.ring.head(entry)?;
            let (mut walk, before) = (self.ring.walk(head), room);
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
            self.chains.push((head, (room.min(total) - before) as u32));
            entry = entry.wrapping_add(1);
        }
        Ok(None)
    }

    /// Shows the guest what was written. Returns whether it wants to be called.
    #[inline]
    #[must_use]
    pub fn finish(&mut self) -> bool {
        self.ring.show(self.next)
    }
}

/// The header of virtio-net, without offloads.
struct Header {
    bytes: [u8; 12],
}

impl Header {
    /// For a frame in `chains` chains of buffers.
    fn of(chains: u16) -> Self {
        let mut bytes = [0; 12];
        bytes[10..].copy_from_slice(&chains.to_le_bytes());
        Self { bytes }
    }
}
