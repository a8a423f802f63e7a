//! The four kinds of queue under one mutex: the reference model for the lock-free queues.
//!
//! ```text
//!  head                                                    tail
//!   │ [held] [open: 1] [done] [open: 0] [waiting] [waiting] │
//!   └ leaves when done ─────────────────────────────────────┘ at most `capacity` entries
//! ```
//!
//! There is one line of entries in the order of arrival. Entries at its front that are done leave the
//! line. An ordered queue hands frames on when they leave, the others when their core completes them.
//!
//! Invariants: an entry is in one state; the front entry is never `Done(None)` between calls.
//! Thread-safety: one mutex around everything, also while frames are handed on to `next`, which must
//! therefore be another queue. It is slow, and allocates.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes};

use crate::contract::{Open, Order, Queue, Sink, drop_all};

/// Any of the four kinds of queue, slow and simple.
#[derive(Debug)]
pub struct Model {
    order: Order,
    consumers: u16,
    capacity: usize,
    limits: Reach,
    line: Mutex<Line>,
}

/// How far into its line a queue looks for frames that a core may have. By default it looks at all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Ordered: frames that are open or done and have not left.
    pub(crate) window: usize,
    /// Atomic: waiting frames among which the queue looks for a flow that is free.
    pub(crate) buffer: usize,
}

impl Default for Reach {
    fn default() -> Self {
        Self { window: usize::MAX, buffer: usize::MAX }
    }
}

/// The frames from the oldest that is not done to the newest.
#[derive(Debug, Default)]
struct Line {
    head: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The receive hash with which the frame entered; it identifies the flow.
    hash: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not dequeued yet.
    Waiting(Car),
    /// This core has it.
    Open(u16),
    /// Completed; the frame, if any, is held until it may leave.
    Done(Option<Car>),
}

/// The contents of a lane.
#[derive(Debug)]
struct Car {
    frame: Frame,
    action: Action,
}

impl Car {
    fn take(from: &mut Batch, lane: usize) -> Self {
        let frame = std::mem::take(&mut from.frames[lane]);
        Self { frame, action: from.actions[lane] }
    }

    /// Moves the contents into the next lane of `into`.
    fn put(self, into: &mut Batch) {
        if let Ok(lane) = into.push(self.frame, FlowKey::ZERO) {
            into.actions[lane] = self.action;
            into.keys_in_pool = true;
        }
    }

    /// Enqueues this frame in `next`; returns whether `next` took it.
    fn hand_on(&mut self, next: &dyn Queue) -> bool {
        let mut alone = Batch::default();
        let car = Self { frame: std::mem::take(&mut self.frame), ..*self };
        car.put(&mut alone);
        let taken = next.enqueue(&mut alone, Lanes::first(1)).is_empty();
        self.frame = std::mem::take(&mut alone.frames[0]);
        taken
    }
}

impl Model {
    /// A queue for the cores 0 to `consumers` - 1 that holds up to `capacity` frames. A direct queue has
    /// one consumer; `consumers` is ignored.
    #[must_use]
    pub fn new(order: Order, consumers: u16, capacity: usize) -> Self {
        let consumers = if order == Order::Direct { 1 } else { consumers.max(1) };
        let limits = Reach::default();
        Self { order, consumers, capacity: capacity.max(1), limits, line: Mutex::default() }
    }

    /// The same queue with a smaller reach.
    pub(crate) fn with_reach(self, limits: Reach) -> Self {
        Self { limits, ..self }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // A panic in another thread does not leave the line inconsistent: every change is complete.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The entries that `core` has open, oldest first.
    fn open(&self, core: u16) -> Vec<usize> {
        let mine = |at: &usize| matches!(self.entries[*at].state, State::Open(c) if c == core);
        (0..self.entries.len()).filter(mine).collect()
    }

    /// Whether a completed frame waits to be handed on.
    fn holds(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.state, State::Done(Some(_))))
    }

    /// The entries that `core` may dequeue now.
    fn free(&self, order: Order, core: u16, limits: Reach) -> Vec<usize> {
        let (mut free, mut waiting) = (Vec::new(), 0);
        for (at, entry) in self.entries.iter().enumerate() {
            let is_waiting = matches!(entry.state, State::Waiting(_));
            // The entries before `at` of an ordered queue are out, or were just chosen.
            if (order == Order::Ordered && at >= limits.window)
                || (order == Order::Atomic && is_waiting && waiting >= limits.buffer)
            {
                break;
            }
            waiting += usize::from(is_waiting);
            let pinned_elsewhere = order == Order::Atomic
                && self.entries.iter().any(|other| {
                    other.hash == entry.hash && matches!(other.state, State::Open(c) if c != core)
                });
            if is_waiting && !pinned_elsewhere && free.len() < LANES {
                free.push(at);
            }
        }
        free
    }

    /// Removes done entries from the front; returns the number of frames handed on.
    fn advance(&mut self, next: Option<&dyn Queue>) -> usize {
        let mut went = 0;
        while let Some(Entry { state: State::Done(car), .. }) = self.entries.front_mut() {
            if let Some(car) = car {
                if !next.is_some_and(|next| car.hand_on(next)) {
                    break;
                }
                went += 1;
            }
            self.entries.pop_front();
            self.head += 1;
        }
        went
    }
}

