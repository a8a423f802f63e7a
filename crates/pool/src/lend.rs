//! Lending: buffers that leave the yard for a while, to be received into or transmitted by the
//! kernel.
//!
//! ```text
//!  chunk of 2048 or 4096 bytes   [ meta, 64 | XDP programs', 256 | bytes of a received frame ... ]
//!                                  ours       the kernel's, while the buffer is lent
//! ```
//!
//! Invariants: a buffer that is lent is in no [`Frame`] and in no free list: [`Pool::lend`] takes
//! its frame, and [`Pool::unlend`] makes one of it again.
//! Thread-safety: as the pool's.

use std::alloc::handle_alloc_error;
use std::sync::Arc;

use flowyard_frame::Frame;

use crate::{Arena, FRAMES, LINE, LONGEST, Meta, PAGE, Pool, START, Umem};

/// Bytes of a buffer that the kernel may be given (AF_XDP): a power of two, at most a page.
const CHUNKS: [usize; 2] = [2048, 4096];

/// Bytes of such a buffer that are not for a received frame: its meta, and what XDP programs have.
const CHUNK_HEAD: usize = START + crate::HEADROOM;

/// The longest frame that a pool made by [`Pool::lendable`] takes, in bytes.
pub const LONGEST_LENDABLE: usize = PAGE - CHUNK_HEAD;

/// Cache lines of a buffer for frames of up to `bytes` bytes.
fn stride(bytes: usize) -> usize {
    let [small, page] = CHUNKS;
    (if bytes + CHUNK_HEAD <= small { small } else { page }) / LINE
}

impl Pool {
    /// As [`Pool::new`], with buffers that ports may lend to the kernel: `bytes` is at most
    /// [`LONGEST_LENDABLE`].
    #[must_use]
    pub fn lendable(frames: usize, bytes: usize) -> Self {
        Self::shaped(frames, stride(bytes)).unwrap_or_else(|layout| handle_alloc_error(layout))
    }

    /// As [`Pool::lendable`], with memory that another process can map, if the system permits that; `None` if there is not
    /// so much memory.
    #[must_use]
    pub fn try_lendable(frames: usize, bytes: usize) -> Option<Self> {
        let (count, stride) = (frames.clamp(1, FRAMES) as u32, stride(bytes));
        // Miri has no files in memory.
        match (cfg!(not(miri))).then(|| Arena::shared(count, stride)) {
            Some(Ok(arena)) => Some(Self::filled(arena)),
            _ => Self::shaped(frames, stride).ok(),
        }
    }

    /// The memory, for the kernel to receive into; `None` if its buffers cannot be lent. The
    /// first line of each buffer, its meta, stays ours.
    #[must_use]
    pub fn umem(&self) -> Option<Umem> {
        let chunk = self.arena.stride * LINE;
        if !CHUNKS.contains(&chunk) {
            return None;
        }
        let (base, len) = (self.arena.base(), self.frames() * chunk);
        let keep = Arc::<Arena>::clone(&self.arena);
        // SAFETY: the memory starts on a page and lives as long as the arena. Only the addresses
        // that `lend` gives may be given to the kernel: `lend` takes the frame, so that nobody
        // reaches its buffer before `unlend` makes a frame of it again.
        Some(unsafe { Umem::new(base, len, chunk as u32, START as u32, keep) })
    }

    /// Takes the buffer of `frame` out of the yard: to be received into, or transmitted. Its
    /// address, in bytes from the start of the memory. To be called with a frame of this pool, and
    /// the address given to nobody but a socket that [`Pool::umem`] is registered with.
    ///
    /// # Panics
    /// When the frame is not of this pool: its address would name a buffer of another frame.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "a frame that is lent is no handle any more")]
    pub fn lend(&self, frame: Frame) -> u64 {
        (self.buffer(&frame).expect("a frame of this pool") + frame.off()) as u64
    }

    /// Where the bytes of `frame` begin, in bytes from the start of the memory: what [`Pool::lend`] would give. `None` for
    /// a frame of another pool.
    #[must_use]
    #[inline]
    pub fn address(&self, frame: &Frame) -> Option<u64> {
        Some((self.buffer(frame)? + frame.off()) as u64)
    }

    /// The buffer that `addr` lies in, from 0.
    #[inline]
    pub fn buffer_at(&self, addr: u64) -> u64 {
        addr / (self.arena.stride * LINE) as u64
    }

    /// A frame of `len` bytes at `addr`, whose buffer was lent and is back.
    ///
    /// # Safety
    /// The address is one that [`Pool::lend`] gave, or lies in the same buffer; the kernel has given
    /// the buffer back, and no frame was made of it since it was lent.
    #[inline]
    pub unsafe fn unlend(&self, addr: u64, len: usize, meta: Meta) -> Frame {
        let off = addr % (self.arena.stride * LINE) as u64;
        let buf = self.buffer_at(addr) as u32 + 1;
        // SAFETY: `lend` took the frame of this buffer, and the caller makes one frame of it.
        let mut frame = unsafe { self.arena.frame(buf, off as u16, len.min(LONGEST) as u16) };
        self.set_meta(&mut frame, meta);
        frame
    }

    /// As [`Pool::unlend`], for a buffer by its number, as [`Pool::buffer_at`] gives it.
    ///
    /// # Safety
    /// As of [`Pool::unlend`].
    pub unsafe fn unlend_buffer(&self, buffer: u64) -> Frame {
        // SAFETY: as the caller promises.
        unsafe { self.unlend_sent(buffer * (self.arena.stride * LINE) as u64, 0) }
    }

    /// As [`Pool::unlend`], for a buffer that was transmitted: a frame of `len` bytes, whatever they
    /// are, that starts where all do.
    ///
    /// # Safety
    /// As of [`Pool::unlend`].
    #[inline]
    pub unsafe fn unlend_sent(&self, addr: u64, len: usize) -> Frame {
        let start = self.buffer_at(addr) * (self.arena.stride * LINE) as u64 + START as u64;
        // SAFETY: as the caller promises; `start` is in the same buffer.
        unsafe { self.unlend(start, len, Meta::default()) }
    }
}
