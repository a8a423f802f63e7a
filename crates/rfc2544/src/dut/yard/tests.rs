use super::*;
use crate::Search;
use crate::line::Load;
use crate::search::{Throughput, throughput};
use crate::setup::{Setup, Topology};
use crate::tester::{Measure, VirtualTester};
use crate::traffic::{Addresses, Family, Spec};
use crate::trial::{SECOND, Trial, TrialResult};

fn tester(spec: YardSpec, topology: Topology, traffic: Spec) -> VirtualTester<YardDut> {
    let setup = Setup::new(spec.line, topology, traffic);
    VirtualTester::new(YardDut::new(spec).unwrap(), setup).unwrap()
}

fn flows(size: u16, flows: u16) -> Spec {
    Spec { flows, addresses: Addresses::Random, ..Spec::fixed(size) }
}

#[test]
fn a_frame_takes_what_it_costs() {
    let spec = YardSpec { frame_ns: 10_000, batch_ns: 2000, ..YardSpec::new(Line::MBIT_10) };
    let mut tester = tester(spec, Topology::Uni, flows(64, 1));
    let result = tester.measure(&Trial::new(Load::from_pps(100.0), SECOND)).unwrap();
    assert_eq!((result.counts.sent, result.counts.lost()), (100, 0));
    // Store and forward: last bit in to first bit out is the cost of the work: 12 us + 6.4 ns.
    assert_eq!((result.latency.min_ns, result.latency.max_ns), (12_006, 12_006));
}

#[test]
fn no_frame_is_lost_below_what_the_cores_can_do_and_some_are_above() {
    for (cores, ordered) in [(1, false), (2, false), (2, true)] {
        let spec = YardSpec {
            cores,
            ordered,
            frame_ns: 80_000,
            batch_ns: 0,
            byte_ps: 0,
            ..YardSpec::new(Line::MBIT_10)
        };
        // Enough frames to fill rings and queues; each core forwards 12,500 per second.
        let mut tester = tester(spec, Topology::Pairs(2), flows(64, 64));
        let run = |tester: &mut VirtualTester<YardDut>, pps: f64| {
            tester.measure(&Trial::new(Load::from_pps(pps), 5 * SECOND)).unwrap()
        };
        let below = run(&mut tester, 4500.0 * if ordered { 2.0 } else { 1.0 });
        assert_eq!((below.counts.lost(), below.counts.reordered), (0, 0), "{cores} {ordered}");
        let above = run(&mut tester, 14_000.0);
        assert!(above.counts.lost() > 1000, "{cores} {ordered}: {}", above.counts.lost());
        assert_eq!((above.counts.reordered, above.counts.duplicates), (0, 0), "{cores} {ordered}");
        assert_eq!(tester.dut.drops()[0].0, "ring_full");
        assert_eq!(tester.dut.drops().iter().map(|(_, n)| n).sum::<u64>(), above.counts.lost());
    }
}

#[test]
fn skipping_changes_nothing_on_the_yard() {
    let line = Line::MBIT_10;
    for (size, count, ordered, part) in
        [(64, 1, false, 25), (64, 16, false, 80), (128, 4, true, 100), (1518, 3, true, 50)]
    {
        let spec = YardSpec { cores: 2, ordered, frame_ns: 100_000, ..YardSpec::new(line) };
        let run = |skips| {
            let mut tester = tester(spec, Topology::Pairs(2), flows(size, count));
            tester.skips = skips;
            let load = line.max_load(size.into()).part(part, 100);
            let trial = Trial::new(load, 16 * SECOND).tagged(8 * SECOND, 20);
            (tester.measure(&trial).unwrap(), tester.dut.offered())
        };
        let ((full, all), (fast, moved)) = (run(false), run(true));
        let want = TrialResult { repeated_frames: fast.repeated_frames, ..full };
        assert_eq!(fast, want, "{size} {count} {ordered}");
        assert!(size != 64 || count > 1 || moved < all, "nothing was skipped: {moved} of {all}");
    }
}

