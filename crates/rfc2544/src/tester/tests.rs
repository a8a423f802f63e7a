use super::*;
use crate::dut::{Faults, Faulty};
use crate::line::Load;
use crate::setup::Topology;
use crate::traffic::{Addresses, ETHERNET_SIZES, Spec};

/// Each fault alone, and all faults together.
fn modes() -> [(&'static str, Faults); 9] {
    let none = Faults { delay_ns: 10_000, ..Faults::default() };
    let reorder = Faults { reorder_ppm: 50_000, reorder_ns: 3_000_000, ..none };
    [
        ("none", none),
        ("lose", Faults { lose_ppm: 30_000, ..none }),
        ("lose one", Faults { lose_one: 77, ..none }),
        ("duplicate", Faults { duplicate_ppm: 30_000, reorder_ns: 1_000_000, ..none }),
        ("corrupt", Faults { corrupt_ppm: 30_000, ..none }),
        ("reorder", reorder),
        ("delay", Faults { delay_ns: 1_234_567, jitter_ns: 900_000, ..none }),
        ("limit", Faults { service_ns: 1_500_000, queue_frames: 5, ..none }),
        (
            "all",
            Faults {
                lose_ppm: 20_000,
                duplicate_ppm: 20_000,
                corrupt_ppm: 20_000,
                jitter_ns: 50_000,
                service_ns: 300_000,
                queue_frames: 8,
                ..reorder
            },
        ),
    ]
}

fn spec(size: u16, flows: u16, seed: u64) -> Spec {
    Spec { flows, addresses: Addresses::Random, seed, ..Spec::fixed(size) }
}

fn setup(topology: Topology, traffic: Spec) -> Setup {
    Setup { learning: false, ..Setup::new(Line::MBIT_10, topology, traffic) }
}

#[test]
fn counters_equal_the_truth_in_every_mode_at_every_size() {
    for (name, faults) in modes() {
        for size in ETHERNET_SIZES {
            for seed in 0..100 {
                let topology = if seed % 2 == 0 { Topology::Uni } else { Topology::Pairs(2) };
                let setup = setup(topology, spec(size, 1 + (seed % 5) as u16, seed));
                let max = setup.max_load().unwrap();
                let trial = Trial::burst(150, max.part(1 + seed % 3, 3));
                let mut tester = VirtualTester::new(Faulty::new(2, faults, seed), setup).unwrap();
                let result = tester.measure(&trial).unwrap();
                let truth = tester.dut.truth();
                let at = format!("{name}, {size} bytes, seed {seed}");
                let c = result.counts;
                assert_eq!(c.sent, truth.offered, "{at}");
                assert_eq!((c.good, c.lost()), (truth.good, truth.offered - truth.good), "{at}");
                assert_eq!(c.duplicates, truth.duplicates, "{at}");
                assert_eq!((c.corrupt, c.foreign), (truth.corrupt, 0), "{at}");
                assert_eq!(
                    (c.reordered, c.max_extent),
                    (truth.reordered, truth.max_extent),
                    "{at}"
                );
                assert_eq!((c.gaps, c.stale, c.misrouted), (truth.gaps, 0, 0), "{at}");
                let latency = &result.latency;
                assert_eq!(latency.count, truth.latencies.len() as u64, "{at}");
                let ends = (latency.min_ns, latency.max_ns);
                let want = truth.latencies.first().zip(truth.latencies.last());
                assert_eq!(Some(ends), want.map(|(min, max)| (*min, *max)), "{at}");
                let mean = truth.latencies.iter().sum::<u64>() as f64 / latency.count as f64;
                assert!((latency.mean_ns - mean).abs() < 1e-6 * mean, "{at}");
                let half = truth.latencies[truth.latencies.len().div_ceil(2) - 1];
                assert!(latency.p50_ns.abs_diff(half) <= half / 500 + 1, "{at}");
                // The last bit of the last lost frame arrives one transmission time after its first
                // bit.
                let last = result.losses.last.map(|ns| ns + Line::MBIT_10.ps(size.into()) / 1000);
                let near = |a: u64, b: u64| a.abs_diff(b) <= 1;
                assert!(
                    last.zip(truth.last_lost)
                        .map_or(last.is_none() && truth.last_lost.is_none(), |(a, b)| near(a, b)),
                    "{at}: {last:?} {:?}",
                    truth.last_lost
                );
                assert!(result.fault().is_none(), "{at}");
            }
        }
    }
}

#[test]
fn the_modes_really_do_something() {
    let mut seen = Vec::new();
    for (name, faults) in modes() {
        let setup = setup(Topology::Uni, spec(64, 3, 1));
        let trial = Trial::burst(2000, setup.max_load().unwrap());
        let mut tester = VirtualTester::new(Faulty::new(2, faults, 9), setup).unwrap();
        let c = tester.measure(&trial).unwrap().counts;
        seen.push((name, c.lost() > 0, c.duplicates > 0, c.corrupt > 0, c.reordered > 0));
    }
    let want = [
        ("none", false, false, false, false),
        ("lose", true, false, false, false),
        ("lose one", true, false, false, false),
        ("duplicate", false, true, false, false),
        ("corrupt", true, false, true, false),
        ("reorder", false, false, false, true),
        ("delay", false, false, false, true),
        ("limit", true, false, false, false),
        ("all", true, true, true, true),
    ];
    assert_eq!(seen, want);
}

/// A device with a short queue whose complete state is the time at which it is free again.
struct Station {
    service_ns: Nanos,
    room: u64,
    free: Nanos,
    out: std::collections::VecDeque<(Nanos, Vec<u8>)>,
    offered: u64,
}

impl Station {
    fn new(service_ns: Nanos, room: u64) -> Self {
        Self { service_ns, room, free: 0, out: std::collections::VecDeque::new(), offered: 0 }
    }
}

impl Dut for Station {
    fn describe(&self) -> String {
        "a station".into()
    }

    fn ports(&self) -> u8 {
        2
    }

    fn offer(&mut self, at: Nanos, _port: u8, frame: &[u8]) {
        self.offered += 1;
        let start = at.max(self.free);
        if start - at <= self.service_ns * self.room {
            self.free = start + self.service_ns;
            self.out.push_back((self.free, frame.to_vec()));
        }
    }

    fn collect(&mut self, until: Nanos, out: &mut dyn FnMut(Nanos, u8, &[u8])) {
        while let Some((at, frame)) = self.out.pop_front_if(|(at, _)| *at <= until) {
            out(at, 1, &frame);
        }
    }

    fn state(&self, now: Nanos, into: &mut Vec<u64>) -> State {
        into.push(self.free.saturating_sub(now));
        State::Complete
    }
}

fn station(trial: &Trial, traffic: &Spec, service_ns: Nanos, skips: bool) -> (TrialResult, u64) {
    let setup = setup(Topology::Uni, traffic.clone());
    let mut tester = VirtualTester::new(Station::new(service_ns, 7), setup).unwrap();
    tester.skips = skips;
    (tester.measure(trial).unwrap(), tester.dut.offered)
}

#[test]
fn skipped_cycles_give_what_a_full_simulation_gives() {
    let imix = Spec { sizes: "64x3,594,1518".parse().unwrap(), ..spec(64, 3, 5) };
    let etc = Spec { mix: crate::traffic::Mix::Etc, ..spec(64, 3, 5) };
    let broadcasts = Spec { broadcast_every: 7, ..spec(64, 2, 5) };
    for (traffic, part, service_ns, must_skip) in [
        (spec(64, 1, 1), (1, 1), 50_000, true),     // no loss
        (spec(64, 4, 1), (100, 103), 50_000, true), // no loss, but the phase recurs late
        (spec(64, 4, 1), (1, 1), 67_201, false),    // one nanosecond too slow: a long cycle
        (spec(64, 4, 1), (1, 1), 90_000, true),     // loses a quarter
        (spec(64, 2, 1), (1, 1), 134_400, true),    // loses half
        (spec(1518, 1, 1), (1, 3), 3_000_000, false),
        (imix, (1, 2), 500_000, false),
        (broadcasts, (1, 1), 100_800, true),
        (etc, (1, 4), 20_000, false),
    ] {
        let max = setup(Topology::Uni, traffic.clone()).max_load().unwrap();
        for shape in [Shape::Even, Shape::Bursts { frames: 16, line: max }] {
            let load = max.part(part.0, part.1);
            let trial = Trial::new(load, 10 * SECOND).shape(shape).tagged(5 * SECOND, 40);
            let (full, all) = station(&trial, &traffic, service_ns, false);
            let (fast, moved) = station(&trial, &traffic, service_ns, true);
            let want = TrialResult { repeated_frames: fast.repeated_frames, ..full.clone() };
            let at = format!("{traffic:?} {shape:?} {load:?} {service_ns}");
            assert_eq!(fast, want, "{at}");
            assert_eq!(moved < all, fast.repeated_frames > 0, "{at}");
            if must_skip && shape == Shape::Even {
                assert!(fast.repeated_frames > 0, "{at}: nothing was skipped");
            }
        }
    }
}

/// A trial that needs only to know whether a frame is lost ends with the first loss, after few frames.
#[test]
fn an_overload_ends_with_the_first_loss_if_the_search_needs_no_more() {
    let traffic = spec(64, 1, 1);
    let topology = Topology::Uni;
    let setup = Setup { learning: false, ..Setup::new(Line::GBIT_10, topology, traffic) };
    let trial = Trial::new(setup.max_load().unwrap(), 30 * SECOND).stop_at_loss();
    let run = |service_ns, trial: &Trial| {
        let mut tester = VirtualTester::new(Station::new(service_ns, 512), setup.clone()).unwrap();
        tester.skips = false;
        (tester.measure(trial).unwrap(), tester.dut.offered)
    };
    // 446 million frames would take minutes.
    let (result, offered) = run(832, &trial);
    assert!(offered < 100_000, "{offered}");
    assert!(result.stopped_at.is_some() && result.counts.lost() > 0, "{:?}", result.counts);
    assert_eq!((result.counts.intended, result.counts.sent), (offered, offered));
    assert!(result.fault().is_none());
    // Without loss, the trial has its full length.
    let short = Trial { duration: SECOND / 100, ..trial };
    let (clean, offered) = run(60, &short);
    assert_eq!((clean.stopped_at, clean.counts.lost()), (None, 0));
    assert_eq!(offered, short.frames());
}

#[test]
fn counters_survive_two_to_the_32_frames() {
    let traffic = spec(64, 1, 1);
    let fourteen_hours = 14 * 3600 * SECOND;
    let setup = Setup { learning: false, ..Setup::new(Line::GBIT_10, Topology::Uni, traffic) };
    let load = setup.max_load().unwrap();
    let mut tester = VirtualTester::new(Station::new(60, 1000), setup).unwrap();
    let result = tester.measure(&Trial::new(load, fourteen_hours)).unwrap();
    let frames = 750_000_000_000;
    assert_eq!((result.counts.sent, result.counts.good), (frames, frames));
    assert_eq!((result.latency.count, result.counts.lost()), (frames, 0));
    assert!(tester.dut.offered < 1_000_000, "{}", tester.dut.offered);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let run = |seed| {
        let setup = setup(Topology::Mesh(4), spec(128, 9, seed));
        let faults = Faults { lose_ppm: 10_000, jitter_ns: 1_000_000, ..Faults::default() };
        let mut tester = VirtualTester::new(Faulty::new(4, faults, seed), setup).unwrap();
        tester.measure(&Trial::new(Load::from_pps(2000.0), SECOND)).unwrap()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn too_few_ports_are_refused() {
    let setup = setup(Topology::Pairs(4), spec(64, 1, 1));
    let error = VirtualTester::new(Faulty::new(2, Faults::default(), 1), setup).err().unwrap();
    assert!(error.to_string().contains("has 2 ports, but the topology needs 4"), "{error}");
}
