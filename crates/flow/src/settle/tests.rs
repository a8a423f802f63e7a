use std::collections::VecDeque;

use flowyard_frame::{Frame, Rng, proto};
use flowyard_testkit::{Checker, Summary, Violation, batch};
use proptest::prelude::*;

use super::*;

/// A frame: its flow, and its number in the flow.
#[derive(Clone, Copy, Debug)]
struct Sent {
    flow: u64,
    number: u64,
}

/// A queue and the core that serves it, one frame at a time.
#[derive(Clone, Debug, Default)]
struct Served {
    waiting: VecDeque<Sent>,
    in_service: Option<Sent>,
    tail: u64,
    head: u64,
}

/// Queues, and one port that this core itself transmits to.
#[derive(Clone, Debug)]
struct Places(Vec<Served>);

impl Tails for Places {
    fn tail(&self, home: To) -> u64 {
        if let To::Queue(queue) = home { self.0[queue as usize].tail } else { 0 }
    }
    fn head(&self, home: To) -> u64 {
        if let To::Queue(queue) = home { self.0[queue as usize].head } else { u64::MAX }
    }
}

/// Whether each flow left in order, and settle's counters, when tables answer at random and cores serve
/// at random speeds.
fn run(
    seed: u64,
    slots: Option<usize>,
    flows: usize,
    queues: usize,
) -> (Result<Summary, Violation>, Settled) {
    let mut random = Rng::new(seed);
    let mut below = move |n: usize| (random.bits() >> 33) as usize % n;
    let mut settle = slots.map(|slots| Settle::new(slots, seed));
    let mut places = Places(vec![Served::default(); queues]);
    let mut checker = Checker::new();
    let mut step = 0;
    // No frame enters after 6000 steps, but all frames inside must leave.
    while step < 6000 || places.0.iter().any(|queue| queue.head != queue.tail) {
        step += 1;
        if step < 6000 && below(100) == 0 {
            let mut batch = Batch::default();
            let mut frames = Vec::new();
            for _ in 0..=below(LANES) {
                let flow = below(flows) as u64;
                let key = FlowKey {
                    sport: flow as u16,
                    tos: below(4) as u8, // not part of the flow
                    proto: proto::UDP,
                    eth_type: 0x0800,
                    ..FlowKey::ZERO
                };
                // Some runs use receive hashes, the others only keys.
                let mut frame = Frame::unbacked(60);
                frame.hash = if seed.is_multiple_of(2) { 0 } else { (flow as u32 + 1) << 7 };
                let lane = batch.push(frame, key).unwrap();
                // Mostly the same queue, as in real tables; sometimes another queue, a port or a drop.
                batch.actions[lane].to = match below(16) {
                    0..=2 => To::Port(1),
                    3 => To::DROP,
                    4..7 => To::Queue(below(queues) as u16),
                    _ => To::Queue((flow % queues as u64) as u16),
                };
                frames.push(flow);
            }
            let all = batch.lanes();
            if let Some(settle) = &mut settle {
                settle.settle(&mut batch, all, &places);
            }
            for (flow, action) in frames.into_iter().zip(batch.actions) {
                if action.to.is_drop() {
                    continue;
                }
                let frame = Sent { flow, number: checker.enter(flow) };
                match action.to {
                    To::Queue(queue) => {
                        let queue = &mut places.0[queue as usize];
                        queue.waiting.push_back(frame);
                        queue.tail += 1;
                    }
                    _ => checker.leave(frame.flow, frame.number),
                }
            }
            if let Some(settle) = &mut settle {
                settle.enqueued(&places);
            }
        }
        // One core at a time makes one step. A frame leaves its queue before it is done.
        let queue = &mut places.0[below(queues)];
        if let Some(frame) = queue.in_service.take() {
            checker.leave(frame.flow, frame.number);
            queue.head += 1;
        } else {
            queue.in_service = queue.waiting.pop_front();
        }
    }
    (checker.finish(0), settle.map(|settle| settle.counts).unwrap_or_default())
}

#[test]
fn without_settle_frames_overtake_each_other() {
    for seed in 0..10 {
        let (outcome, _) = run(seed, None, 12, 3);
        let reordered = matches!(outcome, Err(Violation::Order { .. }));
        assert!(reordered, "seed {seed}: a simulation that never reorders cannot test settle");
    }
}

