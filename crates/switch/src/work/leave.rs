//! How frames leave: the effects of a frame become its action, and copies that are tied to it.
//!
//! ```text
//!  one output, same bytes      the frame goes to the port
//!  several, or other bytes     copies are tied to the frame, which takes the bytes of the last
//!  no buffer for a long one    its segments leave in its place, in order
//! ```

use flowyard_frame::{Batch, Frame, Nanos, To};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::Offload;
use flowyard_wire::segment::Cut;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

use super::Switch;
use crate::unfinished::is_long;
use crate::{Bytes, Reason, Sent};

/// The most segments into which a frame is cut here: those of the largest frame of a sender whose segments have 36 bytes,
/// which is less than any sender makes (RFC 879: 536 bytes).
pub(super) const MOST: usize = 2048;

/// Copies of a frame, in the order in which they leave.
pub(super) struct Copies<'a> {
    pub(super) own: &'a mut Pool,
    pub(super) list: &'a mut Vec<(Frame, u16)>,
    /// What is known of the frame.
    pub(super) meta: Meta,
    /// Its hash and its mark.
    pub(super) tags: (u32, u32),
    /// Frames for which there is no buffer, or no port.
    pub(super) missing: usize,
}

impl Copies<'_> {
    /// A frame of `len` bytes that `write` writes. Returns whether there is a buffer.
    fn one(
        &mut self,
        (len, offload): (usize, Offload),
        to: u16,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let meta = Meta { wire_len: len as u32, offload, copied: 0, ..self.meta };
        let Ok(mut copy) = self.own.take(len, meta) else { return false };
        write(self.own.bytes_mut(&mut copy));
        (copy.hash, copy.mark) = self.tags;
        self.list.push((copy, to));
        true
    }

    /// A frame with these bytes, of which `left` is left to do. If it is long, and there is no buffer, its segments.
    pub(super) fn add(&mut self, bytes: &[u8], left: Offload, to: u16) {
        let is_there = self.one((bytes.len(), left), to, |copy| copy.copy_from_slice(bytes));
        if !is_there && is_long(left) {
            self.segments(bytes, left, to);
        } else if !is_there {
            self.missing += 1;
        }
    }

    /// The segments of a frame with these bytes.
    pub(super) fn segments(&mut self, bytes: &[u8], left: Offload, to: u16) {
        let cut = Cut::new(bytes, left).ok().filter(|cut| cut.count() <= MOST);
        let Some(cut) = cut else { return self.missing += 1 };
        for n in 0..cut.count() {
            let write = |out: &mut [u8]| _ = cut.write(bytes, n, out);
            if !self.one((cut.len(n), Offload::NONE), to, write) {
                return self.missing += cut.count() - n;
            }
        }
    }
}

impl Switch {
    /// Turns the effects of the frame in `lane` into its action.
    pub(super) fn leave(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, now: Nanos) {
        let Some((last, others)) = self.out.sent.split_last() else {
            return refuse(batch, lane, Reason::counted(self.out.reason));
        };
        if others.is_empty() && last.bytes == Bytes::Same {
            let Some(port) = self.port(last.port) else {
                return refuse(batch, lane, DropReason::NoRoute);
            };
            self.hub.count(port, true, self.core, batch.frames[lane].len(), now);
            batch.actions[lane].to = To::Port(port);
            return;
        }
        self.leave_changed(batch, lane, pool, now);
    }

    /// As [`Switch::leave`], for several frames, or one with other bytes.
    fn leave_changed(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, now: Nanos) {
        let frame = &mut batch.frames[lane];
        let room = pool.longest_of(frame);
        // Frames that no buffer can hold, or that have no port, are not sent. Those behind the last one that can leave count
        // as missing, as do the others of which no copy can be made.
        let fits = |sent: &Sent| match sent.bytes {
            Bytes::Same => true,
            Bytes::Changed { len, .. } => len as usize <= room || is_long(sent.left),
        };
        let place = |number: u32| {
            let at = self.numbers.binary_search_by_key(&number, |(number, _)| *number);
            at.ok().map(|at| self.numbers[at].1)
        };
        let exit =
            |(at, sent): (usize, &Sent)| Some((at, place(sent.port).filter(|_| fits(sent))?));
        let Some((end, port)) = self.out.sent.iter().enumerate().rev().find_map(exit) else {
            let is_short = self.out.sent.iter().any(fits);
            let reason = if is_short { DropReason::NoRoute } else { DropReason::TooLong };
            return refuse(batch, lane, reason);
        };
        let (last, others) = (self.out.sent[end], &self.out.sent[..end]);
        let (meta, tags) = (pool.meta(frame), (frame.hash, frame.mark));
        let (list, missing) = (&mut self.leaving, self.out.sent.len() - 1 - end);
        let own = self.pool.get_or_insert_with(|| pool.share());
        let mut copies = Copies { own, list, meta, tags, missing };
        for sent in others {
            match place(sent.port) {
                Some(to) => copies.add(self.out.bytes(sent, pool.bytes(frame)), sent.left, to),
                None => copies.missing += 1,
            }
        }
        // The frame itself is sent last, because the copies need the received bytes.
        if let Bytes::Changed { len, .. } = last.bytes {
            let bytes = self.out.bytes(&last, &[]);
            if len as usize > room {
                copies.segments(bytes, last.left, port);
                let missing = copies.missing;
                return self.tie(batch, lane, missing, pool, now);
            }
            let done = pool.overwrite(frame, bytes);
            debug_assert!(done, "there is room");
            let meta = pool.meta(frame);
            pool.set_meta(frame, Meta { offload: last.left, ..meta });
        }
        let missing = copies.missing;
        self.tie_to(batch, lane, (port, missing), pool, now);
    }

    /// Ties the frames in `leaving` to the one in `lane`, which takes the bytes of the last of them.
    pub(super) fn tie(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        missing: usize,
        pool: &Pool,
        now: Nanos,
    ) {
        let frame = &mut batch.frames[lane];
        let own = self.pool.get_or_insert_with(|| pool.share());
        let Some((last, port)) = self.leaving.pop() else {
            return refuse(batch, lane, DropReason::NoBuffer);
        };
        let left = pool.meta(&last).offload;
        let done = pool.overwrite(frame, pool.bytes(&last));
        own.put(last);
        if !done {
            self.leaving.drain(..).for_each(|(copy, _)| own.put(copy));
            return refuse(batch, lane, DropReason::TooLong);
        }
        let meta = pool.meta(frame);
        pool.set_meta(frame, Meta { offload: left, ..meta });
        self.tie_to(batch, lane, (port, missing), pool, now);
    }

    /// Ties the frames in `leaving` to the one in `lane`, which leaves behind them by this port.
    fn tie_to(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        (port, missing): (u16, usize),
        pool: &Pool,
        now: Nanos,
    ) {
        let frame = &mut batch.frames[lane];
        self.hub.count(port, true, self.core, frame.len(), now);
        if self.leaving.is_empty() && missing == 0 {
            batch.actions[lane].to = To::Port(port);
            return;
        }
        for (copy, to) in self.leaving.drain(..).rev() {
            self.hub.count(to, true, self.core, copy.len(), now);
            pool.tie(frame, copy, to);
        }
        let missing = u16::try_from(missing).unwrap_or(u16::MAX);
        pool.set_last(frame, port, (missing, DropReason::NoBuffer.code()));
        batch.actions[lane].to = To::CHAIN;
    }
}
