//! Fan: the tx queues of a port that several cores own, one for each.
//!
//! ```text
//!  core 0 ── complete ──┐ prefers its own   ┌─> tx queue of core 0 ──> interface's queue 0
//!  core 1 ── complete ──┼─ but a flow stays ┤
//!  core 2 ── complete ──┘ where it is       └─> tx queue of core 1 ──> interface's queue 1
//!                         while in flight
//! ```
//!
//! Which queue a frame leaves by is where its core wants the other side to work on it, so a core
//! uses its own. But between two queues there is no order. So a flow keeps the tx queue that it is
//! in until all its frames there have been transmitted: the rule of settle, at the other end of the
//! walk. Flows are counted by a hash of [`Frame::hash`](flowyard_frame::Frame::hash): those that
//! share a slot move together. [`Fan::by_flow`] has none move at all.
//!
//! Invariants: all frames of a slot that are in flight are in one queue; a slot's count is that of
//! its frames entered and not completed. A count that was left too high (its core died) keeps a
//! slot where it is, which is safe.
//! Thread-safety: any core may enqueue; lock-free, one compare-and-swap a frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flowyard_frame::{Batch, Lanes};
use flowyard_queue::{Open, Order, Queue, Sink};

/// A handle on the tx queues of one port.
#[derive(Clone)]
pub struct Fan {
    /// By position among the port's cores.
    queues: Arc<[Box<dyn Queue>]>,
    /// The core that each is emptied by.
    owners: Arc<[u16]>,
    slots: Arc<[AtomicU32]>,
    by_flow: bool,
}

/// Slots: more than there are flows in flight at a time.
const SLOTS: usize = 4096;
/// The low bits of a slot count frames, the high ones name the queue.
const COUNT_BITS: u32 = 24;
const COUNT: u32 = (1 << COUNT_BITS) - 1;

impl Fan {
    /// A tx queue for each of the cores `owners` (at most 256, and at least one), made by `new`.
    #[must_use]
    pub fn new(owners: &[u16], new: impl Fn() -> Box<dyn Queue>) -> Self {
        Self {
            queues: owners.iter().map(|_| new()).collect(),
            owners: owners.into(),
            slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            by_flow: false,
        }
    }

    /// The same, but nobody prefers their own: a flow has one tx queue for ever. For a tap, whose
    /// host answers by the queue that it was last sent a flow by: when any core may finish any frame,
    /// the answers would go back and forth between receive queues, and overtake each other there.
    #[must_use]
    pub fn by_flow(mut self) -> Self {
        self.by_flow = true;
        self
    }

    /// [`Queue::enqueue`] by `core`, if one is known: it prefers its own queue; others prefer one
    /// by the flow.
    pub fn enqueue_by(&self, core: Option<u16>, from: &mut Batch, lanes: Lanes) -> Lanes {
        let own = core.filter(|_| !self.by_flow).and_then(|core| self.queue_of(core));
        let (mut left, mut run, mut at) = (lanes, Lanes::NONE, 0);
        while let Some(lane) = left.into_iter().next() {
            let hash = from.frames[lane].hash;
            let prefer = own.unwrap_or(mix(hash) as usize % self.queues.len());
            let to = self.choose(hash, prefer);
            if to != at && !run.is_empty() {
                let refused = self.enter(at, from, run);
                if !refused.is_empty() {
                    self.forget(hash);
                    return Lanes(refused.0 | left.0);
                }
                run = Lanes::NONE;
            }
            (at, run, left) = (to, run.with(lane), left.without(Lanes(1 << lane)));
        }
        if run.is_empty() { run } else { self.enter(at, from, run) }
    }

    /// Enters lanes that are counted as in flight in queue `at`.
    fn enter(&self, at: usize, from: &mut Batch, run: Lanes) -> Lanes {
        let refused = self.queues[at].enqueue(from, run);
        refused.for_each(|lane| self.forget(from.frames[lane].hash));
        refused
    }

    fn queue_of(&self, core: u16) -> Option<usize> {
        self.owners.iter().position(|owner| *owner == core)
    }

    fn slot(&self, hash: u32) -> &AtomicU32 {
        &self.slots[mix(hash) as usize % SLOTS]
    }

    /// Counts one more frame of the flow in flight; returns the queue that it has to take.
    fn choose(&self, hash: u32, prefer: usize) -> usize {
        let slot = self.slot(hash);
        let mut now = slot.load(Ordering::Relaxed);
        loop {
            let queue = if now & COUNT == 0 { prefer } else { (now >> COUNT_BITS) as usize };
            let new = (queue as u32) << COUNT_BITS | ((now & COUNT) + 1);
            // Acquire: a count of 0 is the end of the transmission of all that went before.
            match slot.compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return queue,
                Err(other) => now = other,
            }
        }
    }

    /// Counts one frame of the flow less in flight.
    fn forget(&self, hash: u32) {
        // Release: pairs with the acquire of whoever finds the count at 0.
        self.slot(hash).fetch_sub(1, Ordering::Release);
    }

    fn of(&self, core: u16) -> Option<&dyn Queue> {
        self.queue_of(core).map(|at| &*self.queues[at])
    }
}

/// Other bits than the tables use: the receive hash is linear.
const fn mix(hash: u32) -> u32 {
    hash.wrapping_mul(0x9e37_79b1) >> 8
}

impl Queue for Fan {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        self.enqueue_by(None, from, lanes)
    }

    fn dequeue(&self, core: u16, into: &mut Batch) {
        if let Some(queue) = self.of(core) {
            queue.dequeue(core, into);
        }
    }

    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink) {
        let Some(queue) = self.of(core) else { return };
        if queue.open(core).is_some() {
            from.lanes().for_each(|lane| self.forget(from.frames[lane].hash));
        }
        queue.complete(core, from, next, dropped);
    }

    fn flush(&self, next: &dyn Queue) -> usize {
        self.queues.iter().map(|queue| queue.flush(next)).sum()
    }

    fn open(&self, core: u16) -> Option<Open> {
        self.of(core)?.open(core)
    }

    fn release(&self, core: u16) -> usize {
        self.of(core).map_or(0, |queue| queue.release(core))
    }

    fn tail(&self) -> u64 {
        self.queues.iter().map(|queue| queue.tail()).sum()
    }

    fn head(&self) -> u64 {
        self.queues.iter().map(|queue| queue.head()).sum()
    }

    fn order(&self) -> Order {
        Order::Direct
    }

    fn consumers(&self) -> u16 {
        self.owners.iter().max().map_or(0, |core| core + 1)
    }

    /// By queue: the tickets of several have no common order.
    fn holder(&self) -> Option<u16> {
        let waits = |&&core: &&u16| {
            let queue = self.of(core);
            queue.is_some_and(|q| q.open(core).is_some_and(|open| open.since_ticket == q.head()))
        };
        self.owners.iter().find(waits).copied()
    }
}

#[cfg(test)]
mod tests;
