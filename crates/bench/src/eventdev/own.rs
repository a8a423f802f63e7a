//! flowyard's own queues as a scheduler: a queue for each stage, and a direct queue in front of the consumer.
//!
//! A worker's batch is completed when each of its events is forwarded or released, in whatever order; until then the
//! worker has it open and gets no other one of that queue.

use flowyard_frame::{Batch, FlowKey, Frame, Lanes, To};
use flowyard_queue::{Order, Queue, Sink};

use super::{Done, Item, Kind, Plan, Scheduler};

/// The queues of a plan.
#[derive(Default)]
pub(super) struct Own {
    /// The queues of the stages, and the consumer's.
    queues: Vec<Box<dyn Queue>>,
    workers: Vec<Worker>,
}

/// What a worker has open.
#[derive(Default)]
struct Worker {
    stage: usize,
    batch: Batch,
    /// By lane: what was decided.
    decided: Vec<Option<Done>>,
}

/// Dropped frames name no buffer.
struct Nowhere;

impl Sink for Nowhere {
    fn drop(&mut self, _: Frame, _: To) {}
}

/// The length of the frames, which have no bytes.
const BYTES: u16 = 60;

fn item(frame: &Frame, stage: usize) -> Item {
    Item { number: frame.mark, flow: frame.hash, stage: stage as u8 }
}

impl Own {
    /// Completes the batch of a worker, if all is decided.
    fn complete(&mut self, worker: usize) {
        let open = &mut self.workers[worker];
        if open.decided.is_empty() || open.decided.iter().any(Option::is_none) {
            return;
        }
        for (lane, decided) in open.decided.drain(..).enumerate() {
            if decided == Some(Done::Release) {
                open.batch.actions[lane].to = To::DROP;
            }
        }
        let (queue, next) = (&self.queues[open.stage], self.queues[open.stage + 1].as_ref());
        queue.complete(worker as u16, &mut open.batch, next, &mut Nowhere);
    }
}

impl Scheduler for Own {
    fn title(&self) -> String {
        format!("flowyard {}", env!("CARGO_PKG_VERSION"))
    }

    fn start(&mut self, plan: &Plan) -> Result<(), String> {
        if plan.urgent_last {
            return Err(
                "the queues have no priorities; cores choose among queues, see docs/run.md".into(),
            );
        }
        if plan.threshold != plan.limit {
            return Err(
                "a producer is refused when the window of the queue is full, and has no threshold"
                    .into(),
            );
        }
        let stage = |kind: &Kind| {
            let order = match kind {
                Kind::Ordered => Order::Ordered,
                Kind::Atomic => Order::Atomic,
                Kind::Parallel => Order::Unordered,
            };
            flowyard_queue::new(order, plan.workers as u16, plan.window.min(plan.limit) as usize)
        };
        self.queues = plan.stages.iter().map(stage).collect();
        self.queues.push(flowyard_queue::new(Order::Direct, 1, plan.limit as usize));
        self.workers = (0..plan.workers).map(|_| Worker::default()).collect();
        Ok(())
    }

    fn enter(&mut self, events: &[(u32, u32)]) -> usize {
        let mut entered = 0;
        for chunk in events.chunks(flowyard_frame::LANES) {
            let mut batch = Batch::default();
            for (number, flow) in chunk {
                let mut frame = Frame::unbacked(BYTES);
                (frame.mark, frame.hash) = (*number, *flow);
                if let Ok(lane) = batch.push(frame, FlowKey::ZERO) {
                    batch.actions[lane].to = To::Queue(0);
                }
            }
            let lanes = batch.lanes();
            let left: Lanes = self.queues[0].enqueue(&mut batch, lanes);
            entered += chunk.len() - left.count() as usize;
            if !left.is_empty() {
                break;
            }
        }
        entered
    }

    fn take(&mut self, worker: usize, most: usize) -> Vec<Item> {
        // A batch that is not finished stays open.
        if !self.workers[worker].decided.is_empty() || most == 0 {
            return Vec::new();
        }
        for stage in (0..self.queues.len() - 1).rev() {
            let open = &mut self.workers[worker];
            self.queues[stage].dequeue(worker as u16, &mut open.batch);
            let lanes = open.batch.len();
            if lanes > 0 {
                (open.stage, open.decided) = (stage, vec![None; lanes]);
                return open.batch.frames[..lanes].iter().map(|frame| item(frame, stage)).collect();
            }
        }
        Vec::new()
    }

    fn finish(&mut self, worker: usize, events: &[(Item, Done)]) -> usize {
        let open = &mut self.workers[worker];
        for (event, done) in events {
            let mut frames = open.batch.frames[..open.decided.len()].iter();
            if let Some(lane) = frames.position(|frame| frame.mark == event.number) {
                open.decided[lane] = Some(*done);
            }
        }
        self.complete(worker);
        events.len()
    }

    fn run(&mut self) {
        for pair in self.queues.windows(2) {
            pair[0].flush(pair[1].as_ref());
        }
    }

    fn consume(&mut self) -> Vec<Item> {
        let Some(last) = self.queues.len().checked_sub(1) else { return Vec::new() };
        let mut items = Vec::new();
        loop {
            let mut batch = Batch::default();
            self.queues[last].dequeue(0, &mut batch);
            if batch.is_empty() {
                return items;
            }
            items.extend(batch.frames[..batch.len()].iter().map(|frame| item(frame, last)));
            for lane in batch.lanes() {
                batch.actions[lane].to = To::DROP;
            }
            // All frames are dropped, so nothing goes on to the queue that is named here.
            self.queues[last].complete(0, &mut batch, self.queues[0].as_ref(), &mut Nowhere);
            self.run();
        }
    }

    fn holder(&self) -> Option<usize> {
        self.queues.first().and_then(|queue| queue.holder()).map(usize::from)
    }

    fn give_up(&mut self, worker: usize) -> bool {
        let stage = self.workers[worker].stage;
        self.queues[stage].release(worker as u16);
        self.workers[worker] = Worker::default();
        self.run();
        true
    }
}
