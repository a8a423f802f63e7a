//! Batches: frames are copied into buffers, and given back, many at a time.
//!
//! Invariants: as of single frames; a lane from the batch's length on names no buffer.
//! Thread-safety: as the pool's.

use std::slice;

use flowyard_frame::{Batch, Frame, LANES};
use flowyard_mem::{Access::Write, copy, prefetch, prefetch_all};

use crate::{CHAIN, LINE, Meta, Pool, START};

/// How many buffers ahead memory is prefetched.
const AHEAD: usize = 12;

/// Behind a frame longer than this, all memory of the next buffer is prefetched: the next frame is probably as long, and its
/// copy would wait for each cache line that another core has changed.
const LONG: usize = 512;

/// Frames that [`Pool::copy_batch`] did not copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Frames longer than a buffer.
    pub too_long: u32,
    /// Frames without bytes.
    pub empty: u32,
}

/// What a port did with the buffer that [`Pool::fill_batch`] offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// A frame of this many bytes is in it.
    Frame(usize),
    /// Nothing is in it: the next frame may have it.
    Nothing,
    /// Nothing is in it, and nothing more comes.
    End,
}

impl Pool {
    /// Whether buffers are given back by other cores than those that take them, as where frames pass from core to core.
    /// Then [`Pool::copy_batch`] prefetches the memory of the next buffers.
    pub const fn set_prefetch(&mut self, prefetch: bool) {
        self.prefetch = prefetch;
    }

    /// Copies `frames` into buffers, up to the first that there is no buffer or no lane for, and adds them to
    /// `into`. The keys and actions of the lanes are left as they are: the caller writes them.
    #[inline]
    pub fn copy_batch<'a>(
        &mut self,
        into: &mut Batch,
        frames: impl Iterator<Item = (Meta, &'a [u8])>,
    ) -> Copied {
        // In locals, because what is written into buffers might change what is behind a pointer.
        let (base, first) = (self.arena.base(), self.arena.numbers.first);
        let (stride, longest) = (self.arena.stride * LINE, self.longest());
        let (mut lane, mut copied) = (into.len(), Copied::default());
        for (meta, data) in frames {
            if data.is_empty() {
                copied.empty += 1;
                continue;
            }
            if data.len() > longest {
                if data.len() > self.longest_large() {
                    copied.too_long += 1;
                    continue;
                }
                if lane == LANES {
                    break;
                }
                let Ok(frame) = self.copy(data, meta) else { break };
                into.frames[lane] = frame;
                lane += 1;
                continue;
            }
            if lane == LANES {
                break;
            }
            if self.free.is_empty() {
                self.arena.pop(&mut self.free);
            }
            let Some(buf) = self.free.pop() else { break };
            if self.prefetch
                && let Some(next) = self.free.len().checked_sub(AHEAD)
            {
                let place = self.free[next] - 1;
                let next = base.wrapping_add(place as usize * stride);
                prefetch(next, Write);
                prefetch(next.wrapping_add(START), Write);
                prefetch(self.arena.key(place), Write);
                if data.len() > LONG
                    && let Some(next) = self.free.last()
                {
                    let next = base.wrapping_add((next - 1) as usize * stride + START + LINE);
                    prefetch_all(next, data.len(), Write);
                }
            }
            // SAFETY: the buffer has left the free list. It has room for the data, which is checked above, behind its
            // meta; `data` is in no buffer that was free.
            unsafe {
                let place = buf - 1;
                let buffer = base.add(place as usize * stride);
                buffer.cast::<Meta>().write(meta);
                copy(data.as_ptr(), buffer.add(START), data.len());
                let len = data.len() as u16;
                into.frames[lane] = Frame::from_raw_parts(first + place, START as u16, len);
            }
            lane += 1;
        }
        into.set_len(lane);
        copied
    }

    /// Lets `fill` write frames into buffers of the first size, until it returns [`Filled::End`] or an error, or there is no
    /// buffer or no lane, and adds them to `into`. All get `meta`, with their own length on the wire. The keys and actions
    /// of the lanes are left as they are: the caller writes them.
    ///
    /// # Errors
    /// The error of `fill`. The frames before are in the batch.
    #[inline]
    pub fn fill_batch<E>(
        &mut self,
        into: &mut Batch,
        meta: Meta,
        mut fill: impl FnMut(&mut [u8]) -> Result<Filled, E>,
    ) -> Result<(), E> {
        let (base, first) = (self.arena.base(), self.arena.numbers.first);
        let (stride, longest) = (self.arena.stride * LINE, self.longest());
        let (mut lane, mut result) = (into.len(), Ok(()));
        while lane < LANES {
            if self.free.is_empty() {
                self.arena.pop(&mut self.free);
            }
            let Some(place) = self.free.last().map(|buf| buf - 1) else { break };
            // SAFETY: the buffer is in the free list of this handle, so no frame names it; the room lies in the buffer, behind
            // its meta, and all of it is initialised.
            let (buffer, room) = unsafe {
                let buffer = base.add(place as usize * stride);
                (buffer, slice::from_raw_parts_mut(buffer.add(START), longest))
            };
            match fill(room) {
                Ok(Filled::Frame(len)) => {
                    let len = len.min(longest);
                    // SAFETY: the buffer leaves the free list, and gets one frame.
                    unsafe {
                        buffer.cast::<Meta>().write(Meta { wire_len: len as u32, ..meta });
                        into.frames[lane] =
                            Frame::from_raw_parts(first + place, START as u16, len as u16);
                    }
                    self.free.pop();
                    lane += 1;
                }
                Ok(Filled::Nothing) => {}
                Ok(Filled::End) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        into.set_len(lane);
        result
    }

    /// Prefetches all bytes of `frame` and `more` bytes behind them, to be written. For works that change whole frames
    /// which another core has received.
    #[inline]
    pub fn prefetch(&self, frame: &Frame, more: usize) {
        let Some((start, len)) = self.range(frame) else { return };
        prefetch_all(start, len + more, Write);
    }

    /// Takes the frames of all lanes back, and empties the batch.
    #[inline]
    pub fn put_batch(&mut self, batch: &mut Batch) {
        if self.has_large() {
            self.put_large_lanes(batch);
        }
        if self.free.len() + batch.len() > 2 * CHAIN {
            self.arena.push(&self.free[..CHAIN]);
            self.free.copy_within(CHAIN.., 0);
            self.free.truncate(self.free.len() - CHAIN);
        }
        let (mut bufs, mut count) = ([0; LANES], 0);
        for lane in 0..batch.len().min(LANES) {
            let frame = std::mem::take(&mut batch.frames[lane]);
            debug_assert!(frame.buf() == 0 || self.owns(&frame), "a frame of another pool");
            let place = self.arena.numbers.place(frame.buf());
            bufs[count % LANES] = place.unwrap_or(0) + 1;
            count += usize::from(place.is_some()); // an empty handle is nothing to take
        }
        self.free.extend_from_slice(&bufs[..count]);
        batch.set_len(0);
    }
}
