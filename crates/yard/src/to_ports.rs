//! To ports: what lies behind every queue. Splits a completed batch by port, into the tx queues.
//!
//! ```text
//!  complete ──> lanes  [west east west west] ──> tx queue of west: 0 2 3
//!                                           └──> tx queue of east: 1
//! ```
//!
//! Invariants: per port, frames enter its tx queue in lane order, and after a refusal none of the
//! call does; every action of the lanes is a port that exists (the core sees to that before it
//! completes, so that a frame that nobody can take never stands in the way of others).

use std::sync::Arc;

use flowyard_frame::{Batch, Lanes};
use flowyard_queue::{Open, Order, Queue, Sink};

use crate::places::Places;

/// The tx queues of all ports as one queue, to be completed into by one core.
pub struct ToPorts {
    /// Where the ports are.
    pub places: Arc<Places>,
    /// The core that completes: a port that it has a tx queue of is left by that one, where order
    /// allows.
    pub core: u16,
}

impl Queue for ToPorts {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        let mut left = lanes;
        while let Some(lane) = left.into_iter().next() {
            // The lanes in a row that go to the same port: usually all of them.
            let to = from.actions[lane].to;
            let run = Lanes(left.take_while(|&lane| from.actions[lane].to == to).fold(0, bit));
            let refused = match self.places.get(to) {
                Some(place) => place.enqueue(self.core, from, run),
                None => run,
            };
            left = left.without(run);
            if !refused.is_empty() {
                return Lanes(refused.0 | left.0); // and every later lane: see the contract
            }
        }
        Lanes::NONE
    }

    /// Nobody dequeues here: the owners of the ports dequeue from their tx queues.
    fn dequeue(&self, _core: u16, _into: &mut Batch) {}

    fn complete(&self, _: u16, _: &mut Batch, _: &dyn Queue, _: &mut dyn Sink) {}

    fn flush(&self, _next: &dyn Queue) -> usize {
        0
    }

    fn open(&self, _core: u16) -> Option<Open> {
        None
    }

    fn release(&self, _core: u16, _dropped: &mut dyn Sink) -> usize {
        0
    }

    fn tail(&self) -> u64 {
        self.places.ports.iter().map(|place| place.queue.tail()).sum()
    }

    fn head(&self) -> u64 {
        self.places.ports.iter().map(|place| place.queue.head()).sum()
    }

    fn order(&self) -> Order {
        Order::Direct
    }

    fn consumers(&self) -> u16 {
        0
    }
}

const fn bit(bits: u32, lane: usize) -> u32 {
    bits | 1 << lane
}
