//! The behaviour that users of Intel's DLB and of DPDK's event devices expect, case by case.
//!
//! Several cases are those in which DPDK's software devices (event_sw, event_opdl) reorder, stop or lose
//! events: events 1 to 8 go to two workers of an ordered queue.

use crate::common::{Pile, frame, number, numbers};
use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes, To};
use flowyard_queue::model::Model;
use flowyard_queue::{Open, Order, Queue, Sink};

/// The queue and its model.
fn both(order: Order, consumers: u16, capacity: usize) -> [Box<dyn Queue>; 2] {
    let model = Model::new(order, consumers, capacity);
    [flowyard_queue::new(order, consumers, capacity), Box::new(model)]
}

fn next() -> Box<dyn Queue> {
    flowyard_queue::new(Order::Direct, 1, 1024)
}

/// Frames of one flow, with an action that hands them on.
fn frames(which: std::ops::Range<u32>) -> Batch {
    let mut batch = Batch::default();
    for n in which {
        let lane = batch.push(frame(n, 1), FlowKey::ZERO).unwrap();
        batch.actions[lane] = Action::queue(1);
    }
    batch
}

/// Enqueues frames; returns the number taken.
fn enqueue(queue: &dyn Queue, which: std::ops::Range<u32>) -> u32 {
    let mut batch = frames(which);
    let lanes = batch.lanes();
    lanes.count() - queue.enqueue(&mut batch, lanes).count()
}

fn dequeue(queue: &dyn Queue, core: u16) -> Batch {
    let mut batch = Batch::default();
    queue.dequeue(core, &mut batch);
    batch
}

/// The batches of two workers: frames 1 to 4, and 5 to 8.
fn two_workers(queue: &dyn Queue) -> [Batch; 2] {
    enqueue(queue, 1..5);
    let first = dequeue(queue, 0);
    enqueue(queue, 5..9);
    [first, dequeue(queue, 1)]
}

/// The numbers of all frames in the queue behind.
fn all(next: &dyn Queue) -> Vec<u32> {
    let mut seen = Vec::new();
    loop {
        let mut batch = dequeue(next, 0);
        if batch.is_empty() {
            return seen;
        }
        seen.extend(numbers(&batch));
        batch.actions = [Action::default(); LANES];
        next.complete(0, &mut batch, next, &mut Pile::default());
    }
}

