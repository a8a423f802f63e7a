//! `flowyard run` on threads with the kinds of work that copy and rewrite frames.

use crate::common::run;
use serde_json::Value;

flowyard_testkit::tests! {
    a_bridge_copies_and_its_counters_balance,
    a_router_says_what_it_dropped,
}

/// The counters of a run of `file`.
fn counters(file: &str) -> Value {
    let output = run(["run", file, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{file}: {output:?}");
    let counters: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(
        (&counters["balanced"], &counters["held"]),
        (&true.into(), &0.into()),
        "{counters:#}"
    );
    counters
}

fn a_bridge_copies_and_its_counters_balance() {
    let counters = counters("scenarios/bridge-ordered.toml");
    let total = &counters["total"];
    let frames = ["rx_frames", "copies", "tx_frames"].map(|name| total[name].as_u64());
    assert_eq!(frames, [Some(500), Some(500), Some(1000)], "{counters:#}");
    let text = run(["run", "scenarios/bridge-ordered.toml"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.starts_with("500 frames in, 500 copied, 1,000 out, 0 dropped, 0 held"), "{text}");
}

fn a_router_says_what_it_dropped() {
    let counters = counters("scenarios/route-not-ip.toml");
    let drops = &counters["total"]["drops"];
    let frames = ["not_ip", "malformed", "filtered"].map(|name| drops[name].as_u64());
    assert_eq!(frames, [Some(5), Some(4), Some(1)], "{counters:#}");
    assert_eq!(counters["total"]["tx_frames"], 1);
}