#[test]
fn a_flow_moves_once_its_old_home_is_done_with_it() {
    let mut settle = Settle::new(64, 1);
    let mut places = Places(vec![Served::default(); 2]);
    let mut step = |to: u16, places: &mut Places| {
        let mut batch = batch([FlowKey { sport: 7, ..FlowKey::ZERO }]);
        batch.actions[0] = Action { counter: 3, mark: u32::from(to), ..Action::queue(to) };
        settle.settle(&mut batch, Lanes(1), places);
        assert_eq!((batch.actions[0].counter, batch.actions[0].mark), (3, u32::from(to)));
        let To::Queue(home) = batch.actions[0].to else { panic!("a queue stays a queue") };
        places.0[home as usize].tail += 1;
        settle.enqueued(places);
        (home, settle.counts)
    };
    assert_eq!(step(0, &mut places), (0, Settled { moved: 0, held: 0 }));
    assert_eq!(step(1, &mut places), (0, Settled { moved: 0, held: 1 }), "two are at queue 0");
    places.0[0].head = 1;
    assert_eq!(step(1, &mut places), (0, Settled { moved: 0, held: 2 }));
    places.0[0].head = 3;
    assert_eq!(step(1, &mut places), (1, Settled { moved: 1, held: 2 }));
}

/// Keeping the order is only a test if flows move: here many moves happen, and many are delayed.
#[test]
fn flows_do_move_under_settle() {
    for seed in 0..10 {
        let (outcome, counts) = run(seed, Some(4096), 12, 3);
        assert!(outcome.is_ok(), "seed {seed}: {outcome:?}");
        assert!(counts.moved > 50 && counts.held > 50, "seed {seed}: {counts:?}");
    }
}

#[test]
fn a_batch_does_not_split_a_flow() {
    let mut settle = Settle::new(64, 1);
    let places = Places(vec![Served::default(); 4]);
    let mut batch = batch([FlowKey::ZERO; 4]);
    for (queue, action) in (0..4).zip(&mut batch.actions) {
        *action = Action::queue(queue);
    }
    settle.settle(&mut batch, Lanes::first(4), &places);
    assert!(batch.actions[..4].iter().all(|action| action.to == To::Queue(0)));
    settle.enqueued(&places);
}

#[test]
fn a_port_is_never_a_home() {
    let mut settle = Settle::new(1, 1); // all flows share the slot
    let mut places = Places(vec![Served::default(); 4]);
    let mut batch = batch((0..4).map(|sport| FlowKey { sport, ..FlowKey::ZERO }));
    let wanted = [To::Port(1), To::Queue(2), To::DROP, To::Port(3)];
    let mut step = |places: &Places| {
        for (action, to) in batch.actions.iter_mut().zip(wanted) {
            action.to = to;
        }
        settle.settle(&mut batch, Lanes::first(4), places);
        batch.actions[..4].iter().map(|action| action.to).collect::<Vec<_>>()
    };
    // A port does not become a home; a frame for a port follows its flow while its queue is not done.
    assert_eq!(step(&places), [To::Port(1), To::Queue(2), To::DROP, To::Queue(2)]);
    places.0[2].tail = 2;
    assert_eq!(step(&places), [To::Queue(2), To::Queue(2), To::DROP, To::Queue(2)]);
    (places.0[2].tail, places.0[2].head) = (5, 5);
    assert_eq!(step(&places), [To::Port(1), To::Queue(2), To::DROP, To::Queue(2)]);
}

/// A slot whose home is done forgets it when a frame for a port comes, and its bit is cleared.
#[test]
fn a_port_makes_a_slot_forget_a_home_that_is_done() {
    let mut settle = Settle::new(64, 1);
    let mut places = Places(vec![Served::default(); 4]);
    let mut batch = batch([FlowKey { sport: 7, ..FlowKey::ZERO }]);
    let mut step = |to: To, places: &Places| {
        batch.actions[0].to = to;
        let wanted = settle.settle(&mut batch, Lanes(1), places);
        settle.enqueued(places);
        let home = settle.look(&batch.frames[0], &batch.keys[0], places).map(|look| look.home);
        let slot = settle.slot_of(&batch.frames[0], &batch.keys[0]) as usize;
        assert_eq!(settle.has_home(slot), home.is_some());
        (batch.actions[0].to, home, wanted)
    };
    let (port, one, two) = (To::Port(1), To::Queue(1), To::Queue(2));
    assert_eq!(step(port, &places), (port, None, false), "it never had a home");
    places.0[2].tail = 1;
    assert_eq!(step(two, &places), (two, Some(two), true));
    assert_eq!(step(two, &places), (two, Some(two), false));
    assert_eq!(step(port, &places), (two, Some(two), true), "a frame is there");
    places.0[2].head = 1;
    assert_eq!(step(port, &places), (port, None, true));
    assert_eq!(step(port, &places), (port, None, false), "most batches");
    assert_eq!(step(one, &places), (one, Some(one), true));
}

proptest! {
    #[test]
    fn with_settle_order_out_is_order_in(
        seed in any::<u64>(),
        slots in prop_oneof![Just(1_usize), Just(4), Just(64), Just(4096)],
        flows in 1..40_usize,
        queues in 1..6_usize,
    ) {
        let (outcome, counts) = run(seed, Some(slots), flows, queues);
        prop_assert!(outcome.is_ok(), "{outcome:?}, {counts:?}");
    }
}
