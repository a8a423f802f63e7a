//! Finishes frames for a port that cannot pass them on unfinished: checksums are completed, long frames cut into segments.
//!
//! ```text
//!  batch  [a] [b: partial checksum] [c: 45 segments] [d]
//!  port   [a] [b] | [c1 .. c32] | [c33 .. c45] | [d]         bytes as on a wire, in the order of the batch
//! ```
//!
//! A frame that is cut stays one frame of the engine: it is received once and transmitted once. Its segments have a counter of
//! their own.
//!
//! Invariants: frames and segments keep the order of the batch. A port that takes only some segments of a frame gets the
//! others when the frame is offered again: the metadata say how many have left. A frame of which the port refuses a
//! segment is refused, and its other segments do not follow. So is a frame for whose next segment there is no buffer for
//! longer than [`STUCK_LIMIT`]: frames that wait here may have all buffers that it waits for.
//! Thread-safety: used by one core.

use flowyard_frame::{Batch, FlowKey, Frame, LANES, Lanes, Nanos, To};
use flowyard_pool::{Meta, NoBuffer, Pool};
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment, offload};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Finished, Tx, refuse};

use super::STUCK_LIMIT;
use crate::live::Carries;

/// The transmitting half of a port, with finished frames.
pub struct Finish {
    inner: Box<dyn Tx>,
    carries: Carries,
    pool: Pool,
    /// Segments on their way to the port.
    segments: Batch,
    /// The time since which there is no buffer for a segment.
    no_buffer_since: Option<Nanos>,
    finished: Finished,
}

/// The most segments that a call transmits, so that a peer which asks for very short ones does not keep a core busy.
const MOST: usize = 512;

impl Finish {
    /// In front of `inner`, which passes on the frames of `carries`. Segments take their buffers from `pool`.
    #[must_use]
    pub fn new(inner: Box<dyn Tx>, carries: Carries, pool: Pool) -> Self {
        let (segments, finished) = (Batch::default(), Finished::default());
        Self { inner, carries, pool, segments, no_buffer_since: None, finished }
    }

    /// `inner`, with a [`Finish`] in front if frames of `delivered` may come that it does not pass on.
    #[must_use]
    pub fn around(
        inner: Box<dyn Tx>,
        carries: Carries,
        delivered: Carries,
        pool: &Pool,
    ) -> Box<dyn Tx> {
        if carries.covers(delivered) {
            return inner;
        }
        Box::new(Self::new(inner, carries, pool.share()))
    }

    /// Completes the checksum of a frame that is not cut.
    #[cold]
    fn complete(&mut self, frame: &mut Frame, meta: Meta, pool: &Pool) {
        offload::complete(pool.bytes_mut(frame), meta.offload);
        pool.set_meta(frame, Meta { offload: Offload::NONE, ..meta });
        self.finished.checksums += 1;
    }

