//! All interleavings, up to a number of preemptions, of the ring, the done bits and the pin table.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p flowyard-queue --release --test loom
//! ```
//!
//! Loom runs a small case repeatedly, each time with another schedule and other outcomes that the memory
//! model allows, and tracks the accesses to slots. Words of bits are two tickets wide here, so that short
//! runs wrap. Cases that would take too long with four preemptions use three, which find nearly all
//! errors.

#![cfg(loom)]

use std::sync::Mutex;

use flowyard_frame::{Action, Batch, FlowKey, Frame, Lanes, To};
use flowyard_queue::{DoneBits, Open, Order, Queue, Sink};
use loom::sync::Arc;
use loom::thread;

/// Runs `case` under the model checker.
fn check(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(case);
}

/// The queue behind: takes every frame, in the order given. Loom does not see its mutex, so that it adds
/// no synchronization. With the cell, loom reports an error if two threads hand frames on without
/// synchronization between them.
#[derive(Default)]
struct Out(Mutex<Vec<u32>>, Option<loom::cell::UnsafeCell<()>>);

// SAFETY: loom checks each access to the cell, which has no contents.
#[allow(unsafe_code, reason = "loom checks the accesses")]
unsafe impl Sync for Out {}

impl Out {
    fn seen(&self) -> Vec<u32> {
        self.0.lock().unwrap().clone()
    }
}

impl Queue for Out {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        if let (Some(cell), false) = (&self.1, lanes.is_empty()) {
            cell.with_mut(|_| ());
        }
        let mut out = self.0.lock().unwrap();
        for lane in lanes {
            let frame = std::mem::take(&mut from.frames[lane]);
            assert_eq!(from.actions[lane].mark, frame.mark, "the action of this very frame");
            out.push(frame.mark);
        }
        Lanes::NONE
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
        1
    }
}

#[derive(Default)]
struct Pile(Vec<u32>);

impl Sink for Pile {
    fn drop(&mut self, frame: Frame, _: To) {
        self.0.push(frame.mark);
    }
}

/// Enqueues frames of one flow; returns the number taken.
fn enqueue(queue: &dyn Queue, which: std::ops::Range<u32>) -> usize {
    let mut batch = Batch::default();
    for n in which {
        let mut frame = Frame::unbacked(60);
        (frame.hash, frame.mark) = (1, n);
        let lane = batch.push(frame, FlowKey::ZERO).unwrap();
        batch.actions[lane] = Action { mark: n, ..Action::queue(1) };
    }
    let lanes = batch.lanes();
    lanes.without(queue.enqueue(&mut batch, lanes)).count() as usize
}

fn dequeue(queue: &dyn Queue, core: u16) -> Batch {
    let mut batch = Batch::default();
    queue.dequeue(core, &mut batch);
    batch
}

/// Dequeues and completes; returns the number of frames.
fn turn(queue: &dyn Queue, core: u16, out: &Out) -> usize {
    let mut batch = dequeue(queue, core);
    let taken = batch.len();
    if taken > 0 {
        queue.complete(core, &mut batch, out, &mut Pile::default());
    }
    taken
}

fn shared(order: Order, window: usize) -> (Arc<Box<dyn Queue>>, Arc<Out>) {
    let cell = (order != Order::Unordered).then(|| loom::cell::UnsafeCell::new(()));
    let out = Out(Mutex::default(), cell);
    (Arc::new(flowyard_queue::new(order, 2, window)), Arc::new(out))
}

