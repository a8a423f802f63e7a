//! `flowyard bench steer`: short measurements. What they conclude depends on the machine; what was promised does not.

use std::process::{Command, Stdio};

use serde_json::Value;

flowyard_testkit::tests! {
    requests_are_answered_and_received_somewhere,
    datagrams_are_in_order_where_that_is_promised,
    nothing_is_lost_under_disturbances,
}

/// What `flowyard bench steer` prints.
fn measured(args: &[&str], schema: &str) -> Value {
    let built = env!("CARGO_BIN_EXE_flowyard").into();
    let mut command = Command::new(std::env::var_os("FLOWYARD_BINARY").unwrap_or(built));
    command.args(["bench", "steer"]).args(args).arg("--json").stdin(Stdio::null());
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], schema);
    document
}

fn requests_are_answered_and_received_somewhere() {
    let args = ["requests", "--rounds", "1", "--time", "2s", "--load", "20"];
    let document = measured(&args, "flowyard.bench-steer-requests/1");
    let ways = document["ways"].as_array().unwrap();
    let names: Vec<_> = ways.iter().map(|way| way["way"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "rps", "rfs", "steer-rss", "steer-atr", "steer-rfs"]);
    for way in ways {
        for load in ["closed", "open"] {
            let of = |key: &str| way[load][key]["median"].as_f64().unwrap();
            assert!(of("rps") > 0.0 && of("p99_ns") >= of("p50_ns"), "{way}");
            assert!((0.0..=1.0).contains(&of("local_share")), "{way}");
        }
        let is_steer = way["way"].as_str().unwrap().starts_with("steer");
        assert_eq!(way["frames"]["rss"].as_u64().is_some(), is_steer, "{way}");
    }
    // Pinned threads of connections that pause: the kernel's RFS finds them on every machine.
    assert!(ways[2]["open"]["local_share"]["median"].as_f64().unwrap() > 0.7, "{}", ways[2]);
    assert_eq!(ways[2]["to_rfs"]["median"], 1.0);
}

fn datagrams_are_in_order_where_that_is_promised() {
    let args = ["order", "--datagrams", "200000", "--ways", "none,steer-rss,steer-rfs"];
    let document = measured(&args, "flowyard.bench-steer-order/1");
    for way in document["ways"].as_array().unwrap() {
        let of = |key: &str| way[key].as_u64().unwrap();
        assert_eq!(of("sent"), 200_000);
        assert_eq!(of("received") + of("lost"), 200_000, "{way}");
        assert!((of("late"), of("twice")) == (0, 0) && of("moves") > 0, "{way}");
    }
}

fn nothing_is_lost_under_disturbances() {
    let document = measured(&["survival", "--seconds", "10"], "flowyard.bench-steer-survival/1");
    let events = &document["events"];
    for kind in ["moves", "flaps", "restarts", "kills"] {
        assert!(events[kind].as_u64().unwrap() > 0, "{events}");
    }
    assert!(document["http"]["requests"].as_u64().unwrap() > 3000, "{document}");
    assert_eq!(document["http"]["broken"].as_array().unwrap().len(), 0);
    assert!(document["stream"]["bytes"].as_u64().unwrap() > 0);
    assert_eq!(document["datagrams"]["alive"], document["datagrams"]["flows"]);
}