/// Each IPv6 frame has a different UDP checksum; cycles are detected nevertheless.
#[test]
fn skipping_changes_nothing_over_ipv6() {
    let line = Line::MBIT_10;
    let traffic = Spec { family: Family::Ipv6, ..flows(84, 1) };
    let run = |skips| {
        let spec = YardSpec { frame_ns: 100_000, ..YardSpec::new(line) };
        let mut tester = tester(spec, Topology::Pairs(2), traffic.clone());
        tester.skips = skips;
        let trial = Trial::new(line.max_load(84).part(25, 100), 16 * SECOND);
        (tester.measure(&trial).unwrap(), tester.dut.offered())
    };
    let ((full, all), (fast, moved)) = (run(false), run(true));
    assert_eq!(fast, TrialResult { repeated_frames: fast.repeated_frames, ..full });
    assert_eq!((fast.counts.lost(), fast.counts.corrupt), (0, 0));
    assert!(moved < all, "nothing was skipped: {moved} of {all}");
}

#[test]
fn the_whole_throughput_search_is_repeatable() {
    let run = || {
        let spec = YardSpec { frame_ns: 90_000, ..YardSpec::new(Line::MBIT_10) };
        let mut tester = tester(spec, Topology::Uni, flows(64, 1));
        let max = tester.setup().max_load().unwrap();
        // Shorter than the standard's trials: this test is about repeatability.
        let standard = throughput::Config::rfc2544(max);
        let config = throughput::Config { short: SECOND / 2, full: 2 * SECOND, ..standard };
        let mut search = Throughput::new(config);
        while let Some(trial) = search.next_trial() {
            search.record(&tester.measure(&trial).unwrap());
        }
        search.answer()
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    let pps = first.load.unwrap().pps();
    // 1 s / 90.01 us, plus at most 800 frames that ring, queue and batch buffer in 2 s.
    assert!((11_110.0..11_110.0 + 800.0 / 2.0).contains(&pps), "{pps}");
}

#[test]
fn a_bridge_in_a_mesh_sends_each_frame_to_its_port() {
    let spec =
        YardSpec { ports: 4, cores: 2, job: Job::Bridge(1024), ..YardSpec::new(Line::MBIT_10) };
    let mut tester = tester(spec, Topology::Mesh(4), flows(64, 12));
    // Learning frames come from the destination of each flow; senders are learnt from test frames.
    let load = Line::MBIT_10.max_load(64).part(1, 4);
    let result = tester.measure(&Trial::new(load, 2 * SECOND)).unwrap();
    let c = result.counts;
    assert_eq!((c.lost(), c.misrouted, c.reordered), (0, 0, 0), "{c:?}");
    assert_eq!(result.ports.len(), 4);
}

/// RFC 2544 section 11.4.1: test frames pass and other frames are dropped, in both directions.
#[test]
fn filters_let_the_tests_frames_through_and_nothing_else() {
    for (filters, cores, ordered) in [(1, 1, false), (25, 1, false), (25, 2, true), (25, 2, false)]
    {
        let spec = YardSpec { filters, cores, ordered, ..YardSpec::new(Line::MBIT_10) };
        let mut ours = tester(spec, Topology::Pairs(2), Spec { flows: 3, ..Spec::fixed(64) });
        let trial = Trial::new(Load::from_pps(1000.0), SECOND);
        let counts = ours.measure(&trial).unwrap().counts;
        assert_eq!((counts.sent, counts.lost()), (2000, 0), "{filters} {cores}");
        // Learning frames travel in the reverse direction: they are dropped and counted.
        let drops = ours.dut.drops();
        let denied: u64 = drops.iter().map(|(_, count)| count).sum();
        assert_eq!(denied, 6, "{drops:?}");
        let mut others = tester(spec, Topology::Pairs(2), flows(64, 3));
        let counts = others.measure(&trial).unwrap().counts;
        assert_eq!((counts.sent, counts.good), (2000, 0), "filters must drop random addresses");
    }
}
