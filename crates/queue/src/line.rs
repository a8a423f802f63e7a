//! Direct, unordered and ordered queues: one line of frames; cores take frames from its front.
//!
//! ```text
//!              to `next` at once, when a core completes      otherwise parked, and handed on
//!  direct      always: its core has all open frames           by the core that completes the oldest
//!  unordered   unless `next` refused frames before            ticket
//!  ordered     if the core has the oldest ticket
//! ```
//!
//! The three differ only in when a completed batch may overtake others. A direct queue has one seat: its
//! consumer may be another core each time, but a second core gets no frames while the seat is taken.
//!
//! Thread-safety: any thread may call any method; `core` is the consumer.

use flowyard_frame::{Batch, Lanes};

use crate::contract::{Open, Order, Queue, Sink, drop_all};
use crate::ring::{Ring, Seats};

/// A direct, unordered or ordered queue.
pub(crate) struct Line {
    order: Order,
    consumers: u16,
    ring: Ring,
    seats: Seats,
}

impl Line {
    pub(crate) fn new(order: Order, consumers: u16, window: usize) -> Self {
        let consumers = if order == Order::Direct { 1 } else { consumers.max(1) };
        let seats = Seats::new(usize::from(consumers), 0);
        Self { order, consumers, ring: Ring::new(window), seats }
    }

    fn seat(&self, core: u16) -> u16 {
        if self.order == Order::Direct { 0 } else { core }
    }
}

impl Queue for Line {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        self.ring.push(from, lanes)
    }

    fn dequeue(&self, core: u16, into: &mut Batch) {
        if !into.is_empty() {
            return;
        }
        let Some(seat) = self.seats.reserve(self.seat(core)) else { return };
        let Some(claim) = self.ring.claim(flowyard_frame::LANES) else { return };
        self.ring.read(&claim, into);
        seat.open(&claim);
    }

    fn open_at_once(&self, core: u16, frames: usize) -> bool {
        if self.order != Order::Direct {
            return false;
        }
        let Some(seat) = self.seats.reserve(self.seat(core)) else { return false };
        let Some(claim) = self.ring.claim_unused(frames) else { return false };
        seat.open(&claim);
        true
    }

    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink) {
        let Some((_seat, claim)) = self.seats.reopen(self.seat(core)) else {
            drop_all(from, dropped); // the core's batch was released
            self.ring.commit(Some(next));
            return;
        };
        let at_once = match self.order {
            Order::Unordered => !self.ring.holds(),
            _ => self.ring.is_oldest(&claim),
        };
        self.ring.complete(&claim, from, (next, dropped), at_once, || ());
    }

    fn flush(&self, next: &dyn Queue) -> usize {
        self.ring.commit(Some(next))
    }

    fn open(&self, core: u16) -> Option<Open> {
        self.seats.peek(self.seat(core))
    }

    fn release(&self, core: u16) -> usize {
        let Some((_seat, claim)) = self.seats.reopen(self.seat(core)) else { return 0 };
        self.ring.abandon(&claim, || ());
        claim.len()
    }

    fn tail(&self) -> u64 {
        self.ring.tail()
    }

    fn head(&self) -> u64 {
        self.ring.head()
    }

    fn order(&self) -> Order {
        self.order
    }

    fn consumers(&self) -> u16 {
        self.consumers
    }
}
