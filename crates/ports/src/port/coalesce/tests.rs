//! Flows of TCP segments among other frames: cut again, each flow has the frames that came, in order and byte for byte.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use flowyard_frame::{FlowKey, Rng, proto};
use flowyard_testkit::Build;
use flowyard_wire::checksum::{Sum, transport_checksum};
use flowyard_wire::segment::Cut;

use flowyard_frame::Nanos;
use flowyard_yard::port::Rx;

use super::behind::Behind;
use super::*;

/// What came, by flow.
type Came = Arc<Mutex<BTreeMap<u16, Vec<Vec<u8>>>>>;

/// Receives segments of flows whose sequence numbers follow each other.
pub(in super::super) struct Flows {
    rng: Rng,
    came: Came,
    next: BTreeMap<u16, (u32, u16)>,
    /// How often a frame is one that cannot be joined: one of this many kinds.
    odd: u64,
}

const FLOWS: u64 = 12;

impl Flows {
    pub(in super::super) fn new(seed: u64, odd: u64) -> Self {
        Self { rng: Rng::new(seed), came: Came::default(), next: BTreeMap::new(), odd }
    }

    /// A frame of `flow` with an own source port, at the next sequence number.
    fn frame(&mut self, flow: u16) -> (Vec<u8>, Meta) {
        let v6 = flow.is_multiple_of(3);
        let ip = |n: u8| -> IpAddr { if v6 { [n; 16].into() } else { [10, 0, 0, n].into() } };
        let payload: Vec<u8> = (0..100).map(|_| self.rng.bits() as u8).collect();
        let key = FlowKey::five_tuple(proto::TCP, ip(1), flow, ip(2), 80);
        let mut bytes = Build::new(&key).payload(&payload).bytes();
        let (seq, id) = self.next.entry(flow).or_default();
        let l4 = if v6 { 54 } else { 34 };
        bytes[l4 + 4..l4 + 8].copy_from_slice(&seq.to_be_bytes());
        bytes[l4 + 13] = 0x10; // ACK
        if !v6 {
            bytes[18..20].copy_from_slice(&id.to_be_bytes());
            bytes[24..26].fill(0);
            let sum = Sum::ZERO.bytes(&bytes[14..34]).finish();
            bytes[24..26].copy_from_slice(&(!sum).to_be_bytes());
        }
        *seq = seq.wrapping_add(100);
        *id = id.wrapping_add(1);
        let mut meta = Meta { in_port: flow, ..Meta::default() };
        match if self.odd == 0 { 9 } else { self.rng.below(self.odd) } {
            0 => bytes[l4 + 13] |= 8, // PSH
            1 => bytes[l4 + 13] |= 2, // SYN
            2 => bytes.push(0),       // padding
            3 => meta.link = LinkType::Ipv4,
            4 => meta.offload.flags = Offload::VALID,
            _ => {}
        }
        bytes[l4 + 16..l4 + 18].fill(0);
        let end = l4 + 120;
        let sum = transport_checksum(ip(1), ip(2), proto::TCP, &bytes[l4..end]);
        bytes[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
        meta.wire_len = bytes.len() as u32 + u32::from(self.odd > 0 && self.rng.below(20) == 0);
        (bytes, meta)
    }
}

impl Rx for Flows {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, _now: Nanos) -> Received {
        let mark = self.rng.below(4) as u32;
        let mut flow = 1;
        for _ in 0..self.rng.below(33) {
            if self.rng.below(3) == 0 {
                flow = 1 + self.rng.below(FLOWS) as u16;
            }
            let (bytes, meta) = self.frame(flow);
            let mut frame = pool.copy(&bytes, meta).unwrap();
            frame.mark = if self.odd > 0 && self.rng.below(8) == 0 { 9 } else { mark };
            into.push(frame, FlowKey::ZERO).unwrap();
            self.came.lock().unwrap().entry(flow).or_default().push(bytes);
        }
        Received::default()
    }
}

/// Frames as they are on a wire.
pub(in super::super) fn on_a_wire(bytes: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    if offload.segment == Segment::None {
        return vec![bytes.to_vec()];
    }
    let cut = Cut::new(bytes, offload).expect("what was joined can be cut");
    let of = |n| {
        let mut out = vec![0; cut.len(n)];
        cut.write(bytes, n, &mut out);
        out
    };
    (0..cut.count()).map(of).collect()
}

/// Receives 300 batches; returns how many frames came, and how many were joined to others.
fn run(seed: u64, large: usize, odd: u64) -> (usize, u64) {
    let mut pool = Pool::new(200, 512).with_large(large).unwrap();
    let inner = Flows::new(seed, odd);
    let came = Arc::clone(&inner.came);
    let mut port = Behind::new(Box::new(inner), Coalesce::new(pool.longest_large()));
    let (mut left, mut joined) = (BTreeMap::<u16, Vec<Vec<u8>>>::new(), 0);
    for _ in 0..300 {
        let mut batch = Batch::default();
        let got = port.rx(&mut batch, &mut pool, 0);
        let mut parts = 0;
        for lane in batch.lanes() {
            let frame = &batch.frames[lane];
            let meta = pool.meta(frame);
            let wire = on_a_wire(pool.bytes(frame), meta.offload);
            if meta.offload.segment != Segment::None {
                assert_eq!(meta.wire_len as usize, frame.len());
                assert!(wire.len() > 1, "a frame that is alone is as it came");
            }
            parts += wire.len() - 1;
            left.entry(meta.in_port).or_default().extend(wire);
        }
        assert_eq!(got.coalesced as usize, parts, "each joined frame is counted");
        joined += u64::from(got.coalesced);
        pool.put_batch(&mut batch);
        assert_eq!(pool.held(), 0, "every buffer has returned");
    }
    assert!(left == *came.lock().unwrap(), "each flow has its frames, in order");
    (left.values().map(Vec::len).sum(), joined)
}

#[test]
fn every_flow_has_its_frames_in_order_whatever_comes() {
    for seed in 0..30 {
        let (all, joined) = run(seed, 40, 12);
        assert!(joined > 0 && (joined as usize) < all, "{joined} of {all}");
    }
}

#[test]
fn without_buffers_frames_stay_as_they_came() {
    for large in [1, 2] {
        let (all, joined) = run(5, large, 0);
        assert!(joined > 0 && (joined as usize) < all, "{joined} of {all} with {large} buffers");
    }
    let mut pool = Pool::new(200, 512);
    let inner = Flows::new(1, 0);
    let came = Arc::clone(&inner.came);
    let mut port = Behind::new(Box::new(inner), Coalesce::new(pool.longest_large()));
    for _ in 0..50 {
        let mut batch = Batch::default();
        assert_eq!(port.rx(&mut batch, &mut pool, 0).coalesced, 0);
        let came: usize = std::mem::take(&mut *came.lock().unwrap()).values().map(Vec::len).sum();
        assert_eq!(batch.len(), came, "nothing is lost");
        pool.put_batch(&mut batch);
    }
    assert_eq!(pool.held(), 0);
}
