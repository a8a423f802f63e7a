//! Memory grows with flows, not with frames.
//!
//! One test alone in its process, so that nobody else allocates meanwhile.
#![allow(unsafe_code, reason = "counting allocations means standing before the allocator")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{all_policies, setup};
use flowyard_adapter::Profile;
use flowyard_analyze::Analyzer;
use flowyard_ports::pcap;
use flowyard_testkit::{Popularity, Profile as Mix, Sizes, Traffic};
use flowyard_wire::LinkType;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` came from `alloc` above, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A capture of `packets` of `flows` flows that never close.
fn capture(path: &Path, flows: u32, packets: usize) {
    let mix = Mix {
        flows,
        popularity: Popularity::Uniform,
        sizes: Sizes::Fixed(60),
        exchanges: 0,
        ..Mix::default()
    };
    let mut traffic = Traffic::new(mix, 1);
    let mut writer =
        pcap::Writer::create(path, pcap::Format::PcapNanos, LinkType::Ethernet).unwrap();
    let mut frame = Vec::new();
    for _ in 0..packets {
        let packet = traffic.next_into(&mut frame);
        writer.write(packet.time, frame.len() as u32, &frame).unwrap();
    }
    writer.finish().unwrap();
}

/// Peak bytes and allocations of an analysis, and what it says a connection takes.
fn cost(adapter: &str, path: &Path) -> (usize, usize, u64) {
    let (before, calls) = (NOW.load(Relaxed), CALLS.load(Relaxed));
    PEAK.store(before, Relaxed);
    let mut setup = setup(adapter, all_policies(Profile::find(adapter).unwrap()));
    setup.migrate_every = 100_000;
    let mut analyzer = Analyzer::new(setup).unwrap();
    let mut source = pcap::open(path).unwrap();
    analyzer.read("test", &mut source, |_| {}).unwrap();
    let analysis = analyzer.finish();
    (
        PEAK.load(Relaxed) - before,
        CALLS.load(Relaxed) - calls,
        analysis.traffic.state_bytes_per_connection,
    )
}

#[test]
fn memory_grows_with_flows_and_not_with_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    capture(&path("short"), 500, 20_000);
    capture(&path("long"), 500, 160_000);
    capture(&path("flows"), 50_000, 400_000);
    for adapter in ["x520", "x722", "e810"] {
        let (short, _, _) = cost(adapter, &path("short"));
        let (long, calls, _) = cost(adapter, &path("long"));
        // The occupancy series may fill up to its 512 points of 16 bytes for each policy.
        assert!(long <= short + 128 * 1024, "{adapter}: {short} bytes, then {long}");
        assert!(calls < 10_000, "{adapter}: {calls} allocations for 160,000 packets");
        let (many, _, said) = cost(adapter, &path("flows"));
        let each = (many - short) as f64 / 50_000.0;
        println!("{adapter}: {short}, {long} bytes; {each:.0} bytes a connection, {said} said");
        // Tables double when they are full, with the old one beside the new one meanwhile: up to
        // three times what is in use.
        assert!(each < 3.0 * said as f64 + 40.0, "{adapter}: {each} bytes, {said} said");
    }
}
