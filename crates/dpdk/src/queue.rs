//! One receive and one transmit queue of a port: bursts of frames.
//!
//! Thread-safety: a queue is used by one thread at a time, as DPDK requires; `&mut` assures it.
#![allow(
    unsafe_code,
    reason = "frames are received into and transmitted from memory that DPDK shares"
)]

use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::{Arc, PoisonError};

use crate::memory::{Buffers, External};
use crate::port::Port;
use crate::{BURST, sys};

/// A queue of each direction.
#[derive(Debug)]
pub struct Queue {
    port: ManuallyDrop<Arc<Port>>,
    at: u16,
}

/// A buffer of the yard that was received into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lent {
    /// The number of the buffer in its memory, from 0.
    pub place: u32,
    /// Where the frame begins in the buffer.
    pub off: u16,
    /// The length of the frame.
    pub bytes: u16,
}

/// Buffers of the yard to be transmitted, in their order.
#[derive(Clone, Debug)]
pub struct Outgoing {
    frames: [sys::Lent; BURST],
    count: usize,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self { frames: [sys::Lent::default(); BURST], count: 0 }
    }
}

impl Outgoing {
    /// Adds a buffer; `false` if there are [`BURST`] already.
    #[inline]
    pub fn push(&mut self, lent: Lent) -> bool {
        let Some(to) = self.frames.get_mut(self.count) else { return false };
        *to = sys::Lent { place: lent.place, off: lent.off, bytes: lent.bytes };
        self.count += 1;
        true
    }
}

/// A received frame, in a buffer of DPDK. Dropping it gives the buffer back.
pub struct Received {
    raw: sys::Received,
}

impl Received {
    /// The length of the frame in bytes.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> usize {
        self.raw.bytes as usize
    }

    /// The receive hash that the adapter computed, if it did.
    #[must_use]
    pub const fn hash(&self) -> Option<u32> {
        if self.raw.flags & sys::HASH != 0 { Some(self.raw.hash) } else { None }
    }

    /// The mark that a rule of the adapter set, if one did.
    #[must_use]
    #[inline]
    pub const fn mark(&self) -> Option<u32> {
        if self.raw.flags & sys::MARK != 0 { Some(self.raw.mark) } else { None }
    }

    /// Whether the adapter found a wrong checksum: of IP, and of TCP or UDP.
    #[must_use]
    pub const fn bad_checksums(&self) -> (bool, bool) {
        (self.raw.flags & sys::BAD_IP != 0, self.raw.flags & sys::BAD_L4 != 0)
    }

    /// The bytes of the frame, if they are in one piece.
    #[must_use]
    #[inline]
    pub fn piece(&self) -> Option<&[u8]> {
        if self.raw.first_bytes != self.raw.bytes {
            return None;
        }
        // SAFETY: DPDK names the bytes of the first segment, which this has until it is dropped.
        Some(unsafe { std::slice::from_raw_parts(self.raw.data, self.bytes()) })
    }

    /// Copies the bytes of the frame, from all its pieces, to the start of `to`.
    ///
    /// # Panics
    /// When `to` is shorter than the frame.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() >= self.bytes(), "room for the frame");
        // SAFETY: there is room for all bytes of the chain, whose sum DPDK keeps.
        unsafe { sys::fy_gather(self.raw.mbuf, to.as_mut_ptr()) };
    }

    /// The buffer of `memory` that the frame is in, which becomes the caller's.
    ///
    /// # Errors
    /// The frame, if it is in several pieces, in other memory, in a buffer that something else refers to, too, or if it
    /// begins in the first `least_off` bytes of its buffer.
    #[inline]
    pub fn into_lent(self, memory: &External, least_off: u16) -> Result<Lent, Self> {
        let (place, off) = memory.place(self.raw.data);
        let is_ours = self.raw.flags & sys::OURS != 0 && off >= u32::from(least_off);
        if !is_ours || self.raw.bytes > u32::from(u16::MAX) || !memory.claim(place) {
            return Err(self);
        }
        let lent = Lent { place, off: off as u16, bytes: self.raw.bytes as u16 };
        std::mem::forget(self); // its mbuf stays with the buffer
        Ok(lent)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // SAFETY: this has the mbuf, which is freed once.
        unsafe { sys::fy_free(self.raw.mbuf) };
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Received({} bytes)", self.bytes())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let gate = Arc::clone(self.port.gate());
        // While no rule is being made, so that the last queue closes the port.
        let _closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.port) };
    }
}

impl Queue {
    pub(crate) const fn new(port: Arc<Port>, at: u16) -> Self {
        Self { port: ManuallyDrop::new(port), at }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The number of the queue, from 0.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.at
    }

    /// Receives up to `most` frames, at most [`BURST`], and gives each to `take`, in order. Returns how many.
    #[inline]
    pub fn rx(&mut self, most: usize, mut take: impl FnMut(Received)) -> usize {
        let mut frames = [MaybeUninit::<sys::Received>::uninit(); BURST];
        let (number, most) = (self.port.number(), most.min(BURST) as u32);
        let (pool, out) = (self.port.buffers().pool(), frames.as_mut_ptr().cast());
        // SAFETY: there is room for `most` frames; the queue is used by this thread alone.
        let count = unsafe { sys::fy_rx(number, self.at, pool, out, most) } as usize;
        for frame in &frames[..count] {
            // SAFETY: the call above has written as many.
            take(Received { raw: unsafe { frame.assume_init() } });
        }
        count
    }

    /// Transmits buffers of `memory`, in order; returns how many the driver took. The others stay the caller's.
    ///
    /// # Safety
    /// `memory` is the port's. The caller owns the buffers, each lies in it with all its bytes, and the caller does not
    /// touch one that the driver took until it is taken back or received.
    #[inline]
    pub unsafe fn tx_lent(&mut self, memory: &External, from: &Outgoing) -> usize {
        let frames = &from.frames[..from.count];
        // Marked before: another core may take a buffer back as soon as the driver has transmitted it.
        frames.iter().for_each(|frame| memory.mark(frame.place));
        let (number, count) = (self.port.number(), frames.len() as u32);
        // SAFETY: as the caller promises; the places are below the number of mbufs, because `mark` found them.
        let sent =
            unsafe { sys::fy_tx_lent(number, self.at, memory.mbufs(), frames.as_ptr(), count) }
                as usize;
        frames[sent..].iter().for_each(|frame| {
            memory.claim(frame.place);
        });
        sent
    }

    /// Copies frames and transmits them, in order; returns how many. At most [`BURST`] are transmitted, and none from
    /// the first on that is longer than [`crate::Copying::longest`].
    #[inline]
    pub fn tx_copy(&mut self, frames: &[&[u8]]) -> usize {
        let Buffers::Copying(memory) = self.port.buffers() else { return 0 };
        let mut bytes = [sys::Bytes { data: std::ptr::null(), bytes: 0 }; BURST];
        let mut count = 0;
        for (to, frame) in bytes.iter_mut().zip(frames) {
            if frame.len() > memory.longest() {
                break;
            }
            *to = sys::Bytes { data: frame.as_ptr(), bytes: frame.len() as u64 };
            count += 1;
        }
        let (number, pool) = (self.port.number(), self.port.buffers().pool());
        // SAFETY: as many frames as said; the queue is used by this thread alone.
        unsafe { sys::fy_tx_copy(number, self.at, pool, bytes.as_ptr(), count) as usize }
    }
}
