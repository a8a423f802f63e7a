//! What every queue promises: the trait [`Queue`] and the types in its signatures.

use flowyard_frame::{Batch, Frame, Lanes, To};

/// What a queue promises (the four models of Intel's Dynamic Load Balancer).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Order {
    /// One consumer: frames leave as they came.
    Direct,
    /// Any consumer, any order.
    Unordered,
    /// Any consumer; frames leave in the order they came, whatever order the consumers finish in.
    Ordered,
    /// A flow is pinned to one consumer while anything of it is in flight. Frames of equal
    /// [`Frame::hash`] count as one flow: the receive hash must be computed before they enter.
    Atomic,
}

/// A hand-off between cores.
pub trait Queue: Send + Sync {
    /// Takes the frames of `lanes` out of `from`, with their keys and actions, in lane order. A
    /// lane that was taken is left with an empty handle; `from` keeps its length, for lanes never
    /// move.
    ///
    /// Returns the lanes that did not fit: they stay in `from`, and the caller drops (and counts)
    /// or holds them. Once a lane is refused, every later one of the same call is refused too, so a
    /// caller that holds keeps its order.
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes;

    /// Fills `into`, which is empty, with up to 32 frames for consumer `core`. They are open until
    /// [`Queue::complete`]; a core has at most one open batch of a queue, and is given nothing
    /// while it has one.
    fn dequeue(&self, core: u16, into: &mut Batch);

    /// Consumer `core` is done with its open batch: `from` is what [`Queue::dequeue`] gave, lanes
    /// unmoved, and is empty afterwards. Frames whose action is a drop are given to `dropped`, in
    /// any order, with the reason in their action; all others go to `next`, in this queue's
    /// order. A lane whose handle is empty, because the worker sent the frame elsewhere, is done.
    ///
    /// A frame that `next` refuses is held here and handed on by a later call, which closes the
    /// window meanwhile: nothing is lost.
    ///
    /// If `core` has no open batch, because it was released, every frame in `from` is given to
    /// `dropped`.
    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink);

    /// Hands on what is held because `next` refused it before, or became free to go by a
    /// [`Queue::release`]; returns how many frames went.
    fn flush(&self, next: &dyn Queue) -> usize;

    /// What consumer `core` has dequeued and not completed. A value that stays the same for longer
    /// than any work takes is a core that died.
    fn open(&self, core: u16) -> Option<Open>;

    /// Gives up on the open batch of a core that died: its tickets are done, so that the frames
    /// behind them can leave; call [`Queue::flush`] to hand those on. The frames of the batch stay
    /// where they are, with the core: [`Queue::complete`] gives them to its sink if it is called
    /// later. Returns how many frames were open.
    fn release(&self, core: u16) -> usize;

    /// Frames that have entered, ever.
    fn tail(&self) -> u64;

    /// Frames that are done with all before them: handed on, or dropped by a worker. What was done
    /// with them is visible to the caller.
    fn head(&self) -> u64;

    /// Frames in the queue, open or held: `tail - head` when nobody is at work on it.
    fn len(&self) -> usize {
        let head = self.head();
        self.tail().saturating_sub(head) as usize
    }

    /// Whether nothing is in the queue, open or held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The promise.
    fn order(&self) -> Order;

    /// How many consumers the queue has: cores 0 to this - 1.
    fn consumers(&self) -> u16;

    /// The core that has the oldest frame open, so that all others wait for it in the end.
    fn holder(&self) -> Option<u16> {
        let head = self.head();
        (0..self.consumers()).find(|&core| self.open(core).is_some_and(|o| o.since_ticket == head))
    }
}

/// A batch that was dequeued and not completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// How many frames.
    pub frames: usize,
    /// The ticket of its oldest frame: as many frames entered the queue before it.
    pub since_ticket: u64,
}

/// Where dropped frames go: back to the pool, counted by reason.
pub trait Sink {
    /// Takes a frame for good.
    fn drop(&mut self, frame: Frame, to: To);
}

/// Gives every frame in `from` to `dropped`: its core has nothing open in the queue.
pub(crate) fn drop_all(from: &mut Batch, dropped: &mut dyn Sink) {
    for lane in from.lanes() {
        let frame = std::mem::take(&mut from.frames[lane]);
        if !frame.is_empty() {
            dropped.drop(frame, from.actions[lane].to);
        }
    }
    from.set_len(0);
}
