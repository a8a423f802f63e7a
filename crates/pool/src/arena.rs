//! Arena: the memory of a pool, and the stack of free buffers that all its handles share.
//!
//! Thread-safety: shared by all cores, without locks. See the crate's head for the chains on the stack, and
//! for why the use of the memory is sound.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use flowyard_frame::Frame;

use crate::numbers::Numbers;
use crate::{CHAIN, LINE, PAGE};

/// What all handles share.
pub(crate) struct Arena {
    base: NonNull<u8>,
    layout: Layout,
    /// The numbers of the buffers, in this process.
    pub(crate) numbers: Numbers,
    /// Lines of one buffer.
    pub(crate) stride: usize,
    /// Of a free buffer in a chain: the next buffer of its chain, 0 at the end.
    next: Box<[AtomicU32]>,
    /// Of the first buffer of a chain on the stack: the first buffer of the chain below.
    below: Box<[AtomicU32]>,
    /// The first buffer of the topmost chain (low half), and a version (high half).
    top: AtomicU64,
}

// SAFETY: the memory is reached only through frames; a frame is unique and names one buffer, and
// it moves between threads by channels that synchronise (queues, or the stack's release and
// acquire on `top`). Everything else is atomic or immutable.
unsafe impl Sync for Arena {}
// SAFETY: plain memory, bound to no thread.
unsafe impl Send for Arena {}

impl Arena {
    /// The memory of `count` buffers of `stride` cache lines, filled with zeros. No buffer is on the stack.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn new(count: u32, stride: usize) -> Result<Self, Layout> {
        let zeros = |_| AtomicU32::new(0);
        let size = (count as usize * stride * LINE).next_multiple_of(PAGE);
        let layout = Layout::from_size_align(size, PAGE).expect("2^26 buffers of 64 KiB");
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(layout)?;
        Ok(Self {
            base,
            layout,
            numbers: Numbers::take(count),
            stride,
            next: (0..=count).map(zeros).collect(),
            below: (0..=count).map(zeros).collect(),
            top: AtomicU64::new(0),
        })
    }

    /// The frame of buffer `buf`, from 1.
    ///
    /// # Safety
    /// The caller owns the buffer: it is in no free list and in no other frame.
    pub(crate) unsafe fn frame(&self, buf: u32, off: u16, len: u16) -> Frame {
        // SAFETY: as the caller promises; no other pool has the number.
        unsafe { Frame::from_raw_parts(self.numbers.first + (buf - 1), off, len) }
    }

    pub(crate) const fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Puts a chain of these buffers on the stack.
    pub(crate) fn push(&self, bufs: &[u32]) {
        let Some(&first) = bufs.first() else { return };
        for (i, &buf) in bufs.iter().enumerate() {
            let next = bufs.get(i + 1).copied().unwrap_or(0);
            self.next[buf as usize].store(next, Ordering::Relaxed);
        }
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            self.below[first as usize].store(top as u32, Ordering::Relaxed);
            let new = version(top) | u64::from(first);
            // Release: the links, and what was done to the buffers, go before the chain is seen.
            match self.top.compare_exchange_weak(top, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes the topmost chain, if there is one.
    pub(crate) fn pop(&self, free: &mut Vec<u32>) {
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let first = top as u32;
            if first == 0 {
                return;
            }
            // May be stale if another core took the chain; then the version has changed.
            let below = self.below[first as usize].load(Ordering::Relaxed);
            let new = version(top) | u64::from(below);
            match self.top.compare_exchange_weak(top, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return free.extend(self.chain(first)),
                Err(now) => top = now,
            }
        }
    }

    /// The buffers of the chain that starts at `first`.
    fn chain(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |buf: &u32| self.next[*buf as usize].load(Ordering::Relaxed);
        std::iter::successors(Some(first), move |buf| Some(next(buf)).filter(|&next| next != 0))
            .take(CHAIN)
    }

    /// How many buffers are on the stack. Right when nobody moves chains meanwhile.
    pub(crate) fn stacked(&self) -> usize {
        let top = self.top.load(Ordering::Acquire) as u32;
        let below = |buf: &u32| self.below[*buf as usize].load(Ordering::Relaxed);
        std::iter::successors(Some(top), |buf| Some(below(buf)))
            .take_while(|&first| first != 0)
            .take(self.numbers.count as usize)
            .map(|first| self.chain(first).count())
            .sum()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // A frame that was not given back keeps its number, so the range is not used again.
        if self.stacked() == self.numbers.count as usize {
            self.numbers.give_back();
        }
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// The next version, in the high half.
const fn version(top: u64) -> u64 {
    ((top >> 32) + 1) << 32
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} buffers of {} bytes)", self.numbers.count, (self.stride - 1) * LINE)
    }
}