    /// Transmits segments of the frame of `lane`, at most `most`. Returns how many were made, and whether all have left.
    #[cold]
    fn cut(
        &mut self,
        from: &mut Batch,
        lane: usize,
        pool: &Pool,
        (most, now): (usize, Nanos),
    ) -> (usize, bool) {
        let (mut meta, action) = (pool.meta(&from.frames[lane]), from.actions[lane]);
        let Ok(cut) = Cut::new(pool.bytes(&from.frames[lane]), meta.offload) else {
            refuse(from, lane, DropReason::Malformed);
            return (0, true);
        };
        let mut made = 0;
        while usize::from(meta.segments_sent) < cut.count() {
            let first = usize::from(meta.segments_sent);
            let count = (cut.count() - first).min(LANES).min(most - made);
            let (frame, mut missing) = (&from.frames[lane], None);
            for n in first..first + count {
                let len = cut.len(n);
                let of =
                    Meta { wire_len: len as u32, offload: Offload::NONE, segments_sent: 0, ..meta };
                let mut segment = match self.pool.take(len, of) {
                    Ok(segment) => segment,
                    Err(none) => {
                        missing = Some(none);
                        break;
                    }
                };
                cut.write(pool.bytes(frame), n, self.pool.bytes_mut(&mut segment));
                (segment.hash, segment.mark) = (frame.hash, frame.mark);
                if let Ok(at) = self.segments.push(segment, FlowKey::ZERO) {
                    self.segments.actions[at] = action;
                }
            }
            let all = self.segments.lanes();
            if let (true, Some(none)) = (all.is_empty(), missing) {
                if let Some(reason) = self.out_of_buffers(none, now) {
                    refuse(from, lane, reason);
                }
                break;
            }
            self.no_buffer_since = None;
            let later = self.inner.tx(&mut self.segments, all, &self.pool, now);
            let sent = all.without(later);
            let refused = { sent }.find(|at| self.segments.actions[*at].to.is_drop());
            let to = refused.map(|at| self.segments.actions[at].to);
            self.pool.put_batch(&mut self.segments);
            made += all.count() as usize;
            meta.segments_sent += sent.count() as u16;
            self.finished.segments += u64::from(sent.count());
            if let Some(to) = to {
                from.actions[lane].to =
                    if to == To::DROP { To::Drop(DropReason::PortFailed.code()) } else { to };
                break;
            }
            if !later.is_empty() || sent.is_empty() || made >= most {
                break;
            }
        }
        let is_refused = from.actions[lane].to.is_drop();
        let is_done = is_refused || usize::from(meta.segments_sent) >= cut.count();
        if is_done && !is_refused {
            self.finished.frames += 1;
        }
        pool.set_meta(&mut from.frames[lane], meta);
        (made, is_done)
    }

    /// There is no buffer for a segment. Returns the reason to drop its frame, if it does not wait any longer.
    fn out_of_buffers(&mut self, none: NoBuffer, now: Nanos) -> Option<DropReason> {
        let since = *self.no_buffer_since.get_or_insert(now);
        match none {
            NoBuffer::TooLong => Some(DropReason::TooLong),
            NoBuffer::Empty if now.saturating_sub(since) < STUCK_LIMIT => None,
            NoBuffer::Empty => Some(DropReason::NoBuffer),
        }
    }

    /// As [`Tx::tx`], for lanes of which those of `long` are to be cut.
    #[cold]
    fn in_turn(
        &mut self,
        from: &mut Batch,
        (lanes, long): (Lanes, Lanes),
        pool: &Pool,
        now: Nanos,
    ) -> Lanes {
        let (mut left, mut made) = (lanes, 0);
        while let Some(first) = { left }.next() {
            if long.has(first) {
                let (more, is_done) = self.cut(from, first, pool, (MOST - made, now));
                made += more;
                if !is_done {
                    return left;
                }
                left = left.without(Lanes(1 << first));
                if made >= MOST {
                    return left;
                }
                continue;
            }
            let next = { left }.find(|lane| long.has(*lane)).unwrap_or(LANES);
            let run = Lanes(left.0 & Lanes::first(next).0);
            let later = self.inner.tx(from, run, pool, now);
            left = left.without(run.without(later));
            if !later.is_empty() {
                return left;
            }
        }
        Lanes::NONE
    }
}

impl Tx for Finish {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        let mut long = Lanes::NONE;
        for lane in lanes {
            let meta = pool.meta(&from.frames[lane]);
            if self.carries.takes(meta.offload) {
                continue;
            }
            if meta.offload.segment == Segment::None {
                self.complete(&mut from.frames[lane], meta, pool);
            } else {
                long = long.with(lane);
            }
        }
        if long.is_empty() {
            return self.inner.tx(from, lanes, pool, now);
        }
        self.in_turn(from, (lanes, long), pool, now)
    }

    fn attend(&mut self) {
        self.inner.attend();
    }

    fn is_clear(&mut self) -> bool {
        self.inner.is_clear()
    }

    fn has_failed(&self) -> bool {
        self.inner.has_failed()
    }

    fn finished(&self) -> Finished {
        self.finished
    }

    fn close(&mut self) -> Result<(), String> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests;
