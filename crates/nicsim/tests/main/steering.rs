//! RSS and exact-match filters in firmware: the queue of every flow, the order of its frames, and the cost.

use flowyard_flow::toeplitz::Toeplitz;
use flowyard_nicsim::Fast;
use flowyard_nicsim::config::Config;
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::profile::{Category, Profile};
use flowyard_nicsim::run::{Outcome, builtin};
use flowyard_nicsim::steer::of_flow;

fn run(firmware: Builtin, sets: &[&str]) -> Outcome {
    let mut config = Config::default();
    config.run.measure_us = 1000;
    for set in sets.iter().chain(&["load.receive_share=0.5"]) {
        config.set(set).unwrap();
    }
    let outcome = builtin::<Fast>(&config, firmware).unwrap();
    assert_eq!(outcome.errors(), 0, "{sets:?}");
    outcome
}

/// The share of each return ring if flow `f` of `flows` goes to `queue(f)`.
fn shares(flows: u32, queue: impl Fn(u32) -> usize) -> [f64; 8] {
    let mut shares = [0.0; 8];
    (0..flows).for_each(|flow| shares[queue(flow)] += 1.0 / f64::from(flows));
    shares
}

fn close(outcome: &Outcome, want: [f64; 8]) {
    let rings = outcome.window.devices.per_queue;
    let all: u64 = rings.iter().sum();
    for (ring, want) in rings.into_iter().zip(want) {
        let share = ring as f64 / all as f64;
        assert!((share - want).abs() < 0.02, "{rings:?}, expected {want:.3}");
    }
}

/// The verification key of Microsoft's RSS documentation.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

fn rss_queue(flow: u32, queues: usize) -> usize {
    let f = of_flow(flow, 0);
    let input = [&f.src[..], &f.dst, &f.src_port.to_be_bytes(), &f.dst_port.to_be_bytes()].concat();
    Toeplitz::new(&KEY).unwrap().hash(&input) as usize % 128 % queues
}

#[test]
fn rss_equals_the_toeplitz_hash_of_the_data_plane() {
    for (queues, flows) in [(4, 16), (8, 300), (3, 61)] {
        let sets = [
            format!("host.queues={queues}"),
            format!("load.flows={flows}"),
            "firmware.steer=1".into(),
        ];
        let outcome = run(Builtin::Steer, &sets.each_ref().map(String::as_str));
        close(&outcome, shares(flows, |flow| rss_queue(flow, queues)));
    }
}

#[test]
fn filters_precede_rss_and_cost_less() {
    let base = ["host.queues=4", "load.flows=16"];
    let with = |more: &[&str]| run(Builtin::Steer, &[&base[..], more].concat());
    let all = with(&["firmware.steer=2", "firmware.filters=16"]);
    close(&all, shares(16, |flow| 3 - flow as usize % 4));
    let some = with(&["firmware.steer=3", "firmware.filters=6"]);
    let half = |flow: u32| if flow < 6 { 3 - flow as usize % 4 } else { rss_queue(flow, 4) };
    close(&some, shares(16, half));
    let rss = with(&["firmware.steer=1"]);
    let cost = |outcome: &Outcome| {
        let profile = Profile::of(&outcome.image, &outcome.window);
        profile.share(Category::Steering).cycles as f64
            / outcome.window.devices.received.delivered as f64
    };
    assert!(cost(&all) < cost(&some) && cost(&some) < 1.3 * cost(&rss) + 200.0);
    assert!(cost(&rss) > 150.0, "RSS reads six words from the SDRAM and 24 table entries");
}

#[test]
fn an_option_that_a_firmware_does_not_support_is_refused() {
    for (firmware, set, part) in [
        (Builtin::Rmw, "host.queues=2", "host.queues: this firmware supports one queue"),
        (Builtin::Rmw, "firmware.filters=1", "firmware.filters: this firmware has no filters"),
        (Builtin::Rmw, "firmware.steer=1", "firmware.steer: this firmware does not steer"),
        (Builtin::Steer, "firmware.filters=1", "set firmware.steer to 2 or 3"),
    ] {
        let mut config = Config::default();
        config.set(set).unwrap();
        let error = builtin::<Fast>(&config, firmware).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
