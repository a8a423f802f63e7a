//! `flowyard host`, `plan`, `apply` and `undo` on the loopback interface, which every machine has and which
//! none of these tests changes.

use crate::common::{good, json, refused, run};

flowyard_testkit::tests! {
    what_is_not_told_is_listed_with_the_reason,
    a_plan_names_limits_and_sources,
    a_journal_that_cannot_be_read_is_named,
    what_is_no_plan_is_refused,
    nothing_is_undone_that_was_not_applied,
    an_interface_decides_what_is_explained,
    rebalance_says_what_it_refuses,
}

const YARD: &str = "captures/yard.pcap";

fn what_is_not_told_is_listed_with_the_reason() {
    let text = good(&run(["host", "lo"]));
    assert!(text.contains("Not known:") && text.contains("ETHTOOL_GRSSH: EOPNOTSUPP"), "{text}");
    let state = json(["host", "lo", "--json"]);
    assert_eq!((&state["schema"], &state["interface"]), (&"flowyard.host/1".into(), &"lo".into()));
    assert!(state["rss"]["unknown"].as_str().unwrap().contains("EOPNOTSUPP"));
    let line = refused(&run(["host", "none7"]));
    assert!(line.contains("there is no interface 'none7'; choose one of") && line.contains("lo"));
}

fn a_plan_names_limits_and_sources() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    let file = file.to_str().unwrap();
    for goal in [
        "balance",
        "locality",
        "symmetric",
        "spread-tunnels",
        "isolate=tcp 10.0.0.1:1 > 10.0.0.2:2",
    ] {
        let args = ["plan", "lo", "--goal", goal, "--capture", YARD];
        let text = good(&run(args));
        assert!(text.contains(&format!("goal {goal}")), "{text}");
        let plan = json([&args[..], &["--json", "-o", file]].concat());
        for refusal in plan["refusals"].as_array().unwrap() {
            for key in ["what", "limit", "source"] {
                assert!(!refusal[key].as_str().unwrap().is_empty(), "{refusal}");
            }
        }
        let written: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(written, plan);
    }
    let line = refused(&run(["plan", "lo", "--goal", "speed", "--capture", YARD]));
    assert!(line.contains("there is no goal 'speed'; choose balance"), "{line}");
    let line =
        refused(&run(["plan", "lo", "--goal", "balance", "--queues", "2", "--capture", YARD]));
    assert!(line.contains("--queues: only the goal isolate=FLOW"), "{line}");
    let goal = "isolate=tcp 0.0.0.0:0 > 10.0.0.2:2";
    let text = good(&run(["plan", "lo", "--goal", goal, "--queues", "2", "--capture", YARD]));
    assert!(text.contains("goal isolate=tcp 0.0.0.0:0 > 10.0.0.2:2 onto 2 queues"), "{text}");
    let line = refused(&run(["plan", "lo", "--goal", "balance"]));
    assert_eq!(line.matches("<--capture <FILE>|--seconds <N>>").count(), 2, "{line}");
    let line = refused(&run(["plan", "lo", "--goal", "speed"]));
    assert!(line.contains("there is no goal 'speed'; choose balance"), "{line}");
    let both = ["plan", "lo", "--goal", "balance", "--capture", YARD, "--seconds", "1"];
    assert!(refused(&run(both)).contains("cannot be used with"));
}

fn a_journal_that_cannot_be_read_is_named() {
    for command in ["undo", "confirm"] {
        let output = run([command, "lo", "--journal", "/dev/null"]);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.starts_with("flowyard: the journal in /dev/null: Not a directory"), "{line}");
        assert!(line.ends_with("; name another folder with --journal DIR\n"), "{line}");
    }
}

fn what_is_no_plan_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    let name = file.to_str().unwrap();
    for (text, why) in [
        ("hello", "this is not a plan"),
        ("{}", "its schema is missing"),
        ("{\"schema\": \"flowyard.plan/9\"}", "its schema is flowyard.plan/9, not flowyard.plan/1"),
        ("{\"schema\": \"flowyard.plan/1\"}", "missing field"),
    ] {
        std::fs::write(&file, text).unwrap();
        let line = refused(&run(["apply", name, "--journal", folder.path().to_str().unwrap()]));
        assert!(line.contains(why), "{line}");
    }
    let line = refused(&run(["apply", "none.json"]));
    assert!(line.contains("none.json") && line.contains("flowyard plan -o"), "{line}");
}

fn nothing_is_undone_that_was_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for command in ["undo", "confirm"] {
        let line = refused(&run([command, "lo", "--journal", folder]));
        assert!(line.contains("there is no journal of lo"), "{line}");
    }
}

fn rebalance_says_what_it_refuses() {
    for (args, why) in [
        (&["lo"][..], "lo has no indirection table whose entries could move: ETHTOOL_GRSSH"),
        (&["none7"], "there is no interface 'none7'"),
        (&["lo", "--even", "0.9"], "--even: must be a number above 1"),
        (&["lo", "--every", "1us"], "--every: must be at least 1ms"),
        (&["lo", "--moves", "0"], "--moves: must be at least 1"),
        (&["lo", "--once", "--count", "3"], "cannot be used with"),
    ] {
        let line = refused(&run([&["rebalance", "--dry-run"], args].concat()));
        assert!(line.contains(why), "{line}");
    }
}

fn an_interface_decides_what_is_explained() {
    let flow = "tcp 10.0.0.1:40000 > 10.0.0.2:11211";
    let explained = json(["explain", flow, "--interface", "lo", "--json"]);
    assert_eq!((&explained["adapter"], &explained["queues"]), (&"software".into(), &1.into()));
    let line = refused(&run(["explain", flow, "--interface", "none7"]));
    assert!(line.contains("there is no interface 'none7'"), "{line}");
    let line = refused(&run(["analyze", YARD, "--seconds", "1"]));
    assert!(line.contains("--seconds"), "{line}");
}