#[test]
fn the_second_worker_finishes_first() {
    for queue in both(Order::Ordered, 2, 64) {
        let (next, mut dropped) = (next(), Pile::default());
        let [mut a, mut b] = two_workers(&*queue);
        queue.complete(1, &mut b, &*next, &mut dropped);
        assert_eq!((all(&*next), queue.holder()), (vec![], Some(0)));
        queue.complete(0, &mut a, &*next, &mut dropped);
        assert_eq!(all(&*next), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((queue.head(), queue.len(), queue.holder()), (8, 0, None));
    }
}

#[test]
fn slots_released_in_place_leave_the_rest_in_order() {
    for queue in both(Order::Ordered, 2, 64) {
        let (next, mut dropped) = (next(), Pile::default());
        let [mut a, mut b] = two_workers(&*queue);
        a.actions[2] = Action { to: To::Drop(5), counter: 0, mark: 0 };
        b.actions[2] = Action { to: To::Drop(6), counter: 0, mark: 0 };
        queue.complete(1, &mut b, &*next, &mut dropped);
        queue.complete(0, &mut a, &*next, &mut dropped);
        assert_eq!(all(&*next), [1, 2, 4, 5, 6, 8]);
        let named: Vec<_> = dropped.0.iter().map(|(frame, why)| (number(frame), *why)).collect();
        assert_eq!(named, [(7, To::Drop(6)), (3, To::Drop(5))]);
    }
}

/// event_sw closes slots in the order of the worker's operations; here each frame has its own ticket.
#[test]
fn the_first_frame_dropped_keeps_the_order() {
    for queue in both(Order::Ordered, 2, 64) {
        let (next, mut dropped) = (next(), Pile::default());
        let [mut a, mut b] = two_workers(&*queue);
        a.actions[0].to = To::DROP;
        b.actions[0].to = To::DROP;
        queue.complete(0, &mut a, &*next, &mut dropped);
        queue.complete(1, &mut b, &*next, &mut dropped);
        assert_eq!((all(&*next), dropped.0.len()), (vec![2, 3, 4, 6, 7, 8], 2));
    }
}

/// A worker can neither forget a frame nor reverse frames: completing takes every lane, in lane order. The
/// ticket of a frame that the worker sent elsewhere is closed.
#[test]
fn completing_takes_every_lane() {
    for order in [Order::Direct, Order::Unordered, Order::Ordered, Order::Atomic] {
        for queue in both(order, 2, 64) {
            let (next, elsewhere) = (next(), next());
            enqueue(&*queue, 1..9);
            let mut batch = dequeue(&*queue, 0);
            elsewhere.enqueue(&mut batch, Lanes(0b1000_0010));
            queue.complete(0, &mut batch, &*next, &mut Pile::default());
            assert_eq!(all(&*next), [1, 3, 4, 5, 6, 7], "{order:?}");
            assert_eq!(all(&*elsewhere), [2, 8]);
            assert_eq!((queue.head(), queue.open(0), batch.len()), (8, None, 0));
        }
    }
}

#[test]
fn a_core_that_dies_is_named_and_released() {
    for order in [Order::Unordered, Order::Ordered, Order::Atomic] {
        for queue in both(order, 2, 64) {
            let (next, mut dropped) = (next(), Pile::default());
            enqueue(&*queue, 0..10);
            let mut dead = dequeue(&*queue, 0);
            for at in 1..6 {
                enqueue(&*queue, 10 * at..10 * at + 10);
                let mut batch = dequeue(&*queue, 1);
                queue.complete(1, &mut batch, &*next, &mut dropped);
            }
            assert_eq!(enqueue(&*queue, 60..70), 4, "the window of 64 is closed, {order:?}");
            assert_eq!(queue.open(0), Some(Open { frames: 10, since_ticket: 0 }));
            assert_eq!(queue.holder(), Some(0));
            assert_eq!(queue.release(0), 10);
            queue.flush(&*next);
            // An atomic queue dealt later frames of the flow to the dead core; now they go to core 1.
            for _ in 0..3 {
                let mut batch = dequeue(&*queue, 1);
                queue.complete(1, &mut batch, &*next, &mut dropped);
            }
            assert_eq!(all(&*next), (10..64).collect::<Vec<_>>(), "{order:?}");
            // If the core completes later after all, its frames are dropped.
            let held = numbers(&dead);
            queue.complete(0, &mut dead, &*next, &mut dropped);
            assert_eq!((all(&*next), held.len(), dead.len()), (vec![], 10, 0));
            assert_eq!(dropped.0.iter().map(|(f, _)| number(f)).collect::<Vec<_>>(), held);
            assert_eq!((queue.open(0), queue.head(), queue.len()), (None, 64, 0));
            assert_eq!(queue.release(0), 0);
        }
    }
}

/// One worker holds one frame: the others continue until the window is full.
#[test]
fn the_window_bounds_what_passes_a_slow_worker() {
    for queue in both(Order::Ordered, 2, 256) {
        let (next, mut dropped) = (next(), Pile::default());
        enqueue(&*queue, 0..1);
        let mut slow = dequeue(&*queue, 0);
        let mut others = 0;
        for at in 0.. {
            if enqueue(&*queue, 1 + 5 * at..6 + 5 * at) == 0 {
                break;
            }
            let mut batch = dequeue(&*queue, 1);
            others += batch.len();
            queue.complete(1, &mut batch, &*next, &mut dropped);
        }
        assert_eq!((others, queue.holder(), queue.len()), (255, Some(0), 256));
        assert!(all(&*next).is_empty());
        queue.complete(0, &mut slow, &*next, &mut dropped);
        assert_eq!(all(&*next), (0..256).collect::<Vec<_>>());
    }
}

/// The capacity is exact, and is available again after draining.
#[test]
fn the_capacity_is_exact() {
    for order in [Order::Direct, Order::Unordered, Order::Ordered, Order::Atomic] {
        for queue in both(order, 2, 1000) {
            for _ in 0..2 {
                let taken: u32 = (0..40).map(|i| enqueue(&*queue, 32 * i..32 * i + 32)).sum();
                assert_eq!((taken, queue.len()), (1000, 1000), "{order:?}");
                while !queue.is_empty() {
                    let next = next();
                    let mut batch = dequeue(&*queue, 0);
                    queue.complete(0, &mut batch, &*next, &mut Pile::default());
                }
            }
        }
    }
}

/// An elephant in an atomic queue gets no parallelism: all of its frames are with one of two workers.
#[test]
fn an_atomic_elephant_stays_on_one_core() {
    for queue in both(Order::Atomic, 2, 256) {
        let (next, mut dropped) = (next(), Pile::default());
        enqueue(&*queue, 0..32);
        let mut held = dequeue(&*queue, 1);
        for at in 1..100 {
            enqueue(&*queue, 32 * at..32 * at + 32);
            assert!(dequeue(&*queue, 0).is_empty());
            let mut more = held;
            queue.complete(1, &mut more, &*next, &mut dropped);
            held = dequeue(&*queue, 1);
            assert_eq!(held.len(), 32);
            assert_eq!(all(&*next).len(), 32);
        }
    }
}

/// Frames that `next` refuses are held, take up the window, and leave in order when there is space.
#[test]
fn a_refusal_loses_nothing() {
    for order in [Order::Direct, Order::Unordered, Order::Ordered, Order::Atomic] {
        for queue in both(order, 2, 64) {
            let small = flowyard_queue::new(Order::Direct, 1, 10);
            enqueue(&*queue, 0..32);
            let mut batch = dequeue(&*queue, 0);
            queue.complete(0, &mut batch, &*small, &mut Pile::default());
            assert_eq!((queue.head(), queue.len(), small.len()), (10, 22, 10), "{order:?}");
            assert_eq!(queue.flush(&*small), 0);
            let mut seen = all(&*small);
            for went in [10, 10, 2, 0] {
                assert_eq!(queue.flush(&*small), went);
                seen.extend(all(&*small));
            }
            assert_eq!(seen, (0..32).collect::<Vec<_>>());
        }
    }
}

/// Wrong calls do not make a queue panic or lose its own frames.
#[test]
fn wrong_calls_do_no_harm() {
    for order in [Order::Direct, Order::Unordered, Order::Ordered, Order::Atomic] {
        for queue in both(order, 0, 0) {
            let (next, mut dropped) = (next(), Pile::default());
            assert_eq!(
                (queue.consumers(), queue.open(u16::MAX)),
                (1, if order == Order::Direct { queue.open(0) } else { None })
            );
            assert_eq!(enqueue(&*queue, 0..2), 1, "a queue has space for at least one frame");
            queue.enqueue(&mut Batch::default(), Lanes(u32::MAX));
            assert!(order == Order::Direct || dequeue(&*queue, u16::MAX).is_empty());
            let mut batch = dequeue(&*queue, 0);
            assert!(dequeue(&*queue, 0).is_empty(), "one open batch");
            // A frame that the queue did not give the core, in a further lane.
            batch.push(frame(77, 0), FlowKey::ZERO).unwrap();
            queue.complete(0, &mut batch, &*next, &mut dropped);
            assert_eq!((all(&*next), dropped.0.len(), queue.len()), (vec![0], 1, 0));
            queue.complete(0, &mut frames(5..9), &*next, &mut dropped);
            assert_eq!((all(&*next), dropped.0.len(), queue.len()), (vec![], 5, 0));
        }
    }
}

/// A queue that takes every frame and then reports all lanes as refused.
#[derive(Default)]
struct Misreports(std::sync::Mutex<Vec<Frame>>);

impl Queue for Misreports {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        let taken = lanes.map(|lane| std::mem::take(&mut from.frames[lane]));
        self.0.lock().unwrap().extend(taken.filter(|frame| !frame.is_empty()));
        Lanes(u32::MAX)
    }

    fn dequeue(&self, _: u16, _: &mut Batch) {}
    fn complete(&self, _: u16, _: &mut Batch, _: &dyn Queue, _: &mut dyn Sink) {}
    fn flush(&self, _: &dyn Queue) -> usize {
        0
    }
    fn open(&self, _: u16) -> Option<Open> {
        None
    }
    fn release(&self, _: u16) -> usize {
        0
    }
    fn tail(&self) -> u64 {
        0
    }
    fn head(&self) -> u64 {
        0
    }
    fn order(&self) -> Order {
        Order::Direct
    }
    fn consumers(&self) -> u16 {
        0
    }
}

/// Two handles on one buffer would be unsound, so no implementation of `Queue` in safe code may
/// obtain a second one from a queue in front of it.
#[test]
fn a_frame_is_handed_on_once_even_if_the_next_queue_misreports() {
    for order in [Order::Unordered, Order::Ordered, Order::Atomic] {
        for queue in both(order, 2, 64) {
            let behind = Misreports::default();
            let [mut a, mut b] = two_workers(&*queue);
            queue.complete(1, &mut b, &behind, &mut Pile::default());
            queue.complete(0, &mut a, &behind, &mut Pile::default());
            for _ in 0..20 {
                queue.flush(&behind);
            }
            let mut seen: Vec<_> = behind.0.lock().unwrap().iter().map(number).collect();
            let taken = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), taken, "{order:?}");
            assert!(taken > 0);
        }
    }
}
