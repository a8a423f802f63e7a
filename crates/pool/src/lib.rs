//! Pool: the memory of all frames, taken once at start.
//!
//! ```text
//!  buffer   [ meta, 64 bytes | bytes of the frame ...            ]  x frames
//!                              ^ Frame { buf, off, len }
//!  key      [ key of the frame, 64 bytes: only while it is in a queue ]  x frames
//!
//!  core 0: free [7 3 9 ..]  ──32 at a time──>  shared: chain ─> chain ─> chain
//!  core 1: free [..]        <──────────────             (a Treiber stack of chains)
//! ```
//!
//! Every core has a handle of its own, with its own free list: taking and giving back touch no
//! shared line. Only each 32nd time a chain of 32 buffers moves to or from the shared stack, by
//! one compare-and-swap; a version number beside the stack's head keeps a slow core from
//! mistaking a chain that left and came back for one that never left (the ABA problem).
//!
//! Invariants: a buffer is in one free list, or in the one [`Frame`] that names it; a frame is
//! not `Clone` and giving it back consumes it, so it cannot be given back twice. The numbers of
//! buffers are unique in the process: a frame of one pool names nothing in another one. Buffers count
//! from 1: an empty handle (`Frame::default()`) names none. [`Pool::held`] finds leaks.
//! Thread-safety: a handle is one core's; buffers may be taken by one handle and given back to
//! another of the same pool.
//!
//! Soundness: the bytes are reached through a frame, `&mut` bytes through `&mut` frame, so the
//! uniqueness of frames is what keeps two cores apart. Safe code cannot make a frame that names a
//! buffer:
//!
//! ```compile_fail,E0133
//! let pool = flowyard_pool::Pool::new(1, 64);
//! let mut forged = flowyard_frame::Frame::from_raw_parts(1, 64, 60);
//! pool.bytes_mut(&mut forged).fill(0);
//! ```
//! [`Frame::from_raw_parts`] is `unsafe`, and only this crate calls it.
#![allow(
    unsafe_code,
    reason = "buffers are shared memory; its Frame says which code owns a buffer"
)]

use std::alloc::{Layout, handle_alloc_error};
use std::slice;
use std::sync::Arc;

use flowyard_frame::{Frame, Nanos};
use flowyard_wire::LinkType;
use flowyard_wire::Offload;

use self::adopt::Claims;
use self::arena::Arena;
use self::large::Large;

mod adopt;
mod arena;
mod batch;
mod chain;
mod keys;
mod large;
mod lend;
mod memory;
mod numbers;
mod umem;

pub use adopt::PoolMemory;
pub use batch::{Copied, Filled};
pub use large::LARGE_FRAMES;
pub use lend::LONGEST_LENDABLE;
pub use umem::{HEADROOM, Umem};

/// The longest frame that any pool takes, in bytes.
pub const LONGEST: usize = u16::MAX as usize;

/// The most buffers of a pool.
pub const FRAMES: usize = 1 << 26;

/// Buffers that move between a core and the shared stack at a time.
const CHAIN: usize = 32;

/// Where a frame starts in its buffer: its [`Meta`] stands before.
const START: usize = LINE;

/// A cache line: buffers start and end on one.
const LINE: usize = 64;

/// The memory starts on a page: the kernel takes no other.
const PAGE: usize = 4096;

/// What a port knows of a frame besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Meta {
    /// When it was received, or captured.
    pub time: Nanos,
    /// Its length on the wire in bytes; a capture may hold less.
    pub wire_len: u32,
    /// The port it came in by.
    pub in_port: u16,
    /// What its first byte is.
    pub link: LinkType,
    /// How many ports of its list have a copy of it already (see `ToPorts` of the engine).
    pub copied: u16,
    /// How many of its segments have left already, if the port that it leaves by cuts it.
    pub segments_sent: u16,
    /// What is left to do before its bytes are those of a wire.
    pub offload: Offload,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            time: 0,
            wire_len: 0,
            in_port: 0,
            link: LinkType::Ethernet,
            copied: 0,
            segments_sent: 0,
            offload: Offload::NONE,
        }
    }
}

/// Why there is no buffer for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBuffer {
    /// The frame is longer than a buffer.
    TooLong,
    /// All buffers are in use.
    Empty,
}

/// One core's handle on the pool.
#[derive(Debug)]
pub struct Pool {
    arena: Arc<Arena>,
    /// Buffers this core may take; never more than two chains.
    free: Vec<u32>,
    /// Whether the memory of the next buffers is prefetched: see [`Pool::set_prefetch`].
    prefetch: bool,
    /// Buffers of the second size, if there are any.
    large: Option<Box<Large>>,
    /// The buffers that are lent, of a pool that is taken over from another process.
    claims: Arc<Claims>,
}