#[test]
fn done_bits_publish_what_was_done_before() {
    check(4, || {
        let bits = Arc::new(DoneBits::new(4));
        let cells = Arc::new([const { () }; 3].map(|()| loom::cell::UnsafeCell::new(0)));
        let setters: Vec<_> = [(0, 1), (1, 2)]
            .map(|(first, run)| {
                let (bits, cells) = (bits.clone(), cells.clone());
                thread::spawn(move || {
                    for at in first..first + run {
                        // SAFETY: only this thread has the ticket until it sets the bit.
                        #[allow(unsafe_code, reason = "loom checks the accesses")]
                        cells[at].with_mut(|cell| unsafe { *cell = at + 1 });
                    }
                    bits.set(first as u64, run);
                })
            })
            .into();
        let mut oldest = 0;
        for _ in 0..2 {
            let end = bits.update(oldest);
            for at in oldest..end {
                // SAFETY: the ticket is done, and now belongs to the updater.
                #[allow(unsafe_code, reason = "loom checks the accesses")]
                let seen = cells[at as usize].with(|cell| unsafe { *cell });
                assert_eq!(seen, at as usize + 1);
            }
            oldest = end;
        }
        setters.into_iter().for_each(|setter| setter.join().unwrap());
        while oldest < 3 {
            let end = bits.update(oldest);
            assert!(end > oldest, "a bit was lost at {oldest}");
            oldest = end;
        }
    });
}

#[test]
fn a_producer_and_a_consumer_over_a_ring_that_wraps() {
    check(4, || {
        let (queue, out) = shared(Order::Direct, 2);
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || {
                let first = enqueue(&**queue, 0..2);
                first + enqueue(&**queue, 2..4)
            })
        };
        let mut seen = turn(&**queue, 0, &out) + turn(&**queue, 0, &out);
        let taken = producer.join().unwrap();
        while seen < taken {
            seen += turn(&**queue, 0, &out);
        }
        assert_eq!(out.seen(), (0..taken as u32).collect::<Vec<_>>());
        assert_eq!((queue.tail(), queue.head()), (taken as u64, taken as u64));
    });
}

/// The consumer opens frames of its own at once while another thread enqueues, over a ring that wraps.
#[test]
fn frames_opened_at_once_and_frames_of_a_producer_keep_their_order() {
    check(4, || {
        let (queue, out) = shared(Order::Direct, 2);
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || enqueue(&**queue, 0..1) + enqueue(&**queue, 1..2))
        };
        let mut own = 10;
        for _ in 0..2 {
            if queue.open_at_once(0, 1) {
                let mut batch = Batch::default();
                let mut frame = Frame::unbacked(60);
                frame.mark = own;
                let lane = batch.push(frame, FlowKey::ZERO).unwrap();
                batch.actions[lane] = Action { mark: own, ..Action::queue(1) };
                queue.complete(0, &mut batch, &*out, &mut Pile::default());
                own += 1;
            } else {
                turn(&**queue, 0, &out);
            }
        }
        let taken = producer.join().unwrap();
        while turn(&**queue, 0, &out) > 0 {}
        let (of_here, of_producer): (Vec<_>, Vec<_>) =
            out.seen().into_iter().partition(|n| *n >= 10);
        assert_eq!(of_here, (10..own).collect::<Vec<_>>());
        // The ring may have been full for the first.
        assert!(of_producer.is_sorted() && of_producer.len() == taken, "{of_producer:?}");
        assert_eq!((queue.tail(), queue.head()), (queue.head(), out.seen().len() as u64));
    });
}

#[test]
fn two_producers_lose_nothing() {
    check(4, || {
        let (queue, out) = shared(Order::Unordered, 3);
        let other = {
            let queue = queue.clone();
            thread::spawn(move || enqueue(&**queue, 10..12))
        };
        let here = enqueue(&**queue, 0..2);
        turn(&**queue, 0, &out);
        let taken = here + other.join().unwrap();
        while turn(&**queue, 0, &out) > 0 {}
        let (seen, mut all) = (out.seen(), Vec::new());
        all.extend(0..here as u32);
        all.extend(10..10 + (taken - here) as u32);
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, all);
        let of_here: Vec<_> = seen.into_iter().filter(|n| *n < 10).collect();
        assert!(of_here.is_sorted(), "each producer's in order");
    });
}

