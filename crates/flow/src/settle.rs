//! Settle: a flow moves only when its old home has finished all of its frames.
//!
//! ```text
//!  steer decides: queue 2     slot of the flow: home queue 1, last frame is number 70
//!
//!  queue 1   head 68 ─> [69] [70*] [71]  <─ tail 71      * the flow's last frame
//!                                                        68 < 70: the frame goes to queue 1 too
//! ```
//!
//! This is the rule of Linux RFS (scaling.rst, "RFS: Receive Flow Steering"). A queue numbers its
//! frames. Its tail is the number of the last frame that entered. Its head is the number of the last
//! frame for which it and all frames before it are *done*: processed or dropped, not merely dequeued.
//! A flow has a home, and the number of its last frame there. It may move when the head of its home
//! has reached that number: then no frame of it can be overtaken. Tables may therefore give any answer
//! at any time.
//!
//! Flows that share a slot share a home: this can delay a move, but never break the order. With few
//! slots and steady traffic a move may be delayed for long, so use more slots than active flows.
//!
//! Only queues are homes. A frame that a table sends directly to a port leaves in the order of the
//! port's tx queue, so a flow may change from a port to a queue at any time. A port is also not a
//! choice of placement: flows that share a slot must not be sent out of each other's ports. If a
//! frame for a port finds that its flow's home is not done, the frame goes to the home; the caller may
//! keep the table's answer with it ([`Settle::settle`] changes only the destination). If the home is done,
//! the slot forgets it. A frame for a port asks no more than whether its slot has a home: one bit, and the
//! bits of all slots fit into a core's first cache where the slots themselves do not fit into the second.
//!
//! For each batch call [`Settle::settle`], enqueue the frames, then call [`Settle::enqueued`]. Between
//! the two calls the batch's flows count as in flight, because another producer may enqueue at the
//! same time: the tail is read after enqueuing, when it can only be too large, which is safe.
//!
//! Invariants: all frames of a slot that are not done are at its home; a slot without a home has no frame
//! that is not done; no allocation after `new`.
//! Thread-safety: one core owns a `Settle`; a flow must pass through one `Settle` only.

use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes, Rng, To};

use crate::mix::{Mix, words};

/// How far the queues are that frames are sent to.
pub trait Tails {
    /// Number of frames that have entered `home` so far. It never decreases.
    fn tail(&self, home: To) -> u64;

    /// Number of frames that, with all frames before them, are done: processed or dropped. It never
    /// decreases and never exceeds the tail. Reading it must have acquire ordering: what was done with
    /// those frames, such as handing them to the next queue, happens before.
    fn head(&self, home: To) -> u64;
}

/// The home of the flows of one slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The tail of `home` after the slot's last frame entered it.
    last: u64,
    home: To,
    /// Frames that were kept at the home, although the tables chose another place, since the slot last
    /// moved.
    stuck: u32,
}

/// [`Slot::last`] while frames are settled but not yet enqueued: no head reaches it.
const PENDING: u64 = u64::MAX;

/// Counters of moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    /// Flows that moved.
    pub moved: u64,
    /// Frames kept at their flow's old home, because the move that the tables wanted was not yet safe.
    pub held: u64,
}

/// The state of a flow, for diagnostics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// The queue that the flow is in.
    pub home: To,
    /// Number of frames that the home has finished.
    pub head: u64,
    /// The number of the flow's last frame at its home; `None` while that frame is being enqueued. The
    /// flow is in flight while `head` is less than this.
    pub last: Option<u64>,
}

/// Delays moves until they are safe.
#[derive(Clone, Debug)]
pub struct Settle {
    slots: Box<[Slot]>,
    /// A bit for each slot: whether it has a home.
    homed: Box<[u64]>,
    mix: Mix,
    /// An odd number that spreads receive hashes over the slots.
    multiplier: u64,
    /// The slots with frames settled but not yet enqueued: at most one for each lane.
    pending: [u32; LANES],
    pending_len: usize,
    /// Counters since the start.
    pub counts: Settled,
}

impl Settle {
    /// A settle stage with `slots` slots (rounded up to a power of two, from 1 to 2^24).
    #[must_use]
    pub fn new(slots: usize, seed: u64) -> Self {
        let slots = slots.clamp(1, 1 << 24).next_power_of_two();
        Self {
            slots: vec![Slot { last: 0, home: To::DROP, stuck: 0 }; slots].into(),
            homed: vec![0; slots.div_ceil(64)].into(),
            mix: Mix::new(seed),
            multiplier: Rng::new(seed).bits() | 1,
            pending: [0; LANES],
            pending_len: 0,
            counts: Settled::default(),
        }
    }

    /// Changes the destination of the lanes in `lanes` that would move a flow too early; counter and
    /// mark stay those of the matched entry. Drops are not changed: a dropped frame overtakes nothing. Returns
    /// whether any flow of these lanes was not at the destination of its frame, which then may have changed.
    pub fn settle(&mut self, batch: &mut Batch, lanes: Lanes, places: &dyn Tails) -> bool {
        if self.pending_len != 0 {
            self.enqueued(places); // the caller did not finish the previous batch
        }
        let ports = ports(batch, lanes);
        let (slots, stay) = self.find(batch, lanes, ports);
        if stay {
            // In most batches no flow wants to move.
            let lanes = lanes.without(ports);
            if lanes == Lanes::first(lanes.count() as usize) {
                (self.pending, self.pending_len) = (slots, lanes.count() as usize);
            } else {
                for lane in lanes {
                    self.pending[self.pending_len] = slots[lane];
                    self.pending_len += 1;
                }
            }
            return false;
        }
        let mut known = (To::DROP, 0); // most frames of a batch come from few homes
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
        true
    }

