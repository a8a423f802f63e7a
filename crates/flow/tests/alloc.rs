//! Nothing on the way from bytes to settled action allocates.
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flowyard_flow::learn::elephant::{Sampler, Seen};
use flowyard_flow::learn::{Cache, Rfs, cache, rfs};
use flowyard_flow::table::{Exact, L2, Lpm, Rule, Rules, Spread, Wildcard};
use flowyard_flow::toeplitz::{HashTypes, Toeplitz, random_key};
use flowyard_flow::{Learn, Settle, Steer, Table, Tails, parse};
use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, To};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Queues that are always done with what they got.
struct Done;

impl Tails for Done {
    fn tail(&self, _: To) -> u64 {
        0
    }
    fn head(&self, _: To) -> u64 {
        u64::MAX
    }
}

/// A UDP frame with source port `n`, and its checksum.
fn bytes(n: u16) -> [u8; 60] {
    let mut b = [0; 60];
    b[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x3a, 0xc0]);
    b[34..36].copy_from_slice(&n.to_be_bytes());
    b[39] = 26;
    b
}

#[test]
fn bytes_to_settled_action_without_allocation() {
    let key = |n| {
        let mut key = FlowKey::ZERO;
        assert!(parse::fast(&bytes(n), 0, &mut key));
        key
    };
    let mut exact = Exact::new(512, &FlowKey::FLOW, 1);
    let mut wide = Exact::new(64, &FlowKey { eth_dst: [255; 6], ..FlowKey::FLOW }, 1);
    for n in 0..512 {
        exact.put(&key(n).flow(), Action::queue(n & 7)).unwrap();
        if n < 64 {
            wide.put(&FlowKey { eth_src: [0; 6], ..key(n + 512).flow() }, Action::queue(9))
                .unwrap();
        }
    }
    let spread = Spread::new(128, 8).unwrap();
    let mut steer = Steer::new(vec![Box::new(exact), Box::new(wide)], spread);
    let mut settle = Settle::new(1024, 1);
    let fast = Toeplitz::new(&random_key(1)).unwrap();
    let types = HashTypes::default();
    let mut batch = Batch::default();
    for toeplitz in [fast.clone().portable(), fast] {
        let before = ALLOCATIONS.get();
        for first in (0..1024).step_by(LANES) {
            for n in first..first + LANES as u16 {
                let mut key = FlowKey::ZERO;
                assert!(parse::fast(&bytes(n), 0, &mut key));
                assert!(batch.push(Frame::unbacked(60), key).is_ok());
            }
            toeplitz.hash_batch(&types, &mut batch);
            steer.walk(&mut batch);
            let all = batch.lanes();
            settle.settle(&mut batch, all, &Done);
            drop(batch.drain());
            settle.enqueued(&Done);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{}", toeplitz.path());
    }
    assert_eq!(steer.hits(), [2 * 512, 2 * 64, 2 * 448]);
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts");
}

#[test]
fn routes_stations_and_samples_without_allocation() {
    let mut routes = Lpm::new(1000);
    for route in ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2001:db8::/48"] {
        assert_eq!(routes.put(&route.parse().unwrap(), Action::queue(1)), Ok(None));
    }
    let (mut stations, mut sampler) = (L2::new(100, 1 << 40, 1), Sampler::new(4, 128, 1));
    let mut seen = Seen::default();
    sampler.window(&mut seen);
    seen.flows.reserve(256);
    let mut batch = Batch::default();
    for n in 0..LANES as u16 {
        let dst = std::net::Ipv4Addr::new(10, 1, (n % 3) as u8, 3);
        let mac = [2, 0, 0, 0, 0, n as u8];
        let key = FlowKey::five_tuple(17, dst.into(), n, dst.into(), n);
        let key = FlowKey { eth_src: mac, eth_dst: mac, in_port: n, ..key };
        assert!(batch.push(Frame::unbacked(60), key).is_ok());
    }
    let before = ALLOCATIONS.get();
    for now in 0..100 {
        let all = batch.lanes();
        assert!(routes.lookup(&mut batch, all).is_empty());
        for key in &batch.keys {
            stations.learn(&key.eth_src, key.vlan_tci, key.in_port, now);
        }
        assert!(stations.lookup(&mut batch, all).is_empty());
        sampler.sample(&batch, all);
        sampler.window(&mut seen);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(batch.actions[7].to, To::Port(7));
}

#[test]
fn rules_and_what_learns_from_them_without_allocation() {
    let mut table = Wildcard::new(100, 8, 1);
    let key = |n: u16| FlowKey { sport: n, eth_type: 0x0800, ..FlowKey::ZERO };
    for n in 0..100 {
        let mask = FlowKey { sport: 0xffff << (n % 8), ..FlowKey::ZERO };
        let key = FlowKey { eth_type: 0, ..key(n) }.masked(&mask);
        assert_eq!(table.put(&Rule { key, mask, priority: n, action: Action::queue(n) }), Ok(()));
    }
    let mut rules = Rules::new(std::sync::Arc::new(table), &FlowKey::FLOW);
    let settings = cache::Settings { entries: 16, replace_every: 2 };
    let mut cache = Cache::new(settings, &FlowKey::FLOW, 1);
    let mut rfs = Rfs::new(rfs::Settings { entries: 16, sample_every: 3, idle: 10 }, 1);
    let mut edits = Vec::with_capacity(1024);
    let mut batch = Batch::default();
    for n in 0..LANES as u16 {
        assert!(batch.push(Frame::unbacked(60), key(n * 5)).is_ok());
    }
    let (mut taught, before) = (0, ALLOCATIONS.get());
    for now in 0..1000 {
        batch.keys.iter_mut().for_each(|key| key.sport = (key.sport + 7) % 160);
        let all = batch.lanes();
        let missed = rules.lookup(&mut batch, all);
        cache.observe(0, &batch, all.without(missed), now, &mut edits);
        rfs.observe(0, &batch, all, now, &mut edits);
        taught += edits.len();
        edits.clear();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(taught > 10_000, "{taught} edits");
}
