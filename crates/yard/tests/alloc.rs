//! Nothing is allocated per frame, once a yard runs: rx to tx, learning, edits by mail.
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flowyard_ports::mem::Frames;
use flowyard_testkit::{Profile, Traffic};
use flowyard_wire::LinkType;
use flowyard_yard::port::{Repeat, SourceRx};
use flowyard_yard::{Config, Counters, DropReason, Pace, Parts, Tick, Yard};

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

const YARD: &str = r#"
    [yard]
    cores = 2
    [[port]]
    name = "west"
    kind = "mem"
    in = "given"
    core = 0
    [[port]]
    name = "east"
    kind = "mem"
    core = 1
    [[queue]]
    name = "zero"
    order = "direct"
    consumers = [0]
    [[queue]]
    name = "one"
    order = "direct"
    consumers = [1]
    full = "drop"
    window_frames = 64
    [[queue]]
    name = "atomic"
    order = "atomic"
    consumers = [0, 1]
    [[queue]]
    name = "ordered"
    order = "ordered"
    consumers = [0, 1]
    [learn]
    kind = "atr"
    sample_every = 4
    entries = 64
"#;

const FORWARD: &str = r#"
    [work]
    kind = "forward"
    ports = { west = "east" }
"#;

/// The same yard with rules that count, behind a small cache.
fn ruled() -> String {
    let learn = "kind = \"cache\"\n    entries = 64\n    replace_every = 4";
    let steer = r#"[steer]
    counters = ["even", "web"]
    [[steer.rule]]
    match = { src = "0.0.0.0/1" }
    queue = "ordered"
    counter = "even"
    [[steer.rule]]
    match = { dst_port = 11211 }
    priority = 2
    queue = "one"
    counter = "web"
    [[steer.rule]]
    match = {}
    queue = "atomic"
    "#;
    let atr = "kind = \"atr\"\n    sample_every = 4\n    entries = 64";
    assert!(YARD.contains(atr));
    format!("{}{steer}{FORWARD}", YARD.replace(atr, learn))
}

/// A third port, so that flooding copies.
const BRIDGE: &str = r#"
    [[port]]
    name = "south"
    kind = "mem"
    core = 1
    [work]
    kind = "bridge"
    stations = 64
    age_ms = 1
"#;

const ROUTE: &str = r#"
    [work]
    kind = "route"
    [[work.route]]
    prefix = "0.0.0.0/0"
    port = "east"
    next_hop = "02:00:00:00:01:01"
    [[work.route]]
    prefix = "::/0"
    port = "west"
    next_hop = "02:00:00:00:01:01"
"#;

/// A service at one of the sixteen servers; what is for others passes.
const BALANCE: &str = r#"
    [work]
    kind = "balance"
    [balance]
    entries = 251
    connections = 512
    pass = { west = "east" }
    [[service]]
    name = "web"
    vip = "198.18.0.1"
    proto = "tcp"
    port = "1-65535"
    mode = "dsr"
    backend = [
        { name = "a", addr = "10.0.1.1", exit = { port = "east", next_hop = "02:00:00:00:01:01" } },
        { name = "b", addr = "10.0.1.2", exit = { port = "east", next_hop = "02:00:00:00:01:02" } },
    ]
"#;

#[test]
fn frames_move_without_allocation() {
    run_without_allocation(&format!("{YARD}{FORWARD}"), 1_000);
    run_without_allocation(&ruled(), 0); // its queues do not fill
}

#[test]
fn bridging_and_copying_allocate_nothing() {
    let (then, warm) = run_without_allocation(&format!("{YARD}{BRIDGE}"), 1_000);
    let (copies, learnt) = (then.copies - warm.copies, then.tx_frames - warm.tx_frames);
    assert!(copies > 50_000 && learnt > copies, "{then:#?}");
}

#[test]
fn routing_allocates_nothing() {
    let (then, _) = run_without_allocation(&format!("{YARD}{ROUTE}"), 1_000);
    assert_eq!(then.drops.get(DropReason::NoRoute), 0, "{then:#?}");
}

#[test]
fn balancing_and_counting_allocate_nothing() {
    run_without_allocation(&format!("{YARD}{BALANCE}"), 1_000);
}

/// Runs a yard, which drops at least so many frames; its counters at the end, and after it was warm.
fn run_without_allocation(yard: &str, dropped: u64) -> (Counters, Counters) {
    let mut frames = Frames::new();
    for (at, (packet, mut data)) in Traffic::new(Profile::default(), 1).take(20_000).enumerate() {
        // From one of 90 stations to one of 128: some are known, some unknown.
        data[6..12].copy_from_slice(&[2, 0, 0, 0, 0, (at % 90) as u8]);
        data[..6].copy_from_slice(&[2, 0, 0, 0, 0, (at * 7 % 128) as u8]);
        frames.push(packet.time, LinkType::Ethernet, &data);
    }
    let mut parts = Parts::default();
    let source = Box::new(Repeat::new(frames, u32::MAX));
    parts.rx.insert(0, Box::new(SourceRx::new(0, source, Pace::Fast)));
    let mut yard = Yard::build(&Config::parse("y", yard).unwrap(), parts).unwrap();
    let mut run = |ticks: u64| {
        for now in 0..ticks {
            for core in &mut yard.cores {
                core.tick(now * 1000);
            }
            if now % 7 == 0 {
                // So that queues fill, and some frames drop.
                for _ in 0..12 {
                    yard.cores[0].tick(now * 1000);
                }
            }
        }
        let total = yard.cores.iter().map(flowyard_yard::Core::counters);
        total.fold(flowyard_yard::Counters::default(), |sum, core| sum.plus(&core))
    };
    let warm = run(2_000);
    let before = ALLOCATIONS.get();
    let then = run(20_000);
    assert_eq!(ALLOCATIONS.get() - before, 0, "of {} frames", then.tx_frames - warm.tx_frames);
    assert!(before > 100, "the allocator counts");
    let moved = |count: fn(&flowyard_yard::Counters) -> u64| count(&then) - count(&warm);
    assert!(moved(|c| c.tx_frames) > 400_000, "{then:#?}");
    let (edits, drops) = (moved(|c| c.edits), moved(|c| c.drops.total()));
    assert!(edits > 1_000 && drops >= dropped, "{edits} edits, {drops} drops: {then:#?}");
    (then, warm)
}
