//! Flows of TCP segments among other frames, through a port that takes, refuses or leaves some of what it is offered: cut again, what
//! left are the frames that were not dropped, in order and byte for byte.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flowyard_frame::{Rng, To};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Rx, refuse};

use super::super::coalesce::tests::{Flows, on_a_wire};
use super::*;

/// What left: the frames of each flow, and how many frames the port took.
#[derive(Default)]
struct Sent {
    flows: BTreeMap<u16, Vec<Vec<u8>>>,
    frames: usize,
}

/// A port that takes a random number of frames each time, refuses some, and replaces the handles of others.
struct Uneven {
    rng: Rng,
    sent: Arc<Mutex<Sent>>,
    /// One of this many frames is refused, another one ends the call.
    odd: u64,
}

impl Tx for Uneven {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, _now: Nanos) -> Lanes {
        let mut left = lanes;
        for lane in lanes {
            match if self.odd == 0 { 9 } else { self.rng.below(self.odd) } {
                0 => return left,
                1 => refuse(from, lane, DropReason::PortDown),
                _ => {
                    let meta = pool.meta(&from.frames[lane]);
                    let wire = on_a_wire(pool.bytes(&from.frames[lane]), meta.offload);
                    let mut sent = self.sent.lock().unwrap();
                    sent.flows.entry(meta.in_port).or_default().extend(wire);
                    sent.frames += 1;
                }
            }
            left = left.without(Lanes(1 << lane));
        }
        left
    }
}

/// Transmits 200 batches. Returns the frames that left, the frames that the port saw of them, and those that were dropped.
fn run(seed: u64, large: usize, odd: u64, refuses: u64) -> [usize; 3] {
    let mut pool = Pool::new(200, 512).with_large(large).unwrap();
    let mut flows = Flows::new(seed, odd);
    let sent = Arc::new(Mutex::new(Sent::default()));
    let inner = Uneven { rng: Rng::new(seed + 1), sent: Arc::clone(&sent), odd: refuses };
    let mut port = CoalesceTx::new(Box::new(inner), pool.share());
    let (mut wanted, mut dropped) = (BTreeMap::<u16, Vec<Vec<u8>>>::new(), 0);
    for _ in 0..200 {
        let mut batch = Batch::default();
        flows.rx(&mut batch, &mut pool, 0);
        let mut left = batch.lanes();
        left.each(|lane| batch.actions[lane].to = To::Port(1));
        while !left.is_empty() {
            let later = port.tx(&mut batch, left, &pool, 0);
            assert!(later.without(left).is_empty(), "only lanes that were offered are left");
            left = later;
        }
        for lane in batch.lanes() {
            let frame = &batch.frames[lane];
            assert!(!frame.is_empty(), "every handle is in its lane again");
            match batch.actions[lane].to {
                To::Drop(reason) => {
                    assert_eq!(reason, DropReason::PortDown.code());
                    dropped += 1;
                }
                _ => {
                    let flow = wanted.entry(pool.meta(frame).in_port).or_default();
                    flow.push(pool.bytes(frame).to_vec());
                }
            }
        }
        pool.put_batch(&mut batch);
    }
    let coalesced = port.finished().coalesced as usize;
    drop(port);
    assert_eq!(pool.held(), 0, "every buffer has returned");
    let sent = sent.lock().unwrap();
    assert!(sent.flows == wanted, "each flow has the frames that were not dropped, in order");
    let all: usize = wanted.values().map(Vec::len).sum();
    assert_eq!(coalesced, all - sent.frames);
    [all, sent.frames, dropped]
}

#[test]
fn every_flow_leaves_in_order_whatever_the_port_takes() {
    for seed in 0..30 {
        let [all, frames, dropped] = run(seed, 40, 12, 6);
        assert!(frames < all && dropped > 0, "{all} {frames} {dropped}");
    }
}

#[test]
fn without_buffers_frames_leave_as_they_are() {
    for large in [1, 2] {
        let [all, frames, dropped] = run(5, large, 0, 0);
        assert!(frames < all && dropped == 0, "{all} {frames} with {large} buffers");
    }
    // The only long buffer is in use.
    let mut pool = Pool::new(200, 512).with_large(1).unwrap();
    let taken = pool.take_large(1, Meta::default()).unwrap();
    let (mut flows, sent) = (Flows::new(1, 0), Arc::new(Mutex::new(Sent::default())));
    let inner = Uneven { rng: Rng::new(1), sent: Arc::clone(&sent), odd: 0 };
    let mut port = CoalesceTx::new(Box::new(inner), pool.share());
    let mut all = 0;
    for _ in 0..50 {
        let mut batch = Batch::default();
        flows.rx(&mut batch, &mut pool, 0);
        all += batch.len();
        let lanes = batch.lanes();
        lanes.each(|lane| batch.actions[lane].to = To::Port(1));
        assert!(port.tx(&mut batch, lanes, &pool, 0).is_empty());
        pool.put_batch(&mut batch);
    }
    assert_eq!((sent.lock().unwrap().frames, port.finished().coalesced), (all, 0));
    pool.put(taken);
    drop(port);
    assert_eq!(pool.held(), 0);
}