#[test]
fn two_consumers_share_without_overlap() {
    for order in [Order::Unordered, Order::Ordered] {
        check(4, move || {
            let (queue, out) = shared(order, 4);
            enqueue(&**queue, 0..1);
            let other = {
                let (queue, out) = (queue.clone(), out.clone());
                thread::spawn(move || turn(&**queue, 1, &out))
            };
            enqueue(&**queue, 1..2);
            let here = turn(&**queue, 0, &out);
            let taken = here + other.join().unwrap();
            // The core that completed last has handed the frames on; no further call is needed.
            let mut seen = out.seen();
            assert_eq!((seen.len(), queue.head()), (taken, taken as u64));
            seen.sort_unstable();
            assert_eq!(seen, (0..taken as u32).collect::<Vec<_>>());
            assert!(order == Order::Unordered || out.seen().is_sorted());
        });
    }
}

/// A core that sets its bits too late for the committer commits itself: no frame waits for a later call.
#[test]
fn the_last_to_complete_commits() {
    check(4, || {
        let (queue, out) = shared(Order::Ordered, 4);
        enqueue(&**queue, 0..1);
        let mut first = dequeue(&**queue, 0);
        enqueue(&**queue, 1..3);
        let mut second = dequeue(&**queue, 1);
        let other = {
            let (queue, out) = (queue.clone(), out.clone());
            thread::spawn(move || {
                queue.complete(1, &mut second, &*out, &mut Pile::default());
            })
        };
        queue.complete(0, &mut first, &*out, &mut Pile::default());
        other.join().unwrap();
        assert_eq!((out.seen(), queue.head()), (vec![0, 1, 2], 3));
    });
}

/// A producer reuses slots while they are committed, and another thread flushes.
#[test]
fn commit_and_reuse() {
    check(3, || {
        let (queue, out) = shared(Order::Ordered, 2);
        enqueue(&**queue, 0..1);
        let mut first = dequeue(&**queue, 0);
        enqueue(&**queue, 1..2);
        let mut second = dequeue(&**queue, 1);
        let other = {
            let (queue, out) = (queue.clone(), out.clone());
            thread::spawn(move || {
                queue.complete(1, &mut second, &*out, &mut Pile::default());
                queue.flush(&*out);
            })
        };
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || enqueue(&**queue, 2..3))
        };
        queue.complete(0, &mut first, &*out, &mut Pile::default());
        other.join().unwrap();
        let more = producer.join().unwrap();
        assert_eq!(turn(&**queue, 0, &out), more);
        assert_eq!(out.seen(), (0..2 + more as u32).collect::<Vec<_>>());
    });
}

/// One flow and two cores, while frames arrive: the flow keeps its order.
#[test]
fn a_pinned_flow_keeps_its_order_when_it_moves() {
    check(3, || {
        let (queue, out) = shared(Order::Atomic, 4);
        enqueue(&**queue, 0..1);
        let other = {
            let (queue, out) = (queue.clone(), out.clone());
            thread::spawn(move || turn(&**queue, 1, &out) + turn(&**queue, 1, &out))
        };
        enqueue(&**queue, 1..2);
        let here = turn(&**queue, 0, &out);
        let mut taken = here + other.join().unwrap();
        for _ in 0..2 {
            taken += turn(&**queue, 1, &out) + turn(&**queue, 0, &out);
        }
        assert_eq!((taken, out.seen(), queue.head()), (2, vec![0, 1], 2));
    });
}

/// A batch is completed or released, never both: each frame is handed on or dropped, once.
#[test]
fn a_release_races_with_the_core() {
    for order in [Order::Ordered, Order::Atomic] {
        check(4, move || {
            let (queue, out) = shared(order, 2);
            enqueue(&**queue, 0..2);
            let mut batch = dequeue(&**queue, 0);
            let other = {
                let queue = queue.clone();
                thread::spawn(move || queue.release(0))
            };
            batch.actions[1].to = To::DROP;
            let mut dropped = Pile::default();
            queue.complete(0, &mut batch, &*out, &mut dropped);
            let released = other.join().unwrap();
            let outcome = (out.seen(), dropped.0, released);
            let completed = (vec![0], vec![1], 0);
            assert!(outcome == completed || outcome == (vec![], vec![0, 1], 2));
            assert_eq!(queue.head(), 2);
        });
    }
}
