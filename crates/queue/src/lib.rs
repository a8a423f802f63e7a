//! IN WHAT ORDER: hand-off of frames between cores.
//!
//! ```text
//!  producers ── enqueue ──> [ direct | unordered | ordered | atomic ] ── dequeue ──> cores
//!                                          ^                                │ work
//!                                          └──────── complete ──────────────┘──> next queue
//! ```
//!
//! A queue promises an order ([`Order`]); it never decides where a frame goes. What a core dequeues
//! is *open* until the core completes it; completing takes every lane, so nothing is forgotten.
//!
//! Invariants of every queue: frames in = frames out + frames dropped by workers + frames held;
//! per flow, an ordered or atomic queue hands on in the order of arrival.

use flowyard_frame::{Batch, Lanes};

/// What a queue promises (the four models of Intel's Dynamic Load Balancer).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Order {
    /// One consumer: frames leave as they came.
    Direct,
    /// Any consumer, any order.
    Unordered,
    /// Any consumer; frames leave in the order they came, whatever order the consumers finish in.
    Ordered,
    /// A flow is pinned to one consumer while anything of it is in flight.
    Atomic,
}

/// A hand-off between cores.
pub trait Queue: Send + Sync {
    /// Takes the frames of `lanes` out of `from`, with their keys and actions, in lane order.
    /// Returns the lanes that did not fit: they stay in `from`, and the caller drops (and counts)
    /// or holds them. Once a lane is refused, every later one of the same call is refused too, so a
    /// caller that holds keeps its order.
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes;

    /// Fills `into`, which is empty, with up to 32 frames for consumer `core`. They are open until
    /// [`Queue::complete`]; a core has at most one open batch of a queue.
    fn dequeue(&self, core: u16, into: &mut Batch);

    /// Consumer `core` is done with its open batch: `from` is what [`Queue::dequeue`] gave, lanes
    /// unmoved. Frames whose action is a drop are given to `dropped`, in any order; all others go
    /// to `next`, in this queue's order. A frame that `next` refuses is held here and handed on by
    /// a later call, which closes the window meanwhile: nothing is lost.
    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink);

    /// Hands on what is held because `next` refused it before; returns how many frames went.
    fn flush(&self, next: &dyn Queue) -> usize;

    /// Frames that have entered, ever.
    fn tail(&self) -> u64;

    /// Frames that are done with all before them: handed on, or dropped by a worker.
    fn head(&self) -> u64;

    /// Frames in the queue, open or held: `tail - head` when nobody is at work on it.
    fn len(&self) -> usize {
        (self.tail() - self.head()) as usize
    }

    /// Whether nothing is in the queue, open or held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The promise.
    fn order(&self) -> Order;
}

/// Where dropped frames go: back to the pool, counted by reason.
pub trait Sink {
    /// Takes a frame for good.
    fn drop(&mut self, frame: flowyard_frame::Frame, reason: u16);
}
