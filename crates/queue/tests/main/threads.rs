//! Order per flow and conservation with real threads, for about a second.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::common::{Pile, frame};
use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes, To};
use flowyard_queue::{Order, Queue};
use flowyard_testkit::{Checker, Rng};

const FRAMES: u64 = if cfg!(miri) { 40 } else { 500_000 };
const FLOWS: u64 = 7;

/// Enqueues frames of `FLOWS` flows from `first_flow` on; refused frames are tried again.
fn produce(queue: &dyn Queue, checker: &Mutex<Checker>, first_flow: u64) {
    let mut rng = Rng::new(first_flow);
    let mut made = 0;
    while made < FRAMES {
        let mut batch = Batch::default();
        for _ in 0..=rng.below(LANES as u64 - 1) {
            let flow = first_flow + rng.below(FLOWS);
            let seq = checker.lock().unwrap().enter(flow);
            let frame = frame(seq as u32, flow as u32);
            let lane = batch.push(frame, FlowKey::ZERO).unwrap();
            batch.actions[lane] = Action { mark: seq as u32, ..Action::queue(1) };
        }
        made += batch.len() as u64;
        let mut left = batch.lanes();
        while !left.is_empty() {
            left = queue.enqueue(&mut batch, left);
            if !left.is_empty() {
                std::thread::yield_now();
            }
        }
    }
}

/// Works until all frames have left; drops some frames, and sometimes yields.
fn work(core: u16, queue: &dyn Queue, next: &dyn Queue, total: &AtomicU64, drops: &AtomicU64) {
    let mut rng = Rng::new(u64::from(core) + 99);
    let (mut batch, mut pile) = (Batch::default(), Pile::default());
    while queue.head() < total.load(Relaxed) {
        queue.dequeue(core, &mut batch);
        if batch.is_empty() {
            queue.flush(next);
            std::thread::yield_now();
            continue;
        }
        if rng.below(16) == 0 {
            std::thread::yield_now();
        }
        for lane in batch.lanes() {
            if batch.frames[lane].mark % 31 == 7 {
                batch.actions[lane].to = To::DROP;
            }
        }
        queue.complete(core, &mut batch, next, &mut pile);
    }
    drops.fetch_add(pile.0.len() as u64, Relaxed);
}

fn run(order: Order, workers: u16) {
    let queue = flowyard_queue::new(order, workers, 300);
    let next = flowyard_queue::new(Order::Direct, 1, 100);
    let (queue, next) = (&*queue, &*next);
    let unordered = order == Order::Unordered;
    let checker = Mutex::new(if unordered { Checker::any_order() } else { Checker::new() });
    let (drops, worked) = (AtomicU64::new(0), AtomicBool::new(false));
    // The number of frames is known only when the producers have finished; it is more than `FRAMES`.
    let total = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        let producers = [0, FLOWS].map(|first| {
            let checker = &checker;
            scope.spawn(move || produce(queue, checker, first))
        });
        let workers: Vec<_> = (0..workers)
            .map(|core| {
                let (drops, total) = (&drops, &total);
                scope.spawn(move || work(core, queue, next, total, drops))
            })
            .collect();
        let consumer = scope.spawn(|| {
            let mut batch = Batch::default();
            loop {
                let last = worked.load(Relaxed);
                next.dequeue(0, &mut batch);
                if batch.is_empty() {
                    if last {
                        break;
                    }
                    std::thread::yield_now();
                }
                let mut checker = checker.lock().unwrap();
                for lane in batch.lanes() {
                    let frame = &batch.frames[lane];
                    assert_eq!(frame.mark, batch.actions[lane].mark, "the frame with its action");
                    checker.leave(frame.hash.into(), frame.mark.into());
                    batch.actions[lane].to = To::DROP;
                }
                drop(checker);
                next.complete(0, &mut batch, next, &mut Pile::default());
            }
        });
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        total.store(queue.tail(), Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        worked.store(true, std::sync::atomic::Ordering::SeqCst);
        consumer.join().unwrap();
    });
    assert!(queue.is_empty() && next.is_empty());
    let mut checker = checker.into_inner().unwrap();
    (0..drops.load(Relaxed)).for_each(|_| checker.drop("by a worker"));
    let summary = checker.finish(0).unwrap();
    assert!(summary.entered >= 2 * FRAMES && summary.dropped["by a worker"] > 0);
}

#[test]
fn ordered() {
    run(Order::Ordered, 3);
}

#[test]
fn atomic() {
    run(Order::Atomic, 3);
}

#[test]
fn unordered() {
    run(Order::Unordered, 2);
}

#[test]
fn direct() {
    run(Order::Direct, 1);
}

#[test]
fn lanes_of_a_batch_in_pieces() {
    // Any lanes, a ring that wraps, one thread: every frame that goes in comes out.
    let queue = flowyard_queue::new(Order::Direct, 1, 70);
    let mut rng = Rng::new(5);
    let (mut number, mut expected) = (0, 0);
    for _ in 0..if cfg!(miri) { 4 } else { 2000 } {
        let lanes = Lanes(rng.bits() as u32 & rng.bits() as u32);
        let mut batch = Batch::default();
        for lane in 0..LANES {
            let frame = if lanes.has(lane) { frame(number, 0) } else { Frame::default() };
            number += u32::from(lanes.has(lane));
            batch.push(frame, FlowKey::ZERO).unwrap();
            batch.actions[lane].mark = lane as u32;
        }
        assert!(queue.enqueue(&mut batch, lanes).is_empty());
        let mut out = Batch::default();
        queue.dequeue(0, &mut out);
        assert!(out.actions[..out.len()].iter().map(|action| action.mark as usize).eq(lanes));
        for lane in out.lanes() {
            assert_eq!(out.frames[lane].mark, expected);
            expected += 1;
        }
        queue.complete(0, &mut out, &*queue, &mut Pile::default());
    }
}
