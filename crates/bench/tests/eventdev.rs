//! The suite of event schedulers against DPDK's software devices: what they keep is kept in each release, and how they
//! differ is known.

use std::sync::Arc;

use flowyard_bench::eventdev::{Job, Results, Verdict, measure};
use flowyard_testkit::harness::{self, Need};
use flowyard_testkit::note;

flowyard_testkit::tests! {
    event_sw_keeps_what_it_is_known_to_keep needs [Need::Check(dpdk_starts)],
    event_opdl_keeps_what_it_is_known_to_keep needs [Need::Check(dpdk_starts)],
    a_device_that_does_not_exist_is_an_error needs [Need::Check(dpdk_starts)],
}

const OPTIONS: [&str; 3] = ["--no-huge", "-m", "256"];

fn dpdk_starts() -> Result<(), String> {
    let options = OPTIONS.map(str::to_owned);
    flowyard_dpdk::Eal::start(&options, &[]).map(drop).map_err(|error| error.what)
}

#[expect(clippy::disallowed_methods, reason = "rates are measured by a real clock")]
fn results(device: &str) -> Result<Results, flowyard_bench::Error> {
    let start = std::time::Instant::now();
    let clock: flowyard_yard::Clock = Arc::new(move || start.elapsed().as_nanos() as u64);
    let options = OPTIONS.map(str::to_owned);
    let results = measure(&Job { device, options: &options, rounds: 1, events: 200_000 }, &clock)?;
    for row in &results.rules {
        note!("{device} {}: {:?}: {}", row.rule, row.verdict, row.seen);
    }
    for rate in &results.rates {
        note!("{device} {rate:?}");
    }
    Ok(results)
}

fn event_sw_keeps_what_it_is_known_to_keep() {
    let results = results("event_sw0").unwrap();
    for row in &results.rules {
        let keeps = [
            "once-ordered",
            "once-atomic",
            "once-parallel",
            "ordered-late",
            "ordered-release",
            "ordered-head-of-line",
            "atomic-exclusive",
            "atomic-elephant",
            "stages",
        ];
        if keeps.contains(&row.rule) {
            assert_eq!(row.verdict, Verdict::Kept, "{row:?}");
        }
    }
    for rate in &results.rates {
        assert_eq!((rate.misordered, rate.lost), (0, 0), "{rate:?}");
        assert!(rate.million_per_s.is_some_and(|rate| rate > 0.0));
    }
}

fn event_opdl_keeps_what_it_is_known_to_keep() {
    let results = results("event_opdl0").unwrap();
    for row in &results.rules {
        if ["once-ordered", "once-atomic", "ordered-late", "atomic-elephant"].contains(&row.rule) {
            assert_eq!(row.verdict, Verdict::Kept, "{row:?}");
        }
    }
    for rate in &results.rates {
        assert_eq!((rate.misordered, rate.lost), (0, 0), "{rate:?}");
        assert!(rate.million_per_s.is_some_and(|rate| rate > 0.0));
    }
}

fn a_device_that_does_not_exist_is_an_error() {
    let error = results("event_none0").map(drop).unwrap_err().to_string();
    assert!(error.contains("adding the DPDK device 'event_none0' failed"), "{error}");
}

fn main() -> std::process::ExitCode {
    harness::run(tests())
}
