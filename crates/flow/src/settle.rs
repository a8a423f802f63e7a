//! Settle: a flow moves only when nothing of it is left where it was.
//!
//! ```text
//!  steer says: queue 2        slot of the flow: home queue 1, last frame is number 70
//!
//!  queue 1   head 68 ─> [69] [70*] [71]  <─ tail 71      * the flow's last frame
//!                                                        68 < 70: the frame goes to queue 1 too
//! ```
//!
//! Linux RFS's rule (scaling.rst, "RFS: Receive Flow Steering"): a queue numbers its frames; its
//! tail is the number of the last one that entered, its head of the last one such that it and all
//! before it are *done*: processed or dropped, not merely dequeued. A flow remembers its home and
//! its last frame's number there. It may move when its home's head has reached that number: then
//! nothing it sent can be overtaken. Tables may therefore say anything at any time.
//!
//! Flows that share a slot share a home: this can hold a move back, never break the order. With
//! few slots and steady traffic a move may wait for long, so have more slots than busy flows.
//!
//! Homes are queues alone. What a table sends straight to a port leaves in the order of its tx
//! queue, whatever comes behind it: a flow may leave a port for a queue at any time. And a port,
//! unlike a queue, is no matter of placement: flows that share a slot must not follow each other
//! out of one. A frame for a port that finds its flow's home not done goes there, too; the caller
//! may have its answer travel with it ([`Settle::settle`] changes the destination alone).
//!
//! Use, once for each batch: [`Settle::settle`], enqueue, [`Settle::enqueued`]. In between, the
//! batch's flows count as in flight without end: another producer may enqueue meanwhile, so the
//! number is read after the fact, when it can only be too large, which is safe.
//!
//! Invariants: per slot, frames not yet done are all at its home; no allocation after `new`.
//! Thread-safety: one core owns a `Settle`; a flow must pass through one `Settle` only.

use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes, Rng, To};

use crate::mix::{Mix, words};

/// What [`Settle`] must know of the places where frames go.
pub trait Tails {
    /// How many frames have entered `home`, ever. Never goes back.
    fn tail(&self, home: To) -> u64;

    /// How many of them are done with all before them: processed or dropped. Never goes back,
    /// never passes the tail. Reading it must acquire what was done with those frames: handing
    /// them on, if that is what is done with them, comes before.
    fn head(&self, home: To) -> u64;
}

/// Where the flows of one slot are.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The tail of `home` after the slot's last frame entered it.
    last: u64,
    home: To,
    /// Frames sent home against the tables' word since the slot last moved.
    stuck: u32,
}

/// [`Slot::last`] of frames that are settled but not yet enqueued: no head reaches it.
const PENDING: u64 = u64::MAX;

/// What became of the frames that were settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    /// Flows that moved: their home had nothing of them left.
    pub moved: u64,
    /// Frames that were sent to their old home against the tables' word.
    pub held: u64,
}

/// Where a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Its home.
    pub home: To,
    /// How many frames its home is done with.
    pub head: u64,
    /// The number there of its last frame; `None` while that is being enqueued. The flow is in
    /// flight while the head has not reached it.
    pub last: Option<u64>,
}

/// Overrules moves until they are safe.
#[derive(Clone, Debug)]
pub struct Settle {
    slots: Box<[Slot]>,
    mix: Mix,
    /// Odd: spreads receive hashes over the slots.
    multiplier: u64,
    /// The slots with frames settled but not yet enqueued: at most one for each lane.
    pending: [u32; LANES],
    pending_len: usize,
    /// What became of the frames so far.
    pub counts: Settled,
}

impl Settle {
    /// A settle stage with `slots` slots (rounded up to a power of two, from 1 to 2^24).
    #[must_use]
    pub fn new(slots: usize, seed: u64) -> Self {
        let slots = slots.clamp(1, 1 << 24).next_power_of_two();
        Self {
            slots: vec![Slot { last: 0, home: To::DROP, stuck: 0 }; slots].into(),
            mix: Mix::new(seed),
            multiplier: Rng::new(seed).bits() | 1,
            pending: [0; LANES],
            pending_len: 0,
            counts: Settled::default(),
        }
    }