    /// The slots of `lanes`, and whether each flow is at the destination of its frame, or has no home if that is a
    /// port. All slots are read before any is written, so that cache misses overlap.
    #[inline]
    fn find(&self, batch: &Batch, lanes: Lanes, ports: Lanes) -> ([u32; LANES], bool) {
        let (mut slots, mut stay) = ([0; LANES], true);
        if !ports.is_empty() {
            for lane in ports {
                let at = self.slot(&batch.frames[lane], &batch.keys[lane]);
                slots[lane] = at as u32;
                stay &= !self.has_home(at);
            }
            for lane in lanes.without(ports) {
                stay &= self.stays(batch, lane, &mut slots[lane]);
            }
        } else if lanes == batch.lanes() {
            for (lane, slot) in slots.iter_mut().enumerate().take(batch.len()) {
                stay &= self.stays(batch, lane, slot);
            }
        } else {
            for lane in lanes {
                stay &= self.stays(batch, lane, &mut slots[lane]);
            }
        }
        (slots, stay)
    }

    /// Writes the slot of a lane; returns whether its flow is at the destination of the frame.
    #[inline(always)]
    fn stays(&self, batch: &Batch, lane: usize, slot: &mut u32) -> bool {
        let at = self.slot(&batch.frames[lane], &batch.keys[lane]);
        *slot = at as u32;
        self.slots[at].home == batch.actions[lane].to
    }

    /// The caller calls this when the frames of the batch settled last have entered their queues or
    /// were dropped.
    pub fn enqueued(&mut self, places: &dyn Tails) {
        let mut known = (To::DROP, 0); // most frames of a batch have few homes
        for &slot in &self.pending[..self.pending_len] {
            let slot = &mut self.slots[slot as usize];
            if slot.home != known.0 {
                known = (slot.home, places.tail(slot.home));
            }
            slot.last = known.1;
        }
        self.pending_len = 0;
    }

    /// The slot of this frame's flow. Code that buffers frames until a flow can move must buffer by
    /// slot.
    #[must_use]
    pub fn slot_of(&self, frame: &Frame, key: &FlowKey) -> u32 {
        self.slot(frame, key) as u32
    }

    /// The state of this frame's flow, for diagnostics; `None` if its slot never had a frame.
    #[must_use]
    pub fn look(&self, frame: &Frame, key: &FlowKey, places: &dyn Tails) -> Option<Look> {
        let Slot { last, home, .. } = self.slots[self.slot(frame, key)];
        let last = (last != PENDING).then_some(last);
        (!home.is_drop()).then(|| Look { home, head: places.head(home), last })
    }

    /// Number of frames kept at the slot's home, although the tables chose another place, since the
    /// slot last moved. A flow that is always in flight never drains, and never moves unless its frames
    /// are buffered.
    #[must_use]
    pub fn stuck(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(0, |slot| slot.stuck)
    }

    /// Sets [`Settle::stuck`] of a slot to 0.
    pub fn unstick(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.stuck = 0;
        }
    }

    /// Whether the slot's home has finished all of the slot's frames, so that it could move.
    #[must_use]
    pub fn is_drained(&self, slot: u32, places: &dyn Tails) -> bool {
        let Some(slot) = self.slots.get(slot as usize) else { return true };
        slot.last != PENDING && (slot.home.is_drop() || places.head(slot.home) >= slot.last)
    }

    /// Number of frames that the slot's home has finished. While it grows, the home makes progress.
    #[must_use]
    pub fn progress(&self, slot: u32, places: &dyn Tails) -> u64 {
        let home = self.slots.get(slot as usize).map_or(To::DROP, |slot| slot.home);
        if home.is_drop() { 0 } else { places.head(home) }
    }

    /// The destination of a slot's next frame, for which the tables chose `to`. `known` caches the head
    /// of one home; a cached head is at most too small, which is safe.
    #[inline]
    fn place(&mut self, at: usize, to: To, known: &mut (To, u64), places: &dyn Tails) -> To {
        let slot = &mut self.slots[at];
        if slot.home == to {
            return to;
        }
        // A slot that never had a frame can move at once.
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
        match to {
            To::Queue(_) => {
                self.counts.moved += u64::from(!slot.home.is_drop());
                slot.home = to;
                self.homed[at / 64] |= 1 << (at % 64);
            }
            To::Port(_) => {
                slot.home = To::DROP;
                self.homed[at / 64] &= !(1 << (at % 64));
            }
            _ => {}
        }
        to
    }

    #[inline]
    fn has_home(&self, slot: usize) -> bool {
        self.homed[slot / 64] >> (slot % 64) & 1 != 0
    }

    /// The slot of a frame's flow, by its receive hash, which is the same for all frames of a flow. All
    /// fragments between two hosts count as one flow: later fragments have no ports, and the hash does
    /// not include the ports of any fragment. Frames without a hash (not IP) are distinguished by their
    /// key.
    #[inline]
    fn slot(&self, frame: &Frame, key: &FlowKey) -> usize {
        if frame.hash != 0 {
            // Multiplied, because the Toeplitz hash is linear and its low bits chose the queue.
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

/// The lanes of `lanes` that go to a port.
#[inline]
fn ports(batch: &Batch, lanes: Lanes) -> Lanes {
    let mut ports = 0;
    for (lane, action) in batch.actions.iter().enumerate() {
        ports |= u32::from(matches!(action.to, To::Port(_))) << lane;
    }
    Lanes(ports & lanes.0)
}

#[cfg(test)]
mod tests;
