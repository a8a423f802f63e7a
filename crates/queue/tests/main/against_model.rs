//! Compares each lock-free queue with the model: the same operations must have the same results.
//!
//! One thread, several consumers in random order. Workers drop, change and take frames, die, and complete
//! after their batch was released; the queue behind is small and refuses frames. Direct, unordered and
//! ordered queues must behave exactly as the model. An atomic queue may deal differently, but must keep
//! order per flow, and a flow on one core at a time.

use std::collections::HashMap;

use crate::common::{Rig, number, numbers};
use flowyard_frame::{Batch, Lanes};
use flowyard_queue::model::Model;
use flowyard_queue::{Order, Queue};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Enqueue(u32),
    Dequeue(u16),
    OpenAtOnce(u16, usize),
    Complete(u16),
    Release(u16),
    Flush,
    Drain,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => prop_oneof![
            any::<u32>(),
            (0..33_usize).prop_map(|n| Lanes::first(n).0),
            (0..32_u32).prop_map(|lane| 1 << lane),
        ].prop_map(Op::Enqueue),
        4 => (0..4_u16).prop_map(Op::Dequeue),
        2 => (0..3_u16, 1..33_usize).prop_map(|(core, frames)| Op::OpenAtOnce(core, frames)),
        4 => (0..3_u16).prop_map(Op::Complete),
        1 => (0..3_u16).prop_map(Op::Release),
        1 => Just(Op::Flush),
        2 => Just(Op::Drain),
    ]
}

/// The result of one operation.
fn step(rig: &mut Rig, op: Op) -> (Vec<u32>, u64) {
    match op {
        Op::Enqueue(lanes) => (vec![], rig.enqueue(Lanes(lanes)).into()),
        Op::Dequeue(core) if usize::from(core) >= rig.batches.len() => {
            let mut batch = Batch::default();
            rig.queue.dequeue(core, &mut batch);
            (numbers(&batch), 0)
        }
        Op::Dequeue(core) => (rig.dequeue(core), 0),
        Op::OpenAtOnce(core, frames) => (vec![], rig.open_at_once(core, frames).into()),
        Op::Complete(core) => (rig.complete(core), 0),
        Op::Release(core) => (vec![], rig.release(core) as u64),
        Op::Flush => (vec![], rig.queue.flush(&rig.next) as u64),
        Op::Drain => (rig.drain(), 0),
    }
}

/// The visible state of a queue.
fn state(queue: &dyn Queue) -> impl PartialEq + std::fmt::Debug {
    let open: Vec<_> = (0..4).map(|core| queue.open(core)).collect();
    (queue.tail(), queue.head(), queue.len(), open, queue.holder(), queue.consumers())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_line_answers_as_the_model(
        order in prop_oneof![Just(Order::Direct), Just(Order::Unordered), Just(Order::Ordered)],
        capacity in prop_oneof![1..200_usize, Just(64), Just(128)],
        behind in 1..100_usize,
        ops in prop::collection::vec(op(), 1..150),
    ) {
        // A direct queue has one seat, so all operations use the batch of core 0.
        let core = |core: u16| if order == Order::Direct { 0 } else { core };
        let queue = flowyard_queue::new(order, 3, capacity);
        let mut fast = Rig::new(queue, behind, 5);
        let mut slow = Rig::new(Box::new(Model::new(order, 3, capacity)), behind, 5);
        for op in ops {
            let op = match op {
                Op::Dequeue(c) => Op::Dequeue(core(c)),
                Op::OpenAtOnce(c, frames) => Op::OpenAtOnce(core(c), frames),
                Op::Complete(c) => Op::Complete(core(c)),
                other => other,
            };
            prop_assert_eq!(step(&mut fast, op), step(&mut slow, op), "{:?}", op);
            prop_assert_eq!(state(&*fast.queue), state(&*slow.queue), "{:?}", op);
        }
        prop_assert_eq!(fast.finish(), slow.finish());
    }

    #[test]
    fn an_atomic_queue_keeps_its_promise(
        fast in any::<bool>(),
        capacity in prop_oneof![1..200_usize, Just(64), Just(128)],
        behind in 1..100_usize,
        flows in 1..40_u64,
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let queue = match fast {
            true => flowyard_queue::new(Order::Atomic, 3, capacity),
            false => Box::new(Model::new(Order::Atomic, 3, capacity)),
        };
        let mut rig = Rig::new(queue, behind, flows);
        for op in ops {
            step(&mut rig, op);
            let mut homes = HashMap::new();
            for core in 0..3 {
                let batch = &rig.batches[usize::from(core)];
                if rig.queue.open(core).is_none() {
                    continue; // no batch, or it was released
                }
                prop_assert!(batch.keys_in_pool || batch.is_empty());
                for frame in &batch.frames[..batch.len()] {
                    let (flow, _) = rig.flow(number(frame));
                    let home = *homes.entry(flow).or_insert(core);
                    prop_assert_eq!(home, core, "flow {} is on two cores", flow);
                }
            }
            prop_assert!(rig.queue.len() <= capacity);
        }
        rig.finish();
    }
}
