//! Hold: lets a flow move that is always in flight.
//!
//! ```text
//!  table: queue 2       home: queue 1, which never drains, because frames of the flow keep coming
//!
//!  frames ──> [hold: 70 71 72 ..]      queue 1  [68] [69] ──> done
//!                     └──────────────> queue 2, once queue 1 is done with 69
//! ```
//!
//! A migration that neither buffers nor drops cannot keep order (arXiv 2404.07701). If frames of a slot of the
//! settle stage were kept on its home for long enough although the tables want a move, its frames are held
//! back until the home has completed the earlier ones. Then they settle again, in order, and the first of
//! them moves the slot. Frames and time are limited: the frames ahead of the slot are at most the home's
//! window, and a home that completes nothing for the longest hold is not waited for; the frames then go to
//! the old home. If the capacity is exhausted, the core receives nothing while the home makes its producers
//! wait, and otherwise gives the hold up.
//!
//! Invariants: a slot is in one bay; all frames of a held slot pass through its bay, in order; a bay has
//! capacity for one more batch whenever one is received.
//! Thread-safety: belongs to a core.

use std::collections::VecDeque;

use flowyard_flow::Settle;
use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes, Nanos};

use super::parts::Entry;
use crate::blueprint::HoldLimits;
use crate::places::Places;

/// Slots held at a time: elephant flows are few.
const BAYS: usize = 4;

/// The frames that are held.
pub(crate) struct Hold {
    bays: [Bay; BAYS],
    limits: HoldLimits,
    held: u64,
    moved: u64,
}

#[derive(Default)]
struct Bay {
    slot: Option<u32>,
    /// The home's head, and the time of its last change.
    head: u64,
    since: Nanos,
    /// Whether producers of the home wait when it is full; the bay may then wait, too.
    may_wait: bool,
    /// The frames are leaving; later frames of the slot are still added until the bay is empty.
    going: bool,
    frames: VecDeque<(Frame, FlowKey, Action)>,
}

impl Bay {
    fn is_full(&self, room: usize) -> bool {
        self.frames.len() + LANES > room
    }
}

impl Hold {
    pub(crate) fn new(limits: HoldLimits) -> Self {
        let bay = |_| Bay { frames: VecDeque::with_capacity(limits.frames), ..Bay::default() };
        Self { bays: std::array::from_fn(bay), limits, held: 0, moved: 0 }
    }

    /// Whether no frame is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.bays.iter().all(|bay| bay.frames.is_empty())
    }

    /// Whether a bay has no capacity for another batch, so that nothing may be received.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.bays.iter().any(|bay| bay.slot.is_some() && bay.is_full(self.limits.frames))
    }

    /// Frames held so far, and holds that ended with the home drained.
    pub(crate) const fn counts(&self) -> (u64, u64) {
        (self.held, self.moved)
    }

    /// Takes all frames out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.bays.iter_mut().flat_map(|bay| {
            bay.slot = None;
            bay.frames.drain(..).map(|(frame, ..)| frame)
        })
    }

    /// Takes those of `lanes` out of the batch whose slots are held; returns them.
    #[inline]
    pub(super) fn take(&mut self, settle: &Settle, batch: &mut Batch, lanes: Lanes) -> Lanes {
        let mut taken = Lanes::NONE;
        if self.bays.iter().all(|bay| bay.slot.is_none()) {
            return taken;
        }
        for lane in lanes {
            let slot = Some(settle.slot_of(&batch.frames[lane], &batch.keys[lane]));
            if let Some(bay) = self.bays.iter_mut().find(|bay| bay.slot == slot) {
                let frame = std::mem::take(&mut batch.frames[lane]);
                bay.frames.push_back((frame, batch.keys[lane], batch.actions[lane]));
                taken = taken.with(lane);
                self.held += 1;
            }
        }
        taken
    }

    /// The flow of this frame was kept on its home at `now`: begins to hold its slot if that has happened often
    /// enough. The frame itself still goes home.
    pub(super) fn consider(
        &mut self,
        settle: &mut Settle,
        (frame, key): (&Frame, &FlowKey),
        may_wait: bool,
        now: Option<Nanos>,
    ) {
        let HoldLimits { frames, after, .. } = self.limits;
        let Some(now) = now.filter(|_| frames > 0) else { return };
        let slot = settle.slot_of(frame, key);
        if settle.stuck(slot) < after || self.bays.iter().any(|bay| bay.slot == Some(slot)) {
            return;
        }
        if let Some(bay) = self.bays.iter_mut().find(|bay| bay.slot.is_none()) {
            (bay.slot, bay.since, bay.may_wait, bay.going) = (Some(slot), now, may_wait, false);
            bay.head = 0;
            settle.unstick(slot); // if the hold does not succeed, the slot must be deferred as often again
        }
    }
}

impl Entry {
    /// Fills the empty batch with held frames that may go at `now`. Returns whether there are any.
    #[inline]
    pub(super) fn next_held(&mut self, places: &Places, now: Nanos) -> bool {
        let Self { hold, settle: Some(settle), batch, .. } = self else { return false };
        let Hold { bays, limits, moved, .. } = hold;
        for bay in bays {
            let Some(slot) = bay.slot else { continue };
            if !bay.going {
                let drained = settle.is_drained(slot, places);
                let head = settle.progress(slot, places);
                if head > bay.head {
                    (bay.head, bay.since) = (head, now);
                }
                let late = now.saturating_sub(bay.since) > limits.longest;
                bay.going = drained || late || bay.is_full(limits.frames) && !bay.may_wait;
                *moved += u64::from(drained);
            }
            if !bay.going {
                continue;
            }
            if bay.frames.is_empty() {
                bay.slot = None;
                continue;
            }
            while batch.len() < LANES
                && let Some((frame, key, action)) = bay.frames.pop_front()
            {
                if let Ok(lane) = batch.push(frame, key) {
                    batch.actions[lane] = action;
                }
            }
            return true;
        }
        false
    }
}
