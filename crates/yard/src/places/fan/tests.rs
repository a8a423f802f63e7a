use std::collections::{BTreeMap, VecDeque};

use flowyard_frame::{Action, FlowKey, Frame, LANES, To};
use flowyard_testkit::Rng;

use super::*;

struct Bin;

impl Sink for Bin {
    fn drop(&mut self, _: Frame, _: To) {}
}

/// A frame whose number is in its mark.
fn frame(flow: u32, number: u32) -> Frame {
    let mut frame = Frame::unbacked(60);
    (frame.hash, frame.mark) = (flow.wrapping_mul(0x0101_0101), number);
    frame
}

/// Tx queues for as many cores.
fn queues(cores: usize) -> Vec<Box<dyn Queue>> {
    (0..cores).map(|_| flowyard_queue::new(Order::Direct, 1, 64)).collect()
}

/// Any core enqueues, owners transmit whenever they like: each flow leaves in the order it came,
/// and every frame leaves once.
#[test]
fn flows_leave_in_order_whichever_core_enqueues() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let owners = [0, 2, 5];
        let fan = Fan::new(&owners, queues(owners.len()));
        let mut next: BTreeMap<u32, u32> = BTreeMap::new();
        let mut out: BTreeMap<u32, u32> = BTreeMap::new();
        let (mut entered, mut left, mut used) = (0, 0, [0; 3]);
        for step in 0..600 {
            let flows = 1 + rng.below(40);
            if step < 500 && rng.below(2) == 0 {
                // Refused lanes come again at once, in front of all else: as the contract says.
                let mut batch = Batch::default();
                for _ in 0..1 + rng.below(LANES as u64) {
                    let flow = rng.below(flows) as u32;
                    let number = next.entry(flow).or_default();
                    batch.push(frame(flow, *number), FlowKey::ZERO).unwrap();
                    *number += 1;
                }
                let core = rng.below(6) as u16;
                let lanes = batch.lanes();
                let refused = fan.enqueue_by(Some(core), &mut batch, lanes);
                entered += u64::from(lanes.without(refused).count());
                for lane in refused {
                    // Never entered: numbered again later.
                    *next.get_mut(&(batch.frames[lane].hash / 0x0101_0101)).unwrap() -= 1;
                }
                let first = refused.into_iter().next().unwrap_or(LANES);
                assert!(refused.into_iter().eq(first..lanes.count() as usize), "a tail");
            } else {
                let at = rng.below(3) as usize;
                let (core, mut batch) = (owners[at], Batch::default());
                fan.dequeue(core, &mut batch);
                for lane in batch.lanes() {
                    let frame = &batch.frames[lane];
                    let number = out.entry(frame.hash / 0x0101_0101).or_default();
                    assert_eq!(frame.mark, *number, "seed {seed}");
                    *number += 1;
                    batch.actions[lane] = Action { to: To::DROP, ..Action::default() };
                    used[at] += 1;
                    left += 1;
                }
                fan.complete(core, &mut batch, &fan, &mut Bin);
            }
        }
        while left < entered {
            for core in owners {
                let mut batch = Batch::default();
                fan.dequeue(core, &mut batch);
                for lane in batch.lanes() {
                    let frame = &batch.frames[lane];
                    let number = out.entry(frame.hash / 0x0101_0101).or_default();
                    assert_eq!(frame.mark, *number, "seed {seed}");
                    *number += 1;
                    batch.actions[lane] = Action { to: To::DROP, ..Action::default() };
                    left += 1;
                }
                fan.complete(core, &mut batch, &fan, &mut Bin);
            }
        }
        assert_eq!((fan.tail(), fan.head(), left), (entered, entered, entered));
        assert!(used.iter().all(|used| *used > 0), "every queue is used: {used:?}");
        assert!(fan.slots.iter().all(|slot| slot.load(Ordering::Relaxed) & COUNT == 0));
    }
}

/// A flow with nothing in flight leaves by the queue of the core that sends it.
#[test]
fn a_core_uses_its_own_queue() {
    let fan = Fan::new(&[0, 1], queues(2));
    let mut waiting = VecDeque::new();
    for core in [0, 1, 1, 0, 1] {
        let mut batch = Batch::default();
        batch.push(frame(7, 0), FlowKey::ZERO).unwrap();
        assert_eq!(fan.enqueue_by(Some(core), &mut batch, Lanes(1)), Lanes::NONE);
        waiting.push_back(core);
        let mut got = Batch::default();
        fan.dequeue(core, &mut got);
        assert_eq!(got.len(), 1, "by queue {core}");
        got.actions[0] = Action { to: To::DROP, ..Action::default() };
        fan.complete(core, &mut got, &fan, &mut Bin);
    }
    // In flight by queue 0: core 1 has to use it, too.
    for core in [0, 1] {
        let mut batch = Batch::default();
        batch.push(frame(7, 0), FlowKey::ZERO).unwrap();
        assert_eq!(fan.enqueue_by(Some(core), &mut batch, Lanes(1)), Lanes::NONE);
    }
    let mut got = Batch::default();
    fan.dequeue(1, &mut got);
    assert!(got.is_empty());
    fan.dequeue(0, &mut got);
    assert_eq!(got.len(), 2);
}

/// Whichever core enqueues it, and whether any of it is in flight: a flow leaves by one queue.
#[test]
fn by_flow_a_flow_has_one_queue() {
    let owners = [0, 2, 5];
    let queues_of = |fan: Fan, flow: u32| {
        let mut used = std::collections::BTreeSet::new();
        for core in 0..6 {
            let mut batch = Batch::default();
            batch.push(frame(flow, 0), FlowKey::ZERO).unwrap();
            assert!(fan.enqueue_by(Some(core), &mut batch, Lanes(1)).is_empty());
            for owner in owners {
                let mut batch = Batch::default();
                fan.dequeue(owner, &mut batch);
                for lane in batch.lanes() {
                    batch.actions[lane] = Action { to: To::DROP, ..Action::default() };
                    used.insert(owner);
                }
                fan.complete(owner, &mut batch, &fan, &mut Bin);
            }
        }
        used
    };
    let new = || Fan::new(&owners, queues(owners.len()));
    let mut all = std::collections::BTreeSet::new();
    for flow in 0..40 {
        let used = queues_of(new().by_flow(), flow);
        assert_eq!(used.len(), 1, "flow {flow}: {used:?}");
        all.extend(used);
        assert_eq!(queues_of(new(), flow).len(), 3, "without, it goes with the core");
    }
    assert_eq!(all.len(), 3, "flows are spread");
}
