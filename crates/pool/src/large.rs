//! Buffers of a second size, for frames that an adapter or a receiver is to cut into segments.
//!
//! ```text
//!  frame of up to `longest()` bytes ──> buffer of the first size
//!  longer, up to 65,535 bytes       ──> buffer of the second size, if one is free
//! ```
//!
//! Few frames need them, and each has 1,025 cache lines: were all buffers so large, the memory of a pool would be
//! thirty times as much, and each short frame would have a page of its own
//! (`docs/decisions/0067-large-frames.md`). Both sizes have numbers of their own, so a handle says by its
//! number which size its buffer has. The test for the first size is one that is made anyway: frames of the first
//! size cost nothing more.
//!
//! Invariants: as of the crate. A buffer of the second size is never lent to the kernel.
//! Thread-safety: as the pool's.

use std::sync::Arc;

use flowyard_frame::{Batch, FlowKey, Frame};

use crate::arena::Arena;
use crate::{CHAIN, LONGEST, Meta, NoBuffer, Pool, Room, START};

/// One core's handle on the buffers of the second size.
#[derive(Debug)]
pub(crate) struct Large {
    arena: Arc<Arena>,
    /// Buffers this core may take; never more than [`KEPT`].
    free: Vec<u32>,
}

/// Buffers that a handle keeps. They are few, so that cores do not keep them from each other.
const KEPT: usize = 4;

impl Large {
    fn new(count: usize) -> Option<Self> {
        let stride = crate::stride(LONGEST);
        let arena = Arena::new(count.clamp(1, LARGE_FRAMES) as u32, stride).ok()?;
        // From here on every meta is a valid one: zeros are not relied on.
        for place in 0..arena.numbers.count {
            // SAFETY: the memory is new and nobody else has it; a buffer starts on a cache line.
            unsafe { arena.room(place).start.cast::<Meta>().write(Meta::default()) };
        }
        // Taken from the end: the lowest numbers first.
        let all: Vec<u32> = (1..=arena.numbers.count).rev().collect();
        all.chunks(KEPT).for_each(|chain| arena.push(chain));
        Some(Self { arena: Arc::new(arena), free: Vec::with_capacity(2 * CHAIN) })
    }

    pub(crate) fn share(&self) -> Self {
        Self { arena: Arc::clone(&self.arena), free: Vec::with_capacity(2 * CHAIN) }
    }

    pub(crate) fn held(&self) -> usize {
        let free = self.free.len() + self.arena.stacked();
        (self.arena.numbers.count as usize).saturating_sub(free)
    }

    fn room(&self, frame: &Frame) -> Option<Room> {
        Some(self.arena.room(self.arena.numbers.place(frame.buf())?))
    }
}

/// The most buffers of the second size: 4 GiB.
pub const LARGE_FRAMES: usize = 1 << 16;

impl Pool {
    /// Adds `count` buffers of the second size (at most 65,536), for frames of up to [`LONGEST`] bytes. To be called
    /// before [`Pool::share`]. `None` if there is not so much memory.
    #[must_use]
    pub fn with_large(mut self, count: usize) -> Option<Self> {
        self.large = Some(Box::new(Large::new(count)?));
        Some(self)
    }

    /// Whether there are buffers of the second size.
    #[must_use]
    #[inline]
    pub const fn has_large(&self) -> bool {
        self.large.is_some()
    }

    /// The longest frame that the pool takes.
    #[must_use]
    pub fn longest_large(&self) -> usize {
        if self.has_large() { LONGEST } else { self.longest() }
    }

    /// As [`Pool::take`], but always a buffer of the second size.
    ///
    /// # Errors
    /// As [`Pool::take`].
    #[cold]
    pub fn take_large(&mut self, len: usize, meta: Meta) -> Result<Frame, NoBuffer> {
        let Some(Large { arena, free }) = self.large.as_deref_mut() else {
            return Err(NoBuffer::TooLong);
        };
        if len > LONGEST {
            return Err(NoBuffer::TooLong);
        }
        if free.is_empty() {
            arena.pop(free);
        }
        let buf = free.pop().ok_or(NoBuffer::Empty)?;
        // SAFETY: a buffer in the free list is in no frame, and it has just left the list.
        let mut frame = unsafe { arena.frame(buf, START as u16, len as u16) };
        self.set_meta(&mut frame, meta);
        Ok(frame)
    }

    /// Takes back a frame whose buffer is not of the first size. The caller has it no more.
    #[cold]
    pub(crate) fn put_large(&mut self, frame: &Frame) {
        let Some(Large { arena, free }) = self.large.as_deref_mut() else { return };
        let Some(place) = arena.numbers.place(frame.buf()) else { return };
        if free.len() >= KEPT {
            arena.push(free);
            free.clear();
        }
        free.push(place + 1);
    }

    /// Takes the frames of the second size back, whose lanes are empty then.
    #[cold]
    pub(crate) fn put_large_lanes(&mut self, batch: &mut Batch) {
        for lane in batch.lanes() {
            if self.buffer(&batch.frames[lane]).is_none() {
                let frame = std::mem::take(&mut batch.frames[lane]);
                self.put_large(&frame);
            }
        }
    }

    #[cold]
    pub(crate) fn large_position(&self, frame: &Frame) -> Option<usize> {
        let place = self.large.as_ref()?.arena.numbers.place(frame.buf())?;
        Some(self.frames() + place as usize)
    }

    #[cold]
    pub(crate) fn large_room(&self, frame: &Frame) -> Option<Room> {
        self.large.as_ref()?.room(frame)
    }

    #[cold]
    pub(crate) fn large_key(&self, frame: &Frame) -> Option<*mut FlowKey> {
        let arena = &self.large.as_ref()?.arena;
        Some(arena.key(arena.numbers.place(frame.buf())?))
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.arena.push(&self.free);
    }
}
