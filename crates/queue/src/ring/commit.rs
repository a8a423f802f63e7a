//! The way out of the ring: complete, commit, release.
//!
//! ```text
//!  complete: drops out; the rest to `next` at once if it may, else parked; done bits set; commit
//!
//!  head    ready
//!   │ parked │                    the run that `update` took, and `next` refused in part
//!  ─[h][h][ ][h]─[x][x][ ][x]──   [h] parked, [ ] done, nothing in it, [x] done bit set
//! ```
//!
//! Committing is single-file: who sees the oldest ticket done claims `head` by setting [`BUSY`], and
//! works until the oldest ticket is open. Who finds it claimed goes away: the committer looks again
//! after it let go. So that one of the two sees the other, both put a full fence between what they
//! write (done bit; head) and what they look at (head; done bit).
//!
//! The holder of the oldest open ticket commits without claiming: its bit is not set, so nobody can
//! claim, and nobody else writes head.

use flowyard_frame::{Batch, Lanes};

use super::{BUSY, Claim, Ring};
use crate::contract::{Queue, Sink};
use crate::sync::{AcqRel, Acquire, Relaxed, Release, SeqCst, fence};

impl Ring {
    /// Completes a claim with what the core has made of it, in `from`. If `at_once` allows, what is
    /// to be handed on goes straight to `next`. `parked` is called when everything is on its way or
    /// parked, before the tickets close.
    pub(crate) fn complete(
        &self,
        claim: &Claim<'_>,
        from: &mut Batch,
        (next, dropped): (&dyn Queue, &mut dyn Sink),
        at_once: bool,
        parked: impl FnOnce(),
    ) {
        let onward = take_drops(claim.len, from, dropped);
        // Only lanes of the claim are parked, whatever `next` says it refused.
        let left = if at_once { Lanes(next.enqueue(from, onward).0 & onward.0) } else { onward };
        self.park(claim, from, left);
        parked();
        self.close(claim, !left.is_empty());
        from.set_len(0);
        self.commit(Some(next));
    }

    /// Closes a claim whose core died with the frames.
    pub(crate) fn abandon(&self, claim: &Claim<'_>, parked: impl FnOnce()) {
        parked();
        self.close(claim, false);
        self.commit(None);
    }

    /// Hands on every run of done tickets from the oldest on, unless another core is doing so; without
    /// `next`, up to the first frame that is parked. Returns how many frames went.
    pub(crate) fn commit(&self, next: Option<&dyn Queue>) -> usize {
        let mut went = 0;
        loop {
            fence(SeqCst);
            let head = self.exit.head.load(Acquire);
            // `ready` may be read later than head and belong to a later one: then so fails the
            // exchange. The same for the bit, which cannot be another lap's while head stands.
            let ready = self.exit.ready.load(Relaxed) > head || self.done.is_set(head & !BUSY);
            if head & BUSY != 0 || !ready {
                return went;
            }
            if self.exit.head.compare_exchange(head, head | BUSY, AcqRel, Relaxed).is_err() {
                continue;
            }
            let (end, refused) = self.commit_runs(head, next, &mut went);
            self.exit.head.store(end, Release);
            if refused {
                return went;
            }
        }
    }

    /// What the committer does: returns the new head, and whether a frame there was refused.
    fn commit_runs(
        &self,
        mut head: u64,
        next: Option<&dyn Queue>,
        went: &mut usize,
    ) -> (u64, bool) {
        loop {
            let mut ready = self.exit.ready.load(Relaxed);
            if ready <= head {
                ready = self.done.update(head);
                self.exit.ready.store(ready, Relaxed);
            }
            if ready == head {
                return (head, false);
            }
            while head < ready {
                let run = (ready - head).min(flowyard_frame::LANES as u64) as usize;
                let parked = self.parked.peek(head, run);
                if parked != 0 {
                    let left = self.hand_on(head, run, parked, next);
                    *went += (parked & !left).count_ones() as usize;
                    if left != 0 {
                        return (head + u64::from(left.trailing_zeros()), true);
                    }
                }
                head += run as u64;
            }
            // Producers may use what is free already.
            self.exit.head.store(head | BUSY, Release);
        }
    }

    /// Hands on the frames parked in a run of done tickets, given as bits from ticket `first` on;
    /// returns those that were refused.
    #[inline(never)]
    fn hand_on(&self, first: u64, run: usize, parked: u32, next: Option<&dyn Queue>) -> u32 {
        let Some(next) = next else { return parked };
        let mut batch = Batch::default();
        // The committer has the done tickets at head to itself, as a core has what it claimed.
        self.read(&Claim { first, len: run, each: None }, &mut batch);
        let left = next.enqueue(&mut batch, Lanes(parked)).0 & parked;
        for lane in Lanes(left) {
            // SAFETY: as for `read`. The handles that `next` left go back, so that of each frame
            // one handle is used even if `next` took some and says it refused them.
            unsafe {
                self.frames.put(first + lane as u64, &[std::mem::take(&mut batch.frames[lane])]);
            }
        }
        let gone = parked & !left;
        if gone != 0 {
            self.parked.clear(first, run, gone);
            self.exit.parked.fetch_sub(u64::from(gone.count_ones()), Release);
        }
        left
    }
}

/// Gives the lanes that are to be dropped to `dropped`, and returns those to hand on, of the `len`
/// that the core was given. A lane that the worker emptied is neither; a lane beyond `len` is
/// nobody's, and dropped.
#[inline]
fn take_drops(len: usize, from: &mut Batch, dropped: &mut dyn Sink) -> Lanes {
    let mut onward = 0;
    for lane in 0..from.len().min(len) {
        let goes = !from.actions[lane].to.is_end() && !from.frames[lane].is_empty();
        onward |= u32::from(goes) << lane;
    }
    for lane in from.lanes().without(Lanes(onward)) {
        let frame = std::mem::take(&mut from.frames[lane]);
        if !frame.is_empty() {
            dropped.drop(frame, from.actions[lane].to);
        }
    }
    Lanes(onward)
}
