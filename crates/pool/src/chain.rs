//! Chains: a frame with others that are to leave in its place, each with bytes and a port of its
//! own.
//!
//! ```text
//!  Frame ──> buffer [ meta | next, port ] ──> buffer [ meta | next, port ] ──> ..
//!            leaves last                      leaves first
//! ```
//!
//! Work that makes several frames of one has no lanes for them (`docs/decisions/0006-copies.md`). It
//! ties them to the one that has a lane, and they enter their tx queues where that one does.
//!
//! Invariants: a buffer that is tied is in no free list and in no [`Frame`]: [`Pool::tie`] takes its
//! frame, and [`Pool::untie`] gives it back, once. A buffer in a free list, or in a frame that was
//! just taken, is tied to nothing.
//! Thread-safety: as the pool's.

use flowyard_frame::Frame;
use flowyard_wire::Offload;

use super::{LINE, Meta, Pool, START};

/// What is tied to a frame. It stands in the line of the [`Meta`], behind it.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Chain {
    /// The buffer that leaves before this one; 0 is none.
    next: u32,
    /// Of a buffer that is tied: where its frame starts, and how long it is.
    off: u16,
    len: u16,
    /// The port that this frame leaves by.
    port: u16,
    /// Frames that were to be tied, and are not there.
    missing: u16,
    /// Why they are not: the code of a reason, for the stage that counts them.
    why: u16,
}

/// Where a chain stands in its buffer.
const AT: usize = 32;
const _: () = assert!(size_of::<Meta>() <= AT && AT + size_of::<Chain>() <= LINE);

impl Pool {
    fn chain(&self, frame: &Frame) -> Chain {
        let Some(room) = self.room(frame) else { return Chain::default() };
        // SAFETY: the first line of a buffer is zeroed by `new`, where a chain of zeros is a valid
        // one, and written here alone besides the meta, which ends before. The frame is unique and
        // borrowed, so nobody writes it meanwhile.
        unsafe { room.start.add(AT).cast::<Chain>().read() }
    }

    fn set_chain(&self, frame: &mut Frame, chain: Chain) {
        let Some(room) = self.room(frame) else { return };
        // SAFETY: as in `chain`; the frame is borrowed mutably, so nobody reads it meanwhile.
        unsafe { room.start.add(AT).cast::<Chain>().write(chain) }
    }

    /// Ties `other` to `frame`: it leaves by `port`, before those that were tied earlier.
    pub fn tie(&self, frame: &mut Frame, mut other: Frame, port: u16) {
        let chain = self.chain(frame);
        let (off, len) = (other.off() as u16, other.len() as u16);
        self.set_chain(&mut other, Chain { next: chain.next, off, len, port, ..Chain::default() });
        self.set_chain(frame, Chain { next: other.buf(), ..chain });
    }

    /// The frame that leaves first of those tied to `frame`, and its port.
    pub fn untie(&self, frame: &mut Frame) -> Option<(Frame, u16)> {
        let chain = self.chain(frame);
        if chain.next == 0 {
            return None;
        }
        // SAFETY: only `tie` writes these numbers, of a frame that it took; the number is taken out
        // of the chain below.
        let mut other = unsafe { Frame::from_raw_parts(chain.next, START as u16, 0) };
        let Chain { next, off, len, port, .. } = self.chain(&other);
        self.set_chain(frame, Chain { next, ..chain });
        self.set_chain(&mut other, Chain::default());
        // SAFETY: it replaces `other`, which is not used again.
        let mut whole = unsafe { Frame::from_raw_parts(other.buf(), off, len) };
        (whole.hash, whole.mark) = (frame.hash, frame.mark);
        Some((whole, port))
    }

    /// Says by which port `frame` itself leaves, and how many others are missing for the reason with this code.
    pub fn set_last(&self, frame: &mut Frame, port: u16, (missing, why): (u16, u16)) {
        let chain = self.chain(frame);
        self.set_chain(frame, Chain { port, missing, why, ..chain });
    }

    /// The port of `frame` itself; and, once, how many others are missing, and the code of the reason.
    pub fn last(&self, frame: &mut Frame) -> (u16, (u16, u16)) {
        let Chain { port, missing, why, .. } = self.chain(frame);
        self.set_last(frame, port, (0, 0));
        (port, (missing, why))
    }

    /// Takes a frame back, and those that are tied to it.
    pub fn put_all(&mut self, mut frame: Frame) {
        while let Some((other, _)) = self.untie(&mut frame) {
            self.put(other);
        }
        self.put(frame);
    }

    /// Makes `frame` one with the bytes `data`, which are those of a wire. `false`, and nothing is changed, if its buffer has no
    /// room for them.
    #[must_use]
    pub fn overwrite(&self, frame: &mut Frame, data: &[u8]) -> bool {
        if data.len() > self.longest_of(frame) || !self.owns(frame) {
            return false;
        }
        let (hash, mark, old) = (frame.hash, frame.mark, frame.len());
        let mut meta = Meta { offload: Offload::NONE, ..self.meta(frame) };
        meta.wire_len = meta.wire_len.saturating_sub(old as u32) + data.len() as u32;
        // SAFETY: it replaces the frame that owns the buffer.
        *frame = unsafe { Frame::from_raw_parts(frame.buf(), START as u16, data.len() as u16) };
        (frame.hash, frame.mark) = (hash, mark);
        self.set_meta(frame, meta);
        self.bytes_mut(frame).copy_from_slice(data);
        true
    }
}
