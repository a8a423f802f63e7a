//! Every frame is counted once under every policy of every adapter; equal inputs give equal results;
//! all time stamps are accepted.

use flowyard_adapter::Profile;
use flowyard_analyze::{Delays, Local, Setup};
use flowyard_ports::mem::Frames;
use flowyard_testkit::{Build, Profile as Mix, Rng};
use flowyard_wire::LinkType;

use crate::common::{
    all_policies, analyze, assert_conserved, load, policy, setup, traffic, yard_pcap,
};

flowyard_testkit::tests! {
    every_frame_lands_once_under_every_policy_of_every_adapter,
    the_filters_of_rules_and_learners_count_every_frame,
    equal_inputs_give_equal_results,
    another_seed_moves_other_threads,
    several_captures_follow_one_another,
    a_capture_that_starts_before_the_end_of_the_last_one_is_shifted,
    all_time_stamps_are_accepted,
    frames_without_a_flow_go_to_queue_0,
    an_empty_capture_gives_an_empty_result,
}

fn hosts(setup: &Setup) -> Vec<(&'static str, Setup)> {
    let with = |change: &dyn Fn(&mut Setup)| {
        let mut changed = setup.clone();
        change(&mut changed);
        changed
    };
    vec![
        ("unchanged", setup.clone()),
        ("a monitor", with(&|setup| setup.local = Local::All)),
        ("a client", with(&|setup| setup.local = Local::Client)),
        ("threads that move", with(&|setup| setup.migrate_every = 1_000_000)),
        ("three cores", with(&|setup| setup.cores = 3)),
        (
            "more cores than queues, with different delays",
            with(&|setup| {
                setup.cores = 40;
                setup.queues = setup.queues.min(8);
                setup.delays.extra = vec![0, 1_000_000, 0, 50_000];
            }),
        ),
    ]
}

fn every_frame_lands_once_under_every_policy_of_every_adapter() {
    let mut frames = load(&yard_pcap()).unwrap();
    for adapter in Profile::ALL {
        for (host, setup) in hosts(&setup(adapter.name, all_policies(adapter))) {
            let policies = setup.policies.len();
            let analysis = analyze(setup, &mut frames);
            assert_eq!(analysis.policies.len(), policies);
            assert_eq!(analysis.traffic.packets, frames.len() as u64);
            assert_conserved(&analysis, &format!("{}, {host}", adapter.name));
        }
    }
}

/// Every received frame is a hit or a miss of the rule table and of the learners' tables.
fn the_filters_of_rules_and_learners_count_every_frame() {
    let mut frames = load(&yard_pcap()).unwrap();
    let analysis =
        analyze(setup("x520", all_policies(Profile::find("x520").unwrap())), &mut frames);
    for name in ["fdir", "atr", "yard"] {
        let found = policy(&analysis, name);
        let filters = found.filters.as_ref().unwrap();
        assert_eq!(filters.stats.hits + filters.stats.misses, analysis.traffic.received, "{name}");
        assert!(filters.stats.hits > 0, "{name}");
    }
}

fn equal_inputs_give_equal_results() {
    let mut frames = load(&yard_pcap()).unwrap();
    for adapter in ["x520", "x722", "e810", "software"] {
        let mut setup = setup(adapter, all_policies(Profile::find(adapter).unwrap()));
        setup.migrate_every = 500_000;
        let mut once = || serde_json::to_string(&analyze(setup.clone(), &mut frames)).unwrap();
        assert_eq!(once(), once(), "{adapter}");
    }
}

fn another_seed_moves_other_threads() {
    let mut frames = load(&yard_pcap()).unwrap();
    let mut with = |seed| {
        let mut setup = setup("x520", all_policies(Profile::find("x520").unwrap()));
        (setup.migrate_every, setup.seed) = (500_000, seed);
        serde_json::to_string(&analyze(setup, &mut frames)).unwrap()
    };
    assert_ne!(with(1), with(2));
}

/// Reading a capture in two halves gives the same result as reading it whole, except for the list of
/// files.
fn several_captures_follow_one_another() {
    let whole = load(&yard_pcap()).unwrap();
    let (mut first, mut second) = (Frames::new(), Frames::new());
    for (at, (record, bytes)) in whole.iter().enumerate() {
        // Pushed frames are not truncated.
        let half = if at < 10_000 { &mut first } else { &mut second };
        half.push(record.time, record.link, bytes);
    }
    let mut both = Frames::new();
    for (record, bytes) in first.iter().chain(second.iter()) {
        both.push(record.time, record.link, bytes);
    }
    let setup = setup("x710", all_policies(Profile::find("x710").unwrap()));
    let one = analyze(setup.clone(), &mut both);
    let mut analyzer = flowyard_analyze::Analyzer::new(setup).unwrap();
    analyzer.read("a", &mut first, |_| {}).unwrap();
    analyzer.read("b", &mut second, |_| {}).unwrap();
    let two = analyzer.finish();
    assert_conserved(&two, "two captures");
    // A burst ends with its capture, and so does a batch of the policy yard.
    for (one, two) in one.policies.iter().zip(&two.policies).filter(|(one, _)| one.name != "yard") {
        assert_eq!((&one.queues, &one.cores), (&two.queues, &two.cores), "{}", one.name);
        assert_eq!(one.stages, two.stages, "{}", one.name);
    }
}

