//! Hold: how a flow moves that is always in flight.
//!
//! ```text
//!  tables: queue 2      home: queue 1, which never drains, for more of the flow keeps coming
//!
//!  frames ──> [hold: 70 71 72 ..]      queue 1  [68] [69] ──> done
//!                     └──────────────> queue 2, once queue 1 is done with 69
//! ```
//!
//! A migration that neither buffers nor drops cannot keep order (arXiv 2404.07701). So when a
//! slot of the settle stage has been sent home against the tables' word for long enough, its
//! frames are held back until its home is done with it. Then they settle again, in their order,
//! and the first of them moves the slot. Frames and time are bounded: what is in front of the slot
//! is at most the home's window, and a home that gets nothing done for the longest hold is waited
//! for no more. Then frames settle all the same, which sends them to the old home. When room runs
//! out the core receives nothing if the home makes its producers wait when it is full, and gives
//! up if not.
//!
//! Invariants: a slot is in one bay; frames of a slot that is held all pass through its bay, in
//! order; a bay has room for one more batch whenever one is received.
//! Thread-safety: a core's own.

use std::collections::VecDeque;

use flowyard_flow::Settle;
use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes, Nanos};

use super::Entry;
use crate::blueprint::HoldLimits;
use crate::places::Places;

/// Slots held at a time: elephants are few.
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
    /// How far the home is, and since when.
    head: u64,
    since: Nanos,
    /// Its home makes producers wait: so may this, when it has no room.
    may_wait: bool,
    /// Its frames go, and it takes those that come meanwhile, until it is empty.
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

    /// Whether a bay has no room for another batch: then nothing is to be received.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.bays.iter().any(|bay| bay.slot.is_some() && bay.is_full(self.limits.frames))
    }

    /// Frames held so far, and holds that ended with the home drained.
    pub(crate) const fn counts(&self) -> (u64, u64) {
        (self.held, self.moved)
    }

    /// Takes every frame out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.bays.iter_mut().flat_map(|bay| {
            bay.slot = None;
            bay.frames.drain(..).map(|(frame, ..)| frame)
        })
    }

    /// Takes those of `lanes` out of the batch whose slots are held; returns which.
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

    /// The flow of this frame was sent home against the tables' word at `now`: begins to hold its
    /// slot, if it has been stuck for long enough. What is under way now still goes home.
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
            settle.unstick(slot); // if this comes to nothing, it has to be stuck for as long again
        }
    }
}

impl Entry {
    /// Fills the batch, which is empty, with held frames that may go at `now`. Whether there are
    /// any.
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
