//! The contract of queues: the trait [`Queue`] and the types in its signatures.

use flowyard_frame::{Batch, Frame, Lanes, To};

/// The order that a queue guarantees (the four models of Intel's Dynamic Load Balancer).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Order {
    /// One consumer; frames leave in the order of arrival.
    Direct,
    /// Any consumer, any order.
    Unordered,
    /// Any consumer; frames leave in the order of arrival, in whatever order the consumers finish.
    Ordered,
    /// Any consumer, but a flow is pinned to one consumer while any of its frames is in flight. Frames
    /// with equal [`Frame::hash`] count as one flow: the receive hash must be computed before.
    Atomic,
}

/// A hand-off between cores.
pub trait Queue: Send + Sync {
    /// Takes the frames of `lanes` out of `from`, with their actions, in lane order. Keys are not carried: the caller
    /// has stored them in the pool (`Pool::store_keys`). A lane that
    /// was taken is left without a frame; `from` keeps its length, because lanes never move.
    ///
    /// Returns the lanes that did not fit: they stay in `from`, and the caller drops (and counts) or holds
    /// them. Once a lane is refused, every later lane of the same call is refused too, so that a caller
    /// that holds frames keeps their order.
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes;

    /// As [`Queue::enqueue`], by core `core`: a queue of an event device enqueues by a port of that core.
    fn enqueue_from(&self, _core: u16, from: &mut Batch, lanes: Lanes) -> Lanes {
        self.enqueue(from, lanes)
    }

    /// The queue of an event device to which core `core` is to forward the frame of `lane`, in place of
    /// [`Queue::enqueue`]. `None`: the frame does not go to one queue of an event device.
    fn device_queue(&self, _core: u16, _from: &Batch, _lane: usize) -> Option<u8> {
        None
    }

    /// Fills `into`, which is empty, with up to 32 frames for consumer `core`, and sets [`Batch::keys_in_pool`]. They are open until
    /// [`Queue::complete`]. A core has at most one open batch of a queue, and gets no frames while it has
    /// one.
    fn dequeue(&self, core: u16, into: &mut Batch);

    /// Makes `frames` frames that the caller holds, 1 to 32, the open batch of consumer `core`, as if they had been
    /// enqueued and dequeued: the caller works on its own batch, and completes it as any other. Returns whether it
    /// did. It does so only if the queue is direct, no frame is in it, open or held, and `core` has no open batch;
    /// otherwise it changes nothing.
    fn open_at_once(&self, _core: u16, _frames: usize) -> bool {
        false
    }

    /// Consumer `core` has finished its open batch: `from` is the batch of [`Queue::dequeue`], with every
    /// frame in its lane, and is empty afterwards. Frames whose action is a drop are given to `dropped`, in
    /// any order, with the reason in their action; all others go to `next`, in this queue's order. A lane
    /// whose frame is absent, because the worker sent the frame elsewhere, is done.
    ///
    /// A frame that `next` refuses is held in this queue, where it takes up a part of the window, and is
    /// handed on by a later call.
    ///
    /// If `core` has no open batch, because it was released, every frame in `from` is given to
    /// `dropped`.
    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink);

    /// Hands on the frames that are held because `next` refused them before, or because a batch that was
    /// released had to go first. Returns the number of frames handed on.
    fn flush(&self, next: &dyn Queue) -> usize;

    /// The batch that consumer `core` has dequeued and not completed. If it stays the same for longer than
    /// any work takes, the core has died.
    fn open(&self, core: u16) -> Option<Open>;

    /// Whether all frames that entered before those of the open batch of `core` are done, and the core has all frames
    /// from the oldest one of the batch to its last one.
    fn is_oldest(&self, core: u16) -> bool {
        self.open(core).is_some_and(|open| open.since_ticket == self.head())
    }

    /// Gives up on the open batch of a core that died: its tickets are done, so that later frames can
    /// leave; call [`Queue::flush`] to hand those on. The frames of the batch stay with the core:
    /// [`Queue::complete`] gives them to its sink if it is called later. Returns the number of frames that
    /// were open.
    fn release(&self, core: u16) -> usize;

    /// Number of frames that have entered so far.
    fn tail(&self) -> u64;

    /// Number of frames that, with all frames before them, are done: handed on, or dropped by a worker.
    /// What was done with them is visible to the caller.
    fn head(&self) -> u64;

    /// Number of frames in the queue, open or held; approximate while other threads use the queue.
    fn len(&self) -> usize {
        let head = self.head();
        self.tail().saturating_sub(head) as usize
    }

    /// Whether no frame is in the queue, open or held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The order that the queue guarantees.
    fn order(&self) -> Order;

    /// Number of consumers, which are the cores from 0.
    fn consumers(&self) -> u16;

    /// The core that has the oldest frame open, if any: in the end all others wait for it.
    fn holder(&self) -> Option<u16> {
        let head = self.head();
        (0..self.consumers()).find(|&core| self.open(core).is_some_and(|o| o.since_ticket == head))
    }
}

/// A batch that was dequeued and not completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// Number of frames.
    pub frames: usize,
    /// The ticket of its oldest frame, which is the number of frames that entered before it.
    pub since_ticket: u64,
}

/// Takes dropped frames, to count them by reason and return them to the pool.
pub trait Sink {
    /// Takes a frame; `to` is its action's destination, with the reason of the drop.
    fn drop(&mut self, frame: Frame, to: To);
}

/// Gives every frame in `from` to `dropped`, for a core without an open batch.
pub(crate) fn drop_all(from: &mut Batch, dropped: &mut dyn Sink) {
    for lane in from.lanes() {
        let frame = std::mem::take(&mut from.frames[lane]);
        if !frame.is_absent() {
            dropped.drop(frame, from.actions[lane].to);
        }
    }
    from.set_len(0);
}