/// When a capture is read again, its frames are later than those of the first reading, and none of
/// them overtakes.
fn a_capture_that_starts_before_the_end_of_the_last_one_is_shifted() {
    let mix = Mix { flows: 20, rate_pps: 1000.0, exchanges: 0, ..Mix::default() };
    let mut frames = traffic(mix, 3, 2000);
    let setup = setup("x520", all_policies(Profile::find("x520").unwrap()));
    let once = analyze(setup.clone(), &mut frames).traffic.duration_s;
    let mut analyzer = flowyard_analyze::Analyzer::new(setup).unwrap();
    for file in ["a", "b", "c"] {
        frames.rewind();
        analyzer.read(file, &mut frames, |_| {}).unwrap();
    }
    let analysis = analyzer.finish();
    assert_conserved(&analysis, "three times");
    assert!((analysis.traffic.duration_s - 3.0 * once).abs() < 1e-6 * once);
    assert_eq!(policy(&analysis, "rss").reorder.packets, 0);
}

/// Time stamps of broken clocks, other time zones and other formats.
fn all_time_stamps_are_accepted() {
    let mix = Mix { flows: 50, ..Mix::default() };
    let sane = traffic(mix, 1, 3000);
    let mut rng = Rng::new(9);
    type Stamp = Box<dyn FnMut(u64, u64) -> u64>;
    let mut stamps: Vec<(&str, Stamp)> = vec![
        ("all zero", Box::new(|_, _| 0)),
        ("whole seconds", Box::new(|_, time| time / 1_000_000_000 * 1_000_000_000)),
        ("32-bit seconds", Box::new(|_, time| time & 0xffff_ffff)),
        ("backwards", Box::new(|at, _| 1_000_000_000_000 - at * 1000)),
        (
            "forth and back",
            Box::new(|at, time| if at % 7 == 3 { time - 5_000_000_000 } else { time }),
        ),
        ("a gap of years", Box::new(|at, time| time + at / 1000 * 3_000_000_000_000_000_000)),
        ("the end of time", Box::new(|at, _| u64::MAX - 3000 + at)),
        ("at the end of time", Box::new(|_, _| u64::MAX)),
        ("from the first to the last", Box::new(|at, _| if at < 5 { 0 } else { u64::MAX })),
        ("random", Box::new(move |_, _| rng.below(u64::MAX))),
    ];
    let uneven = Delays { service: 1_000, dispatch: 200, extra: vec![0, 1_000_000_000] };
    let endless = Delays { service: u64::MAX, dispatch: u64::MAX, extra: vec![u64::MAX; 3] };
    for (name, stamp) in &mut stamps {
        let mut frames = Frames::new();
        for (at, (record, bytes)) in sane.iter().enumerate() {
            frames.push(stamp(at as u64, record.time), record.link, bytes);
        }
        for adapter in ["x520", "x722", "e810"] {
            for (delays, migrate_every, window) in
                [(&uneven, 1_000, 100_000_000), (&endless, u64::MAX, u64::MAX), (&uneven, 1, 1)]
            {
                let mut setup = setup(adapter, all_policies(Profile::find(adapter).unwrap()));
                (setup.delays, setup.migrate_every) = (delays.clone(), migrate_every);
                setup.window = window;
                let analysis = analyze(setup, &mut frames);
                assert_conserved(&analysis, &format!("{name}, {adapter}"));
                assert!(analysis.traffic.duration_s >= 0.0, "{name}");
                assert_eq!(analysis.traffic.packets, 3000, "{name}");
            }
        }
    }
}

/// Frames that are not IP, frames without bytes, and frames of every link type.
fn frames_without_a_flow_go_to_queue_0() {
    let arp = flowyard_frame::FlowKey { eth_type: 0x0806, ..flowyard_frame::FlowKey::ZERO };
    let mut frames = Frames::new();
    for (at, link) in LinkType::ALL.into_iter().enumerate() {
        frames.push(at as u64, link, &[]);
        frames.push(at as u64, link, &[0x10; 3]);
    }
    frames.push(9, LinkType::Ethernet, &Build::new(&arp).payload(&[0; 28]).bytes());
    for adapter in Profile::ALL {
        let analysis = analyze(setup(adapter.name, all_policies(adapter)), &mut frames);
        assert_conserved(&analysis, adapter.name);
        assert_eq!((analysis.traffic.received, analysis.traffic.connections), (17, 0));
        assert_eq!(analysis.traffic.not_ip, 17);
        for policy in &analysis.policies {
            assert_eq!(policy.queues[0].packets, 17, "{} {}", adapter.name, policy.name);
            let stage = match &*policy.name {
                "rps" => "rps",
                "rfs" | "arfs" => "rfs",
                _ => "no_hash",
            };
            assert_eq!((policy.locality, policy.stages[stage]), (None, 17));
        }
    }
}

/// A capture without frames.
fn an_empty_capture_gives_an_empty_result() {
    for adapter in Profile::ALL {
        let analysis = analyze(setup(adapter.name, all_policies(adapter)), &mut Frames::new());
        assert_conserved(&analysis, adapter.name);
        assert_eq!((analysis.traffic.packets, analysis.elephants.len()), (0, 0));
        for policy in &analysis.policies {
            assert_eq!((policy.imbalance.cores, policy.locality), (None, None), "{}", policy.name);
        }
    }
}
