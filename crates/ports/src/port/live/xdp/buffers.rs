//! Buffers on their way to the kernel and back.
//!
//! ```text
//!  fill: pool ──> fill ring        accept: rx ring ──> frame, or a part of one
//!  submit: tx ring                 reap, spare: completion ring ──> pool
//! ```
//!
//! Invariants and thread-safety: as [`super`].

#![allow(unsafe_code, reason = "frames are created from buffers that the kernel returns")]

use flowyard_frame::{Batch, FlowKey, Frame, LANES, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::LinkType;

use super::super::calls::{Socket, System};
use super::Xdp;
use super::assembly::{Joined, MOST_PARTS};
use super::common::Bound;
use crate::af_xdp::Desc;
use crate::live::{is_down, offload};

/// How often the kernel is woken in succession; in copy mode it takes 32 frames each time.
const WAKES: usize = 4;

impl<S: System> Xdp<S> {
    /// Lends buffers to the kernel for receiving, from `pool` or from our own.
    pub(super) fn fill(&mut self, pool: Option<&mut Pool>) {
        let Some(Bound { socket, .. }) = &mut self.bound else { return };
        let pool = pool.unwrap_or(&mut self.pool);
        let most = self.common.port.settings.frames as usize;
        while most - self.out.filled.min(most) >= LANES && socket.fill_room() >= LANES {
            let (mut addrs, mut count) = ([0; LANES], 0);
            while count < LANES
                && let Ok(frame) = pool.take(0, Meta::default())
            {
                addrs[count] = pool.lend(frame);
                self.out.set(pool.buffer_at(addrs[count]));
                count += 1;
            }
            socket.fill(&addrs[..count]);
            self.out.filled += count;
            if count < LANES {
                return; // the pool is empty; retried by the next call
            }
        }
    }

    /// Takes a received buffer back. A frame is added to `into` when its last part has come. Returns the number of frames
    /// that are lost with this buffer: 1 if it is the last part of a frame for which there was no long buffer.
    #[inline]
    pub(super) fn accept(
        &mut self,
        desc: Desc,
        into: &mut Batch,
        pool: &mut Pool,
        now: Nanos,
    ) -> u32 {
        let Desc { addr, len, continues } = desc;
        if !self.out.clear(pool.buffer_at(addr)) {
            // Not lent, so it must not be accessed.
            let is_part = continues || self.assembly.has_begun();
            return if is_part { self.assembly.miss(continues, pool) } else { 0 };
        }
        self.out.filled = self.out.filled.saturating_sub(1);
        let in_port = self.number;
        let link = LinkType::Ethernet;
        let meta = Meta { time: now, wire_len: len, in_port, link, ..Meta::default() };
        // SAFETY: the buffer's bit was set and is now cleared: it was lent once and returns once.
        let mut frame = unsafe { pool.unlend(addr, len as usize, meta) };
        if continues || self.assembly.has_begun() {
            match self.assembly.add(frame, continues, pool) {
                Joined::Whole(whole) => frame = whole,
                Joined::Waits => return 0,
                Joined::Lost => return 1,
            }
        }
        if self.common.port.completes_checksums {
            offload::recompute(pool.bytes_mut(&mut frame));
        }
        if let Err(frame) = into.push(frame, FlowKey::ZERO) {
            pool.put(frame); // not reached: at most as many frames as lanes
        }
        0
    }

    /// Submits a copy of `frame` in several buffers, of which there are no more than `room`. Returns their number; `None` if
    /// there is no room, or there are no free buffers.
    #[cold]
    pub(super) fn transmit_parts(&mut self, frame: &Frame, room: usize) -> Option<usize> {
        let size = self.pool.longest();
        let count = frame.len().div_ceil(size);
        if count > room {
            return None;
        }
        let mut parts: [Frame; MOST_PARTS] = Default::default();
        let mut descs = [Desc::default(); MOST_PARTS];
        for at in 0..count {
            let len = size.min(frame.len() - at * size);
            let Some(part) = self.spare(len) else {
                parts.into_iter().take(at).for_each(|part| self.pool.put(part));
                return None;
            };
            parts[at] = part;
        }
        for (at, mut part) in parts.into_iter().take(count).enumerate() {
            let (start, len) = (at * size, part.len());
            let bytes = &self.pool.bytes(frame)[start..start + len];
            self.pool.bytes_mut(&mut part).copy_from_slice(bytes);
            let addr = self.pool.lend(part);
            self.out.set(self.pool.buffer_at(addr));
            descs[at] = Desc { addr, len: len as u32, continues: at + 1 < count };
        }
        self.submit(&descs[..count]);
        Some(count)
    }

    /// Puts frames into the tx ring.
    #[inline]
    pub(super) fn submit(&mut self, descs: &[Desc]) {
        if let Some(Bound { socket, .. }) = &mut self.bound {
            socket.transmit(descs);
            self.out.sent += descs.len();
        }
    }

    /// Wakes the kernel for submitted frames.
    pub(super) fn wake(&mut self) {
        let Some(Bound { socket, .. }) = &mut self.bound else { return };
        for _ in 0..WAKES {
            match socket.wake() {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    if is_down(&error) && self.monitor.watch.is_up() {
                        self.monitor.watch.hurry();
                    }
                    return;
                }
            }
        }
    }

    /// Takes back all transmitted frames.
    pub(super) fn reap(&mut self) {
        let Some(Bound { socket, .. }) = &mut self.bound else { return };
        let mut addrs = [0; LANES];
        loop {
            let count = socket.complete(&mut addrs);
            for &addr in &addrs[..count] {
                if self.out.clear(self.pool.buffer_at(addr)) {
                    self.out.sent = self.out.sent.saturating_sub(1);
                    // SAFETY: the buffer's bit was set and is now cleared: it was lent once and
                    // returns once.
                    let frame = unsafe { self.pool.unlend_sent(addr, 0) };
                    self.pool.put(frame);
                }
            }
            if count < LANES {
                return;
            }
        }
    }

    /// A replacement for a frame that is transmitted: a completed frame, or one from the pool.
    pub(super) fn spare(&mut self, len: usize) -> Option<Frame> {
        let Some(Bound { socket, .. }) = &mut self.bound else { return None };
        let mut addr = [0];
        while socket.complete(&mut addr) == 1 {
            if self.out.clear(self.pool.buffer_at(addr[0])) {
                self.out.sent = self.out.sent.saturating_sub(1);
                // SAFETY: the buffer's bit was set and is now cleared: it was lent once and returns
                // once.
                return Some(unsafe { self.pool.unlend_sent(addr[0], len) });
            }
        }
        self.pool.take(len, Meta::default()).ok()
    }
}