impl Queue for Model {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        let mut line = self.line();
        let mut refused = Lanes::NONE;
        for lane in lanes {
            if line.entries.len() >= self.capacity {
                refused = refused.with(lane);
                continue;
            }
            let car = Car::take(from, lane);
            line.entries.push_back(Entry { hash: car.frame.hash, state: State::Waiting(car) });
        }
        refused
    }

    fn dequeue(&self, core: u16, into: &mut Batch) {
        let core = if self.order == Order::Direct { 0 } else { core };
        let mut line = self.line();
        if core >= self.consumers || !line.open(core).is_empty() || !into.is_empty() {
            return;
        }
        for at in line.free(self.order, core, self.limits) {
            let state = &mut line.entries[at].state;
            if let State::Waiting(car) = std::mem::replace(state, State::Open(core)) {
                car.put(into);
            }
        }
    }

    fn open_at_once(&self, _: u16, frames: usize) -> bool {
        let mut line = self.line();
        if self.order != Order::Direct || !line.entries.is_empty() || frames > self.capacity {
            return false;
        }
        let open = || Entry { hash: 0, state: State::Open(0) };
        line.entries.extend(std::iter::repeat_with(open).take(frames));
        true
    }

    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink) {
        let core = if self.order == Order::Direct { 0 } else { core };
        let mut line = self.line();
        let len = from.len();
        let open = line.open(core);
        let given = open.len();
        for (lane, at) in open.into_iter().enumerate() {
            line.entries[at].state = State::Done(None);
            if lane >= len || from.frames[lane].is_absent() {
                continue;
            }
            let mut car = Car::take(from, lane);
            if car.action.to.is_end() {
                dropped.drop(car.frame, car.action.to);
                continue;
            }
            let waits = match self.order {
                Order::Direct | Order::Ordered => true,
                Order::Unordered | Order::Atomic => line.holds() || !car.hand_on(next),
            };
            if waits {
                line.entries[at].state = State::Done(Some(car));
            }
        }
        if len > given {
            drop_all(from, dropped); // lanes that the queue did not give to the core
        }
        from.set_len(0);
        line.advance(Some(next));
    }

    fn flush(&self, next: &dyn Queue) -> usize {
        self.line().advance(Some(next))
    }

    fn open(&self, core: u16) -> Option<Open> {
        let core = if self.order == Order::Direct { 0 } else { core };
        let line = self.line();
        let open = line.open(core);
        let since_ticket = line.head + *open.first()? as u64;
        Some(Open { frames: open.len(), since_ticket })
    }

    fn release(&self, core: u16) -> usize {
        let core = if self.order == Order::Direct { 0 } else { core };
        let mut line = self.line();
        let open = line.open(core);
        for &at in &open {
            line.entries[at].state = State::Done(None);
        }
        line.advance(None);
        open.len()
    }

    fn tail(&self) -> u64 {
        let line = self.line();
        line.head + line.entries.len() as u64
    }

    fn head(&self) -> u64 {
        self.line().head
    }

    fn order(&self) -> Order {
        self.order
    }

    fn consumers(&self) -> u16 {
        self.consumers
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::To;

    use super::*;

    #[derive(Default)]
    struct Count(usize);

    impl Sink for Count {
        fn drop(&mut self, _: Frame, _: To) {
            self.0 += 1;
        }
    }

    /// Frames `from` to `to` - 1 of flow `hash`, with an action that hands them on.
    fn frames(from: u32, to: u32, hash: u32) -> Batch {
        let mut batch = Batch::default();
        for n in from..to {
            let mut frame = Frame::unbacked(60);
            (frame.hash, frame.mark) = (hash, n);
            let lane = batch.push(frame, FlowKey::ZERO).unwrap();
            batch.actions[lane] = Action::queue(1);
        }
        batch
    }

    fn numbers(batch: &Batch) -> Vec<u32> {
        batch.frames[..batch.len()].iter().map(|frame| frame.mark).collect()
    }

    #[test]
    fn ordered_frames_wait_for_the_oldest() {
        let queue = Model::new(Order::Ordered, 2, 64);
        let next = Model::new(Order::Direct, 1, 64);
        let (mut a, mut b) = (Batch::default(), Batch::default());
        let mut first = frames(0, 20, 0);
        assert!(queue.enqueue(&mut first, Lanes::first(20)).is_empty());
        queue.dequeue(0, &mut a);
        let mut more = frames(20, 30, 0);
        assert!(queue.enqueue(&mut more, Lanes::first(10)).is_empty());
        queue.dequeue(1, &mut b);
        assert_eq!((numbers(&a).len(), numbers(&b)), (20, (20..30).collect()));
        b.actions[3].to = To::DROP;
        let mut dropped = Count::default();
        queue.complete(1, &mut b, &next, &mut dropped);
        assert_eq!((next.tail(), queue.head(), queue.holder()), (0, 0, Some(0)));
        queue.complete(0, &mut a, &next, &mut dropped);
        assert_eq!((next.tail(), queue.head(), dropped.0), (29, 30, 1));
        next.dequeue(0, &mut a);
        assert_eq!(numbers(&a), (0..30).filter(|&n| n != 23).collect::<Vec<_>>());
    }

    #[test]
    fn an_atomic_flow_stays_with_its_core() {
        let queue = Model::new(Order::Atomic, 2, 64);
        let next = Model::new(Order::Direct, 1, 64);
        let (mut a, mut b) = (Batch::default(), Batch::default());
        queue.enqueue(&mut frames(0, 4, 7), Lanes::first(4));
        queue.dequeue(0, &mut a);
        queue.enqueue(&mut frames(4, 8, 7), Lanes::first(4));
        queue.enqueue(&mut frames(8, 9, 9), Lanes::first(1));
        queue.dequeue(1, &mut b);
        assert_eq!(numbers(&b), [8], "only the other flow is free");
        queue.complete(0, &mut a, &next, &mut Count::default());
        queue.complete(1, &mut b, &next, &mut Count::default());
        queue.dequeue(1, &mut b);
        assert_eq!(numbers(&b), [4, 5, 6, 7], "no frame of the flow is in flight, so it can move");
    }
}