/// The buffer of a frame.
#[derive(Clone, Copy)]
struct Room {
    /// Where its meta stands.
    start: *mut u8,
    /// Its length, with the meta.
    bytes: usize,
}

/// Cache lines of a buffer for frames of up to `bytes` bytes.
fn stride(bytes: usize) -> usize {
    1 + bytes.clamp(LINE, LONGEST).div_ceil(LINE)
}

impl Pool {
    /// A pool of `frames` buffers for frames of up to `bytes` bytes (at most [`LONGEST`]). This is
    /// the one allocation. The process ends if there is not so much memory.
    #[must_use]
    pub fn new(frames: usize, bytes: usize) -> Self {
        Self::shaped(frames, stride(bytes)).unwrap_or_else(|layout| handle_alloc_error(layout))
    }

    /// As [`Pool::new`]; `None` if there is not so much memory.
    #[must_use]
    pub fn try_new(frames: usize, bytes: usize) -> Option<Self> {
        Self::shaped(frames, stride(bytes)).ok()
    }

    fn shaped(frames: usize, stride: usize) -> Result<Self, Layout> {
        let arena = Arena::new(frames.clamp(1, FRAMES) as u32, stride)?;
        Ok(Self::filled(arena))
    }

    /// All buffers of a new arena.
    fn filled(arena: Arena) -> Self {
        let mut pool = Self::empty(arena);
        for buf in (1..=pool.arena.numbers.count).rev() {
            // SAFETY: the memory is new, and each buffer gets one frame.
            let mut frame = unsafe { pool.arena.frame(buf, START as u16, 0) };
            pool.set_meta(&mut frame, Meta::default()); // from here on every meta is a valid one
            pool.put(frame);
        }
        pool
    }

    /// No buffer of an arena.
    fn empty(arena: Arena) -> Self {
        let free = Vec::with_capacity(2 * CHAIN);
        Self { arena: Arc::new(arena), free, prefetch: false, large: None, claims: Arc::default() }
    }

    /// Makes `frame` one of `len` bytes: what a port received is shorter than the room for it.
    #[inline]
    pub fn set_len(&self, frame: &mut Frame, len: usize) {
        let (buf, off) = (frame.buf(), frame.off() as u16);
        // What the buffer has no room for, `range` cuts off.
        // SAFETY: it replaces the frame that owns the buffer.
        let mut new = unsafe { Frame::from_raw_parts(buf, off, len.min(LONGEST) as u16) };
        (new.hash, new.mark) = (frame.hash, frame.mark);
        *frame = new;
    }

    /// Another core's handle on the same buffers.
    #[must_use]
    pub fn share(&self) -> Self {
        let free = Vec::with_capacity(2 * CHAIN);
        let large = self.large.as_ref().map(|large| Box::new(large.share()));
        let (arena, claims) = (Arc::clone(&self.arena), Arc::clone(&self.claims));
        Self { arena, free, prefetch: self.prefetch, large, claims }
    }

    /// A frame of `len` bytes, whatever they are.
    ///
    /// # Errors
    /// When `len` is more than a buffer holds, or no buffer is free.
    #[inline]
    pub fn take(&mut self, len: usize, meta: Meta) -> Result<Frame, NoBuffer> {
        if len > self.longest() {
            return self.take_large(len, meta);
        }
        if self.free.is_empty() {
            self.arena.pop(&mut self.free);
        }
        let buf = self.free.pop().ok_or(NoBuffer::Empty)?;
        // SAFETY: a buffer in the free list is in no frame, and it has just left the list.
        let mut frame = unsafe { self.arena.frame(buf, START as u16, len as u16) };
        self.set_meta(&mut frame, meta);
        Ok(frame)
    }

    /// A frame with a copy of `data`.
    ///
    /// # Errors
    /// As [`Pool::take`].
    #[inline]
    pub fn copy(&mut self, data: &[u8], meta: Meta) -> Result<Frame, NoBuffer> {
        let mut frame = self.take(data.len(), meta)?;
        self.bytes_mut(&mut frame).copy_from_slice(data);
        Ok(frame)
    }

