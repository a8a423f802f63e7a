//! `flowyard run --simulate`: scenarios from the command line.

use crate::common::{json, run};

flowyard_testkit::tests! {
    a_scenario_meets_its_expectations_or_the_difference_is_printed,
    a_scenario_runs_on_threads,
}

fn a_scenario_meets_its_expectations_or_the_difference_is_printed() {
    let good = run(["run", "scenarios/ordered.toml", "--simulate"]);
    let said = "scenarios/ordered.toml: the results are as expected with all 16 seeds\n";
    assert_eq!(
        (good.status.code(), &*good.stdout, &*good.stderr),
        (Some(0), said.as_bytes(), &[][..])
    );

    let text =
        std::fs::read_to_string(crate::common::root().join("scenarios/forward.toml")).unwrap();
    let changed = text.replacen("sent = { east = 10", "sent = { east = 9", 1);
    assert_ne!(text, changed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.toml");
    std::fs::write(&path, changed).unwrap();
    let document = json(["run", "scenarios/ordered.toml", "--simulate", "--json"]);
    assert_eq!(
        (&document["seeds"], &document["difference"]),
        (&16.into(), &serde_json::Value::Null),
        "{document}"
    );
    let bad = run([std::ffi::OsStr::new("run"), path.as_os_str(), "--simulate".as_ref()]);
    let said = String::from_utf8_lossy(&bad.stderr);
    assert_eq!(bad.status.code(), Some(1), "{said}");
    assert!(
        said.contains("changed.toml:") && said.contains("sent.east: expected 9, got 10"),
        "{said}"
    );
    let bad = run(["run", path.to_str().unwrap(), "--simulate", "--json"]);
    assert_eq!(bad.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&bad.stdout).unwrap();
    let difference = document["difference"].as_str().unwrap();
    assert!(difference.contains("sent.east: expected 9, got 10"), "{document}");
    assert_eq!(String::from_utf8_lossy(&bad.stderr), format!("flowyard: {difference}\n"));
}

/// A scenario's configuration also runs on real threads.
fn a_scenario_runs_on_threads() {
    let ran = run(["run", "scenarios/exact-drop.toml", "--json"]);
    let counters: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let total = &counters["total"];
    assert_eq!(
        (&total["tx_frames"], &total["drops"]["table"]),
        (&2.into(), &5.into()),
        "{counters}"
    );
    let note = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(note.contains("are for --simulate"), "{note}");
}
