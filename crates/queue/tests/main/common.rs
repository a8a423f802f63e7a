//! A queue with workers and a queue behind it, and a checker of the frames that leave.

use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes, To};
use flowyard_queue::model::Model;
use flowyard_queue::{Order, Queue, Sink};
use flowyard_testkit::Checker;

/// Collects dropped frames.
#[derive(Default)]
pub(crate) struct Pile(pub(crate) Vec<(Frame, To)>);

impl Sink for Pile {
    fn drop(&mut self, frame: Frame, to: To) {
        self.0.push((frame, to));
    }
}

/// Set in the mark of a frame that a worker changed; the other bits are the frame's number.
const CHANGED: u32 = 1 << 31;

/// A frame that has its number in its mark.
pub(crate) fn frame(number: u32, hash: u32) -> Frame {
    let mut frame = Frame::unbacked(60);
    (frame.hash, frame.mark) = (hash, number);
    frame
}

pub(crate) fn number(frame: &Frame) -> u32 {
    frame.mark & !CHANGED
}

/// The numbers of the frames in a batch; empty frames are skipped.
pub(crate) fn numbers(batch: &Batch) -> Vec<u32> {
    batch.frames[..batch.len()].iter().filter(|f| !f.is_empty()).map(number).collect()
}

/// A queue, its workers, and the bounded direct queue behind it.
pub(crate) struct Rig {
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) next: Model,
    /// The batch that each core has.
    pub(crate) batches: Vec<Batch>,
    pub(crate) checker: Checker,
    pub(crate) flows: u64,
    /// Frames that the queue took.
    entered: u32,
    pub(crate) out: Vec<u32>,
}

impl Rig {
    pub(crate) fn new(queue: Box<dyn Queue>, next_capacity: usize, flows: u64) -> Self {
        let checker = match queue.order() {
            Order::Unordered => Checker::any_order(),
            _ => Checker::new(),
        };
        let batches = (0..queue.consumers().max(3)).map(|_| Batch::default()).collect();
        let next = Model::new(Order::Direct, 1, next_capacity);
        Self { queue, next, batches, checker, flows, entered: 0, out: Vec::new() }
    }

    /// Enqueues a frame for each lane of `lanes`; returns the number refused. Frames are numbered in the
    /// order in which they are taken; three consecutive frames are of one flow.
    pub(crate) fn enqueue(&mut self, lanes: Lanes) -> u32 {
        let mut batch = Batch::default();
        let mut number = self.entered;
        for lane in 0..LANES {
            if !lanes.has(lane) {
                batch.push(Frame::default(), FlowKey::ZERO).unwrap();
                continue;
            }
            let (flow, _) = self.flow(number);
            batch.push(frame(number, flow as u32), FlowKey::ZERO).unwrap();
            batch.actions[lane] = Action { to: To::Queue(number as u16), counter: 0, mark: number };
            number += 1;
        }
        let before = self.queue.tail();
        let refused = self.queue.enqueue(&mut batch, lanes);
        let taken = lanes.without(refused);
        assert_eq!(refused.without(lanes), Lanes::NONE);
        assert!(taken.0 == 0 || refused.0 == 0 || taken.0.ilog2() < refused.0.trailing_zeros());
        for lane in 0..LANES {
            assert_eq!(batch.frames[lane].is_empty(), !refused.has(lane), "lane {lane}");
        }
        assert_eq!(self.queue.tail() - before, u64::from(taken.count()));
        for number in self.entered..self.entered + taken.count() {
            let (flow, seq) = self.flow(number);
            assert_eq!(self.checker.enter(flow), seq);
        }
        self.entered += taken.count();
        refused.count()
    }

    /// Core `core` opens `frames` new frames at once, if it has no batch; returns whether the queue agreed.
    pub(crate) fn open_at_once(&mut self, core: u16, frames: usize) -> bool {
        if !self.batches[usize::from(core)].is_empty() {
            return false;
        }
        let before = self.queue.tail();
        let opened = self.queue.open_at_once(core, frames);
        assert_eq!(self.queue.tail() - before, if opened { frames as u64 } else { 0 });
        for number in (self.entered..).take(if opened { frames } else { 0 }) {
            let (flow, seq) = self.flow(number);
            assert_eq!(self.checker.enter(flow), seq);
            let batch = &mut self.batches[usize::from(core)];
            let lane = batch.push(frame(number, flow as u32), FlowKey::ZERO).unwrap();
            batch.actions[lane] = Action { to: To::Queue(number as u16), counter: 0, mark: number };
            self.entered += 1;
        }
        opened
    }

