//! Arena: the memory of a pool, and the stack of free buffers that all its handles share.
//!
//! ```text
//!  top ──> first buffer of a chain  [ meta | 2, 9, 31 ..  numbers of the others ]   bytes of the free buffer
//!            └ below ──> first buffer of the next chain
//! ```
//!
//! The numbers of a chain stand together, so that a chain moves between cores in two cache lines.
//!
//! Thread-safety: shared by all cores, without locks. See the crate's head for the chains on the stack, and
//! for why the use of the memory is sound.

use std::alloc::Layout;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use flowyard_frame::{FlowKey, Frame};

use crate::memory::Memory;
use crate::numbers::Numbers;
use crate::{CHAIN, LINE, PAGE, Room, START};

/// What all handles share.
pub(crate) struct Arena {
    memory: Memory,
    /// Where the keys begin, behind the buffers.
    keys: usize,
    /// The numbers of the buffers, in this process.
    pub(crate) numbers: Numbers,
    /// Lines of one buffer.
    pub(crate) stride: usize,
    /// Buffers of a chain at most: their numbers fit into a buffer.
    chain: usize,
    /// Of the first buffer of a chain on the stack: the first buffer of the chain below.
    below: Box<[AtomicU32]>,
    /// The first buffer of the topmost chain (low half), and a version (high half).
    top: AtomicU64,
    /// Buffers on the stack; too many for a moment while a chain is put or taken.
    stacked: AtomicU64,
}

// SAFETY: the memory is reached only through frames; a frame is unique and names one buffer, and
// it moves between threads by channels that synchronise (queues, or the stack's release and
// acquire on `top`). Everything else is atomic or immutable.
unsafe impl Sync for Arena {}
// SAFETY: plain memory, bound to no thread.
unsafe impl Send for Arena {}

impl Arena {
    /// The memory of `count` buffers of `stride` cache lines and of their keys, filled with zeros. No buffer is on the
    /// stack.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn new(count: u32, stride: usize) -> Result<Self, Layout> {
        Ok(Self::of(Memory::of_heap(size(count, stride))?, count, stride))
    }

    /// As [`Arena::new`], with memory that another process can map, too.
    pub(crate) fn shared(count: u32, stride: usize) -> io::Result<Self> {
        Ok(Self::of(Memory::shared(size(count, stride))?, count, stride))
    }

    /// The memory of another process, which has the same shape there. Nothing of it is written.
    pub(crate) fn adopt(file: OwnedFd, count: u32, stride: usize) -> io::Result<Self> {
        Ok(Self::of(Memory::adopt(file, size(count, stride))?, count, stride))
    }

    fn of(memory: Memory, count: u32, stride: usize) -> Self {
        let zeros = |_| AtomicU32::new(0);
        Self {
            memory,
            keys: keys(count, stride),
            numbers: Numbers::take(count),
            stride,
            chain: CHAIN.min((stride - 1) * LINE / size_of::<u32>()),
            below: (0..=count).map(zeros).collect(),
            top: AtomicU64::new(0),
            stacked: AtomicU64::new(0),
        }
    }

    /// The file that another process can map.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memory.file()
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
        self.memory.base()
    }

    /// The buffer at `place`, which is below the number of buffers.
    #[inline]
    pub(crate) const fn room(&self, place: u32) -> Room {
        let bytes = self.stride * LINE;
        Room { start: self.memory.base().wrapping_add(place as usize * bytes), bytes }
    }

    /// The key of the buffer at `place`, which is below the number of buffers.
    pub(crate) const fn key(&self, place: u32) -> *mut FlowKey {
        // Keys begin on a page, and are as large as their alignment.
        self.memory.base().wrapping_add(self.keys).cast::<FlowKey>().wrapping_add(place as usize)
    }

    /// Puts these free buffers on the stack.
    pub(crate) fn push(&self, bufs: &[u32]) {
        bufs.chunks(self.chain).for_each(|chain| self.push_chain(chain));
    }

    fn push_chain(&self, bufs: &[u32]) {
        let Some((&first, others)) = bufs.split_first() else { return };
        // SAFETY: the caller owns these buffers until the exchange below; the numbers fit, see `chain`.
        unsafe {
            let at = self.numbers_in(first);
            at.write(others.len() as u32);
            at.add(1).copy_from_nonoverlapping(others.as_ptr(), others.len());
        }
        self.stacked.fetch_add(bufs.len() as u64, Ordering::Relaxed);
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            self.below[first as usize].store(top as u32, Ordering::Relaxed);
            let new = version(top) | u64::from(first);
            // Release: the numbers, and what was done to the buffers, go before the chain is seen.
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
                Ok(_) => {
                    // SAFETY: the chain is off the stack, so its buffers are the caller's; `push_chain` wrote the
                    // numbers.
                    let others = unsafe {
                        let at = self.numbers_in(first);
                        slice::from_raw_parts(at.add(1), at.read() as usize)
                    };
                    free.push(first);
                    free.extend_from_slice(others);
                    self.stacked.fetch_sub(1 + others.len() as u64, Ordering::Relaxed);
                    return;
                }
                Err(now) => top = now,
            }
        }
    }

    /// Where the numbers of a chain stand: their count, and the numbers of all buffers but the first.
    const fn numbers_in(&self, first: u32) -> *mut u32 {
        let buffer = (first - 1) as usize * self.stride * LINE;
        // SAFETY: the caller names a buffer of this memory, which has room behind its first line.
        unsafe { self.memory.base().add(buffer + START).cast() }
    }

    /// How many buffers are on the stack. Right when nobody moves chains meanwhile.
    pub(crate) fn stacked(&self) -> usize {
        self.stacked.load(Ordering::Acquire) as usize
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // A frame that was not given back keeps its number, so the range is not used again.
        if self.stacked() == self.numbers.count as usize {
            self.numbers.give_back();
        }
    }
}

/// Where the keys of `count` buffers of `stride` cache lines begin.
const fn keys(count: u32, stride: usize) -> usize {
    (count as usize * stride * LINE).next_multiple_of(PAGE)
}

/// The bytes of `count` buffers of `stride` cache lines, and of their keys.
const fn size(count: u32, stride: usize) -> usize {
    keys(count, stride) + count as usize * size_of::<FlowKey>()
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