    /// Overrules the actions of `lanes` that would move a flow too early. Only the destination
    /// changes: counter and mark are the matched entry's. Drops are left alone: what vanishes
    /// overtakes nothing.
    pub fn settle(&mut self, batch: &mut Batch, lanes: Lanes, places: &dyn Tails) {
        if self.pending_len != 0 {
            self.enqueued(places); // the batch before was given up between the two calls
        }
        let mut slots = [0; LANES];
        let mut stay = 0;
        for lane in lanes {
            let slot = self.slot(&batch.frames[lane], &batch.keys[lane]);
            slots[lane] = slot as u32;
            // All slots are looked at before any is written: misses of the cache overlap.
            stay |=
                u32::from(self.slots[slot].home.code() == batch.actions[lane].to.code()) << lane;
        }
        if stay == lanes.0 {
            // Nobody wants to move, as in most batches: there is nobody to be kept from it either.
            for lane in lanes {
                self.pending[self.pending_len] = slots[lane];
                self.pending_len += 1;
            }
            return;
        }
        let mut known = (To::DROP, 0); // most of a batch leaves few homes
        for lane in lanes {
            let Action { to, .. } = batch.actions[lane];
            if to.is_drop() {
                continue;
            }
            let slot = slots[lane] as usize;
            let to = self.place(slot, to, &mut known, places);
            batch.actions[lane].to = to;
            if matches!(to, To::Queue(_)) && self.slots[slot].last != PENDING {
                self.slots[slot].last = PENDING;
                self.pending[self.pending_len] = slot as u32;
                self.pending_len += 1;
            }
        }
    }

    /// To be called when the frames of the batch last settled have entered their homes, or were
    /// dropped on the way.
    pub fn enqueued(&mut self, places: &dyn Tails) {
        let mut known = (To::DROP, 0); // most of a batch has few homes
        for &slot in &self.pending[..self.pending_len] {
            let slot = &mut self.slots[slot as usize];
            if slot.home != known.0 {
                known = (slot.home, places.tail(slot.home));
            }
            slot.last = known.1;
        }
        self.pending_len = 0;
    }

    /// The slot of this frame's flow. What is held back must be held by slot.
    #[must_use]
    pub fn slot_of(&self, frame: &Frame, key: &FlowKey) -> u32 {
        self.slot(frame, key) as u32
    }

    /// Where the slot of this frame's flow is, for people who ask; `None` if it never had a frame.
    #[must_use]
    pub fn look(&self, frame: &Frame, key: &FlowKey, places: &dyn Tails) -> Option<Look> {
        let Slot { last, home, .. } = self.slots[self.slot(frame, key)];
        let last = (last != PENDING).then_some(last);
        (!home.is_drop()).then(|| Look { home, head: places.head(home), last })
    }

    /// How many frames were sent to the slot's home against the tables' word since it last moved:
    /// a flow that is always in flight never drains, and is stuck there unless someone holds it.
    #[must_use]
    pub fn stuck(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(0, |slot| slot.stuck)
    }

    /// Counts the slot's stuck frames from 0 again.
    pub fn unstick(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.stuck = 0;
        }
    }

    /// Whether nothing that was sent to the slot's home is left there, so that it could move.
    #[must_use]
    pub fn is_drained(&self, slot: u32, places: &dyn Tails) -> bool {
        let Some(slot) = self.slots.get(slot as usize) else { return true };
        slot.last != PENDING && (slot.home.is_drop() || places.head(slot.home) >= slot.last)
    }

    /// How many frames the slot's home is done with: while that goes on, waiting has an end.
    #[must_use]
    pub fn progress(&self, slot: u32, places: &dyn Tails) -> u64 {
        let home = self.slots.get(slot as usize).map_or(To::DROP, |slot| slot.home);
        if home.is_drop() { 0 } else { places.head(home) }
    }

    /// The home of a slot's next frame, when the tables say `to`. `known` is a home, and how far it is at
    /// least: it never goes back.
    #[inline]
    fn place(&mut self, slot: usize, to: To, known: &mut (To, u64), places: &dyn Tails) -> To {
        let slot = &mut self.slots[slot];
        if slot.home == to {
            return to;
        }
        // A slot that never had a frame has no home to wait for.
        let drained = slot.home.is_drop() || {
            if slot.home != known.0 {
                *known = (slot.home, places.head(slot.home));
            }
            known.1 >= slot.last
        };
        if slot.last == PENDING || !drained {
            self.counts.held += 1;
            slot.stuck = slot.stuck.saturating_add(1);
            return slot.home;
        }
        slot.stuck = 0;
        if matches!(to, To::Queue(_)) {
            self.counts.moved += u64::from(!slot.home.is_drop());
            slot.home = to;
        }
        to
    }

    /// The slot of a frame's flow: by its receive hash, which is one and the same for all frames of
    /// a flow. All fragments between two hosts are one flow: the later ones have no ports, and the
    /// hash leaves them out. What has no hash (it is no IP) is told apart by its key.
    #[inline]
    fn slot(&self, frame: &Frame, key: &FlowKey) -> usize {
        if frame.hash != 0 {
            // Multiplied, for a Toeplitz hash is linear, and its low bits chose the queue.
            let hash = u64::from(frame.hash).wrapping_mul(self.multiplier);
            return (hash >> 40) as usize & (self.slots.len() - 1);
        }
        self.slot_by_key(key)
    }

    fn slot_by_key(&self, key: &FlowKey) -> usize {
        let mut flow = key.flow();
        if key.frag != 0 {
            (flow.sport, flow.dport) = (0, 0);
        }
        let (flow, _) = words(&flow);
        let hash = self.mix.slim(&flow);
        hash as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests;
