//! A long frame of a TAP for which there is no buffer: its parts are gathered here, and it is cut into segments.
//!
//! ```text
//!  read ──> [buffer of the first size] [buffer of the second size, from there on] [the rest]   one call
//!               └─ copied in front of the second, if the frame is so long: most of it is read in place
//!  no buffer of the second size ──> [buffer of the first size] [the rest] ──gather──> segments
//! ```
//!
//! Invariants: the segments of a frame are received before the next frame; a frame that cannot be cut is counted.
//! Thread-safety: used by one core.

use std::io;

use flowyard_frame::{Batch, FlowKey, Frame, LANES};
use flowyard_pool::{LONGEST, Meta, Pool};
use flowyard_wire::Offload;
use flowyard_wire::segment::Cut;
use flowyard_yard::port::Received;

use super::calls::Queue;
use crate::tap::Got;

/// The longest frame that the host sends: an IP packet of 65,535 bytes, with an Ethernet header and tags.
const MOST: usize = LONGEST + 64;

/// Where long frames are gathered.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// What a read has behind the buffers; taken when the first long frame may come.
    rest: Box<[u8]>,
    /// A whole frame that is being cut.
    whole: Box<[u8]>,
    /// Its length, and the segment that is next.
    cut: Option<(usize, Cut, usize)>,
    /// Whether a frame was gathered that cannot be cut.
    is_refused: bool,
}

impl Long {
    /// Reads a frame into `first`, whose length is that of its buffer, and what is longer into `large` where it would stand in
    /// a whole frame.
    #[inline]
    pub(super) fn read<Q: Queue>(
        &mut self,
        queue: &mut Q,
        first: &mut Frame,
        large: Option<&mut Frame>,
        pool: &Pool,
    ) -> io::Result<(Got, [u8; Offload::VIRTIO_LEN])> {
        let start = first.len();
        if !queue.carries().segments() {
            // One byte more than there is room for shows that a frame is longer.
            let read = queue.read([pool.bytes_mut(first), &mut [0], &mut []])?;
            let is_longer = matches!(read.0, Got::Frame(len) if len > start);
            return Ok(if is_longer { (Got::TooLong, read.1) } else { read });
        }
        if self.rest.is_empty() {
            self.rest = vec![0; MOST].into();
        }
        let rest = &mut self.rest[..];
        match large {
            Some(large) => {
                let behind = pool.bytes_mut(large).get_mut(start..).unwrap_or_default();
                let at = rest.len() - (MOST - LONGEST);
                queue.read([pool.bytes_mut(first), behind, &mut rest[at..]])
            }
            None => queue.read([pool.bytes_mut(first), &mut rest[..MOST - start], &mut []]),
        }
    }

    /// Gathers a frame of `len` bytes that no buffer has room for, to cut it: its parts in buffers of both sizes, and what
    /// was read behind these.
    #[cold]
    pub(super) fn gather(
        &mut self,
        parts: [&[u8]; 2],
        len: usize,
        header: [u8; Offload::VIRTIO_LEN],
    ) {
        if self.whole.is_empty() {
            self.whole = vec![0; MOST].into();
        }
        self.cut = None;
        let Some(frame) = self.whole.get_mut(..len) else { return self.is_refused = true };
        let at = if parts[1].is_empty() { 0 } else { self.rest.len() - (MOST - LONGEST) };
        let mut left = &mut frame[..];
        for part in [parts[0], parts[1], &self.rest[at..]] {
            let (to, later) = left.split_at_mut(left.len().min(part.len()));
            to.copy_from_slice(&part[..to.len()]);
            left = later;
        }
        let offload = Offload::from_virtio(&header, frame).ok();
        let cut = offload.and_then(|offload| Cut::new(frame, offload).ok());
        self.cut = cut.map(|cut| (len, cut, 0));
        self.is_refused = self.cut.is_none();
    }

    /// Whether no frame is being cut.
    pub(super) const fn is_clear(&self) -> bool {
        self.cut.is_none() && !self.is_refused
    }

    /// Receives segments of the gathered frame. Returns whether none is left.
    #[inline]
    pub(super) fn rest(
        &mut self,
        into: &mut Batch,
        pool: &mut Pool,
        meta: Meta,
        got: &mut Received,
    ) -> bool {
        if self.is_refused {
            got.too_long += 1;
            self.is_refused = false;
        }
        self.cut.is_none() || self.segments(into, pool, meta, got)
    }

    #[cold]
    fn segments(
        &mut self,
        into: &mut Batch,
        pool: &mut Pool,
        meta: Meta,
        got: &mut Received,
    ) -> bool {
        let Some((len, cut, next)) = &mut self.cut else { return true };
        while *next < cut.count() && into.len() < LANES {
            let bytes = cut.len(*next);
            if bytes > pool.longest() {
                got.too_long += 1;
                *next += 1;
                continue;
            }
            let meta = Meta { wire_len: bytes as u32, ..meta };
            let Ok(mut frame) = pool.take(bytes, meta) else { return false };
            cut.write(&self.whole[..*len], *next, pool.bytes_mut(&mut frame));
            *next += 1;
            if let Err(frame) = into.push(frame, FlowKey::ZERO) {
                pool.put(frame); // not reached: a lane is free
            }
        }
        let is_done = *next >= cut.count();
        if is_done {
            self.cut = None;
        }
        is_done
    }
}
