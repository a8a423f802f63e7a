//! The path from bytes to settled action does not allocate.

use flowyard_flow::learn::elephant::{Sampler, Seen};
use flowyard_flow::learn::{Cache, Rfs, cache, rfs};
use flowyard_flow::table::{Exact, L2, Lpm, Rule, Rules, Spread, Wildcard};
use flowyard_flow::toeplitz::{HashTypes, Toeplitz, random_key};
use flowyard_flow::{Learn, Settle, Steer, Table, Tails, parse};
use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, To, proto};
use flowyard_testkit::alloc::Count;
use flowyard_testkit::{Build, batch};

flowyard_testkit::tests! {
    bytes_to_settled_action_without_allocation,
    routes_stations_and_samples_without_allocation,
    rules_and_what_learns_from_them_without_allocation,
}

/// Queues that have finished every frame.
struct Done;

impl Tails for Done {
    fn tail(&self, _: To) -> u64 {
        0
    }
    fn head(&self, _: To) -> u64 {
        u64::MAX
    }
}

/// A UDP frame with source port `n`.
fn bytes(n: u16) -> Vec<u8> {
    let ip = std::net::Ipv4Addr::UNSPECIFIED.into();
    Build::new(&FlowKey::five_tuple(proto::UDP, ip, n, ip, 0)).frame_len(60).bytes()
}

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
    let frames: Vec<_> = (0..1024).map(bytes).collect();
    for toeplitz in [fast.clone().portable(), fast] {
        let before = Count::of_this_thread().calls;
        for frames in frames.chunks(LANES) {
            for bytes in frames {
                let mut key = FlowKey::ZERO;
                assert!(parse::fast(bytes, 0, &mut key));
                assert!(batch.push(Frame::unbacked(60), key).is_ok());
            }
            toeplitz.hash_batch(&types, &mut batch);
            steer.walk(&mut batch);
            let all = batch.lanes();
            settle.settle(&mut batch, all, &Done);
            drop(batch.drain());
            settle.enqueued(&Done);
        }
        assert_eq!(Count::of_this_thread().calls, before, "{}", toeplitz.path());
    }
    assert_eq!(steer.hits(), [2 * 512, 2 * 64, 2 * 448]);
    let before = Count::of_this_thread().calls;
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(Count::of_this_thread().calls - before, 1, "the counter counts");
}

fn routes_stations_and_samples_without_allocation() {
    let mut routes = Lpm::new(1000);
    for route in ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2001:db8::/48"] {
        assert_eq!(routes.put(&route.parse().unwrap(), Action::queue(1)), Ok(None));
    }
    let (mut stations, mut sampler) = (L2::new(100, 1 << 40, 1), Sampler::new(4, 128, 1));
    let mut seen = Seen::default();
    sampler.window(&mut seen);
    seen.flows.reserve(256);
    let mut batch = batch((0..LANES as u16).map(|n| {
        let dst = std::net::Ipv4Addr::new(10, 1, (n % 3) as u8, 3);
        let mac = [2, 0, 0, 0, 0, n as u8];
        let key = FlowKey::five_tuple(17, dst.into(), n, dst.into(), n);
        FlowKey { eth_src: mac, eth_dst: mac, in_port: n, ..key }
    }));
    let before = Count::of_this_thread().calls;
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
    assert_eq!(Count::of_this_thread().calls, before);
    assert_eq!(batch.actions[7].to, To::Port(7));
}

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
    let mut batch = batch((0..LANES as u16).map(|n| key(n * 5)));
    let (mut taught, before) = (0, Count::of_this_thread().calls);
    for now in 0..1000 {
        batch.keys.iter_mut().for_each(|key| key.sport = (key.sport + 7) % 160);
        let all = batch.lanes();
        let missed = rules.lookup(&mut batch, all);
        cache.observe(0, &batch, all.without(missed), now, &mut edits);
        rfs.observe(0, &batch, all, now, &mut edits);
        taught += edits.len();
        edits.clear();
    }
    assert_eq!(Count::of_this_thread().calls, before);
    assert!(taught > 10_000, "{taught} edits");
}
