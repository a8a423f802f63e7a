//! How frames leave the ring: complete, commit, release.
//!
//! ```text
//!  complete: remove drops; hand the rest to `next` at once if allowed, else park it; set the done bits;
//!            commit
//!
//!  head    ready
//!   │ parked │                    a run that `update` took, and of which `next` refused a part
//!  ─[h][h][ ][h]─[x][x][ ][x]──   [h] parked, [ ] done and empty, [x] done bit set
//! ```
//!
//! One thread at a time commits. A thread that finds the oldest ticket done claims `head` by setting
//! [`BUSY`], and commits until the oldest ticket is open. A thread that finds `head` claimed returns: the
//! committer checks again after it has released `head`. To ensure that one of the two threads sees the
//! other's write, both have a full fence between their write (done bit; head) and their read (head; done
//! bit).
//!
//! The holder of the oldest open ticket commits without claiming `head`: its done bit is not set, so no
//! other thread can claim `head` or write it.

use flowyard_frame::{Batch, Lanes};

use super::{BUSY, Claim, Ring};
use crate::contract::{Queue, Sink};
use crate::sync::{AcqRel, Acquire, Relaxed, Release, SeqCst, fence};

impl Ring {
    /// Completes a claim; `from` is the batch as the core left it. If `at_once`, frames go to `next`
    /// directly. `parked` is called when all frames are handed on or parked, before the tickets are
    /// closed.
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

    /// Closes a claim whose core died; the frames stay in the core's batch.
    pub(crate) fn abandon(&self, claim: &Claim<'_>, parked: impl FnOnce()) {
        parked();
        self.close(claim, false);
        self.commit(None);
    }

    /// Hands on every run of done tickets from the oldest on, unless another thread commits; without
    /// `next`, only up to the first parked frame. Returns the number of frames handed on.
    pub(crate) fn commit(&self, next: Option<&dyn Queue>) -> usize {
        let mut went = 0;
        loop {
            fence(SeqCst);
            let head = self.exit.head.load(Acquire);
            // `ready` is read after head and may belong to a later head: then the exchange fails. The
            // same holds for the bit, which cannot be that of another lap while head is unchanged.
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

    /// Commits all runs; returns the new head, and whether a frame there was refused.
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
            // Producers may use the slots that are free already.
            self.exit.head.store(head | BUSY, Release);
        }
    }

    /// Hands on the parked frames of a run of done tickets, given as bits from ticket `first` on; returns
    /// those that were refused.
    #[inline(never)]
    fn hand_on(&self, first: u64, run: usize, parked: u32, next: Option<&dyn Queue>) -> u32 {
        let Some(next) = next else { return parked };
        let mut batch = Batch::default();
        if Lanes(parked) == Lanes::first(run) {
            // The committer has exclusive access to the done tickets at head, as a core has to its claim.
            self.read(&Claim { first, len: run, each: None }, &mut batch);
        } else {
            // The slots of tickets that were opened at once were never written.
            for lane in Lanes(parked) {
                // SAFETY: the frame was parked in the slot. Of its handles, that in `batch` is used.
                unsafe { self.get(first + lane as u64, &mut batch, lane) };
            }
            batch.set_len(run);
            batch.keys_in_pool = true;
        }
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

/// Gives the lanes that are to be dropped to `dropped`, and returns the lanes to hand on. The core was
/// given `len` lanes. A lane that the worker emptied is neither; a lane from `len` on is dropped.
#[inline]
fn take_drops(len: usize, from: &mut Batch, dropped: &mut dyn Sink) -> Lanes {
    let mut onward = 0;
    for lane in 0..from.len().min(len) {
        let goes = !from.actions[lane].to.is_end() && !from.frames[lane].is_absent();
        onward |= u32::from(goes) << lane;
    }
    for lane in from.lanes().without(Lanes(onward)) {
        let frame = std::mem::take(&mut from.frames[lane]);
        if !frame.is_absent() {
            dropped.drop(frame, from.actions[lane].to);
        }
    }
    Lanes(onward)
}
