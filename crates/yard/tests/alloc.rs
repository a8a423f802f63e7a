//! Nothing is allocated per frame, once a yard runs: rx to tx, learning, edits by mail.
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flowyard_ports::mem::Frames;
use flowyard_testkit::{Profile, Traffic};
use flowyard_wire::LinkType;
use flowyard_yard::port::{Repeat, SourceRx};
use flowyard_yard::{Config, Pace, Parts, Tick, Yard};

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
    [work]"#;
    let atr = "kind = \"atr\"\n    sample_every = 4\n    entries = 64";
    assert!(YARD.contains(atr));
    YARD.replace(atr, learn).replace("[work]", steer)
}

#[test]
fn frames_move_without_allocation() {
    moves(YARD, 1_000);
    moves(&ruled(), 0); // its queues do not fill
}

fn moves(yard: &str, dropped: u64) {
    let mut frames = Frames::new();
    for (packet, data) in Traffic::new(Profile::default(), 1).take(20_000) {
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
}