    /// Another frame with the bytes of `frame`, and with what is known of it.
    ///
    /// # Errors
    /// When no buffer is free.
    #[inline]
    pub fn copy_of(&mut self, frame: &Frame) -> Result<Frame, NoBuffer> {
        let meta = Meta { copied: 0, ..self.meta(frame) };
        let mut copy = self.take(frame.len(), meta)?;
        self.bytes_mut(&mut copy).copy_from_slice(self.bytes(frame));
        (copy.hash, copy.mark) = (frame.hash, frame.mark);
        Ok(copy)
    }

    /// Takes a frame back. An empty handle is nothing to take.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "who gave a frame back has it no more")]
    pub fn put(&mut self, frame: Frame) {
        debug_assert!(frame.buf() == 0 || self.owns(&frame), "a frame of another pool");
        let Some(place) = self.arena.numbers.place(frame.buf()) else {
            return self.put_large(&frame);
        };
        if self.free.len() == 2 * CHAIN {
            self.arena.push(&self.free[..CHAIN]);
            self.free.copy_within(CHAIN.., 0);
            self.free.truncate(CHAIN);
        }
        self.free.push(place + 1);
    }

    /// Whether `frames` buffers (at most 32) are free to this core now.
    #[must_use]
    pub fn has(&mut self, frames: usize) -> bool {
        while self.free.len() < frames.min(CHAIN) {
            let before = self.free.len();
            self.arena.pop(&mut self.free);
            if self.free.len() == before {
                return false;
            }
        }
        true
    }

