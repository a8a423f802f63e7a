//! Memory grows with the number of flows, not with the number of frames.
//!
//! The allocator counts by thread, so that tests which run at the same time do not disturb each
//! other. An analysis uses one thread.

use std::path::Path;

use flowyard_adapter::Profile;
use flowyard_analyze::Analyzer;
use flowyard_ports::pcap;
use flowyard_testkit::alloc::{Count, Counting};
use flowyard_testkit::{Popularity, Profile as Mix, Sizes, Traffic};
use flowyard_wire::LinkType;

use crate::common::{all_policies, setup};

flowyard_testkit::tests! {
    memory_grows_with_flows_and_not_with_frames,
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Writes a capture with `packets` packets of `flows` flows that never end.
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

/// The memory use of an analysis.
struct Cost {
    /// Largest number of bytes in use at one time.
    peak: usize,
    calls: u64,
    /// Bytes per connection that the analysis reports.
    reported: u64,
}

fn cost(adapter: &str, path: &Path) -> Cost {
    let before = Count::reset_peak();
    let mut setup = setup(adapter, all_policies(Profile::find(adapter).unwrap()));
    setup.migrate_every = 100_000;
    let mut analyzer = Analyzer::new(setup).unwrap();
    let mut source = pcap::open(path).unwrap();
    analyzer.read("test", &mut source, |_| {}).unwrap();
    let analysis = analyzer.finish();
    let after = Count::of_this_thread();
    Cost {
        peak: (after.peak - before.in_use) as usize,
        calls: after.calls - before.calls,
        reported: analysis.traffic.state_bytes_per_connection,
    }
}

fn memory_grows_with_flows_and_not_with_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    capture(&path("short"), 500, 20_000);
    capture(&path("long"), 500, 160_000);
    capture(&path("flows"), 50_000, 400_000);
    for adapter in ["x520", "x722", "e810"] {
        let short = cost(adapter, &path("short")).peak;
        let Cost { peak: long, calls, .. } = cost(adapter, &path("long"));
        // The occupancy series may fill up to its 512 points of 16 bytes for each policy.
        assert!(long <= short + 128 * 1024, "{adapter}: {short} bytes, then {long}");
        assert!(calls < 10_000, "{adapter}: {calls} allocations for 160,000 packets");
        let Cost { peak: many, reported, .. } = cost(adapter, &path("flows"));
        let each = (many - short) as f64 / 50_000.0;
        flowyard_testkit::note!(
            "{adapter}: {short}, {long} bytes; {each:.0} bytes a connection, {reported} reported"
        );
        // A full table doubles, and the old one is in memory at the same time: up to three times the
        // size in use.
        assert!(
            each < 3.0 * reported as f64 + 40.0,
            "{adapter}: {each} bytes, {reported} reported"
        );
    }
}