    /// The flow of a frame, and the frame's number in the flow.
    pub(crate) fn flow(&self, number: u32) -> (u64, u64) {
        let number = u64::from(number);
        (number / 3 % self.flows + 1, number / (3 * self.flows) * 3 + number % 3)
    }

    /// Core `core` dequeues; returns the frames that it has then.
    pub(crate) fn dequeue(&mut self, core: u16) -> Vec<u32> {
        let batch = &mut self.batches[usize::from(core)];
        self.queue.dequeue(core, batch);
        numbers(batch)
    }

    /// The work, by frame number: some frames are dropped, some sent elsewhere, some changed.
    fn work(&mut self, core: u16) {
        let batch = &mut self.batches[usize::from(core)];
        for lane in batch.lanes() {
            let number = number(&batch.frames[lane]);
            if number % 7 == 3 {
                batch.actions[lane].to = To::Drop(number as u16);
            } else if number % 11 == 5 && !batch.frames[lane].is_empty() {
                batch.frames[lane] = Frame::default();
                self.checker.drop("sent elsewhere");
            } else if number % 5 == 1 {
                batch.frames[lane].mark |= CHANGED;
                batch.frames[lane].hash = 0;
                batch.actions[lane].mark = CHANGED;
            }
        }
    }

    /// Core `core` works and completes; returns the dropped frames.
    pub(crate) fn complete(&mut self, core: u16) -> Vec<u32> {
        // After a release all frames are dropped, so there is no work.
        if self.queue.open(core).is_some() {
            self.work(core);
        }
        let mut pile = Pile::default();
        let batch = &mut self.batches[usize::from(core)];
        self.queue.complete(core, batch, &self.next, &mut pile);
        assert!(batch.is_empty() && batch.frames.iter().all(Frame::is_empty));
        self.pile(&pile)
    }

    /// Releases core `core`; returns how many frames it had open.
    pub(crate) fn release(&self, core: u16) -> usize {
        self.queue.release(core)
    }

    fn pile(&mut self, pile: &Pile) -> Vec<u32> {
        for (frame, to) in &pile.0 {
            // Frames of a core that was released keep their action.
            let number = number(frame) as u16;
            assert!(
                [To::Drop(number), To::Queue(number)].contains(to),
                "each frame with its action"
            );
            self.checker.drop("dropped");
        }
        pile.0.iter().map(|(frame, _)| number(frame)).collect()
    }

    /// Takes up to 32 frames out of the queue behind.
    pub(crate) fn drain(&mut self) -> Vec<u32> {
        let mut batch = Batch::default();
        self.next.dequeue(0, &mut batch);
        assert!(batch.keys_in_pool || batch.is_empty(), "no queue carries keys");
        for lane in batch.lanes() {
            let frame = &batch.frames[lane];
            let (flow, seq) = self.flow(number(frame));
            self.checker.leave(flow, seq);
            let changed = number(frame) % 5 == 1;
            let seen = (batch.actions[lane].mark == CHANGED, frame.mark & CHANGED != 0);
            assert_eq!(seen, (changed, changed), "what the worker wrote");
            batch.actions[lane].to = To::DROP;
        }
        let seen = numbers(&batch);
        self.next.complete(0, &mut batch, &self.next, &mut Pile::default());
        self.out.extend(&seen);
        seen
    }

    /// Completes, drains and flushes until nothing is left, then checks order and conservation.
    pub(crate) fn finish(mut self) -> Vec<u32> {
        for round in 0.. {
            for core in 0..self.queue.consumers() {
                self.dequeue(core);
                self.complete(core);
            }
            self.drain();
            self.queue.flush(&self.next);
            if self.queue.is_empty() && self.next.is_empty() {
                break;
            }
            assert!(round < 10_000, "stuck with {} frames", self.queue.len());
        }
        assert_eq!((self.queue.head(), self.queue.holder()), (self.queue.tail(), None));
        assert_eq!(self.queue.tail(), u64::from(self.entered));
        self.checker.finish(0).unwrap();
        self.out
    }
}