    /// The bytes of `frame`.
    #[must_use]
    #[inline]
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        let Some((start, len)) = self.range(frame) else { return &[] };
        // SAFETY: `range` lies in the buffer that `frame` names, past its meta, and all of it is
        // initialised. The frame is unique and borrowed, so nobody writes while this slice lives.
        unsafe { slice::from_raw_parts(start, len) }
    }

    /// The bytes of `frame`, to be changed.
    #[must_use]
    #[inline]
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let Some((start, len)) = self.range(frame) else { return &mut [] };
        // SAFETY: as in `bytes`; the frame is borrowed mutably, so nobody reads either.
        unsafe { slice::from_raw_parts_mut(start, len) }
    }

    /// Makes room for `n` bytes at byte `at` of `frame`, zeros; its length on the wire grows with
    /// it. What is in front of them moves as far as there is room before the frame, what is behind
    /// moves for the rest. `false`, and nothing is changed, if the frame is shorter or
    /// its buffer no room.
    #[must_use]
    pub fn insert(&self, frame: &mut Frame, at: usize, n: usize) -> bool {
        let (off, len) = self.place(frame);
        if at > len || len.saturating_add(n) > self.longest_of(frame) {
            return false;
        }
        let Some(offload) = shifted(self.meta(frame).offload, at, n as isize) else { return false };
        let before = n.min(off);
        let to = off - before;
        let room = self.room_mut(frame);
        room.copy_within(off..off + at, to);
        if n > before {
            room.copy_within(off + at..off + len, to + at + n);
        }
        room[to + at..to + at + n].fill(0);
        self.replace(frame, to, len + n, offload)
    }

    /// Takes `n` bytes at byte `at` out of `frame`; its length on the wire shrinks with it. What is
    /// in front of them moves. `false`, and nothing is changed, if the frame is shorter.
    #[must_use]
    pub fn remove(&self, frame: &mut Frame, at: usize, n: usize) -> bool {
        let (off, len) = self.place(frame);
        if at.saturating_add(n) > len || START + off + n > usize::from(u16::MAX) {
            return false;
        }
        let by = -(n as isize);
        let Some(offload) = shifted(self.meta(frame).offload, at + n, by) else { return false };
        self.room_mut(frame).copy_within(off..off + at, off + n);
        self.replace(frame, off + n, len - n, offload)
    }

    /// Makes `frame` one of `len` bytes, if it has more: the others are gone.
    pub fn truncate(&self, frame: &mut Frame, len: usize) {
        let (off, old) = self.place(frame);
        if len < old {
            self.replace(frame, off, len, self.meta(frame).offload);
        }
    }

    /// What the port knows of `frame`.
    #[must_use]
    #[inline]
    pub fn meta(&self, frame: &Frame) -> Meta {
        let Some(room) = self.room(frame) else { return Meta::default() };
        // SAFETY: the first line of a buffer holds a valid meta from `new` on, and bytes never
        // reach into it. The frame is unique and borrowed, so nobody writes it meanwhile.
        unsafe { room.start.cast::<Meta>().read() }
    }

    /// Says what the port knows of `frame`.
    #[inline]
    pub fn set_meta(&self, frame: &mut Frame, meta: Meta) {
        let Some(room) = self.room(frame) else { return };
        // SAFETY: as in `meta`; the frame is borrowed mutably, so nobody reads it meanwhile. A
        // buffer starts on a cache line, which is aligned enough.
        unsafe { room.start.cast::<Meta>().write(meta) }
    }

    /// How many bytes a buffer of the first size holds.
    #[must_use]
    #[inline]
    pub fn longest(&self) -> usize {
        LONGEST.min((self.arena.stride - 1) * LINE) // a lendable one has more than was asked for
    }

    /// The position of the frame's buffer among those of the pool, from 0: those of the second size are behind the
    /// others. `None` if it is none of them.
    #[must_use]
    #[inline]
    pub fn position(&self, frame: &Frame) -> Option<usize> {
        match self.arena.numbers.place(frame.buf()) {
            Some(place) => Some(place as usize),
            None => self.large_position(frame),
        }
    }

    /// How many buffers of the first size there are.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.arena.numbers.count as usize
    }

    /// Buffers that are in neither this handle's list nor the shared stack. Once all other handles
    /// are gone (dropping one gives its list back) these are the frames still held somewhere: 0,
    /// or a leak.
    #[must_use]
    pub fn held(&self) -> usize {
        let small = self.frames().saturating_sub(self.free.len() + self.arena.stacked());
        small + self.large.as_ref().map_or(0, |large| large.held())
    }

    /// Where the frame's buffer of the first size starts; `None` for other frames.
    #[inline]
    fn buffer(&self, frame: &Frame) -> Option<usize> {
        let place = self.arena.numbers.place(frame.buf())?;
        Some(place as usize * self.arena.stride * LINE)
    }

    /// The frame's buffer; `None` for an empty handle, and for a frame of another pool.
    #[inline]
    fn room(&self, frame: &Frame) -> Option<Room> {
        match self.arena.numbers.place(frame.buf()) {
            Some(place) => Some(self.arena.room(place)),
            None => self.large_room(frame),
        }
    }

    /// Whether `frame` names a buffer of this pool.
    #[inline]
    fn owns(&self, frame: &Frame) -> bool {
        self.room(frame).is_some()
    }

    /// How many bytes the buffer of `frame` holds.
    #[must_use]
    #[inline]
    pub fn longest_of(&self, frame: &Frame) -> usize {
        self.room(frame).map_or(0, |room| LONGEST.min(room.bytes - START))
    }

    /// Start and length of the frame's bytes, from where its meta ends.
    fn place(&self, frame: &Frame) -> (usize, usize) {
        let Some(Room { bytes, .. }) = self.room(frame) else { return (0, 0) };
        let off = frame.off().clamp(START, bytes);
        (off - START, frame.len().min(bytes - off))
    }

    /// All of the frame's buffer behind the meta; nothing for an empty handle.
    fn room_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let Some(Room { start, bytes }) = self.room(frame) else { return &mut [] };
        // SAFETY: this is the buffer that `frame` names, past its meta; else as in `bytes_mut`.
        unsafe { slice::from_raw_parts_mut(start.add(START), bytes - START) }
    }

    /// Says that the frame has `len` bytes from `off` behind its meta, and not as many as before.
    fn replace(&self, frame: &mut Frame, off: usize, len: usize, offload: Offload) -> bool {
        let mut meta = Meta { offload, ..self.meta(frame) };
        meta.wire_len = meta.wire_len.saturating_sub(frame.len() as u32) + len as u32;
        self.set_meta(frame, meta);
        let (hash, mark) = (frame.hash, frame.mark);
        // SAFETY: it replaces the frame that owns the buffer.
        *frame = unsafe { Frame::from_raw_parts(frame.buf(), (START + off) as u16, len as u16) };
        (frame.hash, frame.mark) = (hash, mark);
        true
    }

    /// Start and length of the frame's bytes, inside its buffer and past the meta.
    #[inline]
    fn range(&self, frame: &Frame) -> Option<(*mut u8, usize)> {
        let Room { start, bytes } = self.room(frame)?;
        let off = frame.off().clamp(START, bytes);
        Some((start.wrapping_add(off), frame.len().min(bytes - off)))
    }
}

/// The offload after `by` bytes were added at byte `at`, or removed in front of it.
fn shifted(offload: Offload, at: usize, by: isize) -> Option<Offload> {
    if at > usize::from(offload.checksum_start) { Some(offload) } else { offload.shifted(by) }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for chain in self.free.chunks(CHAIN) {
            self.arena.push(chain);
        }
    }
}

#[cfg(test)]
mod tests;
