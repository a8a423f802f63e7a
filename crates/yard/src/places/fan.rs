//! Fan: the tx queues of a port that several cores own, one for each core.
//!
//! ```text
//!  core 0 ── complete ──┐ prefers its own   ┌─> tx queue of core 0 ──> interface's queue 0
//!  core 1 ── complete ──┼─ but a flow stays ┤
//!  core 2 ── complete ──┘ where it is       └─> tx queue of core 1 ──> interface's queue 1
//!                         while in flight
//! ```
//!
//! The queue that a frame leaves by decides which core of the receiver works on it, so a core prefers its
//! own queue. Two queues have no common order, so a flow keeps its tx queue until all its frames there
//! have been transmitted: the rule of settle, at the other end of the walk. Flows are counted by a hash
//! of [`Frame::hash`](flowyard_frame::Frame::hash); flows that share a slot move together. With
//! [`Fan::by_flow`] no flow moves.
//!
//! Invariants: all frames of a slot that are in flight are in one queue; a slot's count is the number of
//! its frames that entered and are not completed. If a core died, a count may stay too high, which keeps
//! the slot where it is and is safe.
//! Thread-safety: any core may enqueue; lock-free, one compare-and-swap per frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flowyard_frame::{Batch, Lanes};
use flowyard_queue::{Open, Order, Queue, Sink};

/// A handle on the tx queues of one port.
#[derive(Clone)]
pub struct Fan {
    /// By position among the port's cores.
    queues: Arc<[Box<dyn Queue>]>,
    /// The core that empties each queue.
    owners: Arc<[u16]>,
    slots: Arc<[AtomicU32]>,
    by_flow: bool,
}

/// Number of slots: more than flows are in flight at a time.
const SLOTS: usize = 4096;
/// The low bits of a slot count frames, the high bits name the queue.
const COUNT_BITS: u32 = 24;
const COUNT: u32 = (1 << COUNT_BITS) - 1;

impl Fan {
    /// A tx queue for each of the cores `owners` (1 to 256).
    #[must_use]
    pub fn new(owners: &[u16], queues: Vec<Box<dyn Queue>>) -> Self {
        Self {
            queues: queues.into(),
            owners: owners.into(),
            slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            by_flow: false,
        }
    }

    /// As [`Fan::new`], but the tx queue of a flow depends on the flow alone and never changes. This is for
    /// taps, whose host answers by the queue that a flow was last received from: if any core may complete any
    /// frame, the answers would alternate between receive queues and overtake each other.
    #[must_use]
    pub fn by_flow(mut self) -> Self {
        self.by_flow = true;
        self
    }

    /// [`Queue::enqueue`] by `core`, which prefers its own queue; without a core, the flow decides.
    pub fn enqueue_by(&self, core: Option<u16>, from: &mut Batch, lanes: Lanes) -> Lanes {
        let own = self.own(core);
        let (mut left, mut run, mut at) = (lanes, Lanes::NONE, 0);
        while let Some(lane) = left.into_iter().next() {
            let hash = from.frames[lane].hash;
            let to = self.choose(hash, own);
            if to != at && !run.is_empty() {
                let refused = self.enter(core, at, from, run);
                if !refused.is_empty() {
                    self.forget(hash);
                    return Lanes(refused.0 | left.0);
                }
                run = Lanes::NONE;
            }
            (at, run, left) = (to, run.with(lane), left.without(Lanes(1 << lane)));
        }
        if run.is_empty() { run } else { self.enter(core, at, from, run) }
    }

    /// Enqueues lanes that are already counted as in flight in queue `at`.
    fn enter(&self, core: Option<u16>, at: usize, from: &mut Batch, run: Lanes) -> Lanes {
        let refused = match core {
            Some(core) => self.queues[at].enqueue_from(core, from, run),
            None => self.queues[at].enqueue(from, run),
        };
        refused.for_each(|lane| self.forget(from.frames[lane].hash));
        refused
    }

    fn queue_of(&self, core: u16) -> Option<usize> {
        self.owners.iter().position(|owner| *owner == core)
    }

    /// The queue that a core prefers; `None` if the flow decides.
    fn own(&self, core: Option<u16>) -> Option<usize> {
        core.filter(|_| !self.by_flow).and_then(|core| self.queue_of(core))
    }

    fn slot(&self, hash: u32) -> &AtomicU32 {
        &self.slots[mix(hash) as usize % SLOTS]
    }

    /// Counts one more frame of the flow in flight. Returns the queue that it must take, which is `own` if no frame of the
    /// flow is in flight and there is one.
    fn choose(&self, hash: u32, own: Option<usize>) -> usize {
        let prefer = own.unwrap_or(mix(hash) as usize % self.queues.len());
        let slot = self.slot(hash);
        let mut now = slot.load(Ordering::Relaxed);
        loop {
            let queue = if now & COUNT == 0 { prefer } else { (now >> COUNT_BITS) as usize };
            let new = (queue as u32) << COUNT_BITS | ((now & COUNT) + 1);
            // Acquire: a count of 0 means that all earlier frames have been transmitted.
            match slot.compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return queue,
                Err(other) => now = other,
            }
        }
    }

    /// Counts one frame of the flow less in flight.
    fn forget(&self, hash: u32) {
        // Release: pairs with the acquire of the core that finds the count at 0.
        self.slot(hash).fetch_sub(1, Ordering::Release);
    }

    fn of(&self, core: u16) -> Option<&dyn Queue> {
        self.queue_of(core).map(|at| &*self.queues[at])
    }
}

/// Uses other bits than the tables: the receive hash is linear.
const fn mix(hash: u32) -> u32 {
    hash.wrapping_mul(0x9e37_79b1) >> 8
}

impl Queue for Fan {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        self.enqueue_by(None, from, lanes)
    }

    fn enqueue_from(&self, core: u16, from: &mut Batch, lanes: Lanes) -> Lanes {
        self.enqueue_by(Some(core), from, lanes)
    }

    /// Counts the frame as in flight, as it will not be refused.
    fn device_queue(&self, core: u16, from: &Batch, lane: usize) -> Option<u8> {
        let hash = from.frames[lane].hash;
        let at = self.choose(hash, self.own(Some(core)));
        let queue = self.queues[at].device_queue(core, from, lane);
        if queue.is_none() {
            self.forget(hash);
        }
        queue
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

    /// By queue: the tickets of several queues have no common order.
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
