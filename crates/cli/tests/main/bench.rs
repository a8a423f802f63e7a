//! `flowyard bench`: the methods in virtual time, state files, comparisons, invalid arguments.

use crate::common::{flowyard, good, run, text};
use serde_json::Value;

flowyard_testkit::tests! {
    a_run_is_repeatable_resumable_and_comparable,
    the_tester_qualifies_and_a_soak_is_long,
    other_traffic_and_other_tests_run,
    a_capture_is_replayed_in_its_own_time,
    a_replay_faster_than_the_line_is_reported,
    devices_are_ranked_if_the_repetitions_show_a_difference,
    an_interrupted_run_says_how_to_continue,
    an_interrupted_run_writes_the_page_of_what_it_measured,
    an_interrupted_replay_has_what_was_read,
    invalid_arguments_are_refused_with_the_fix,
    the_latency_of_all_curves_fits_its_schema,
    the_engine_beside_what_is_installed_becomes_a_line_of_the_record,
}

fn an_interrupted_run_says_how_to_continue() {
    let folder = tempfile::tempdir().unwrap();
    let (page, state) = (folder.path().join("page.html"), folder.path().join("state"));
    let (page, state) = (page.to_str().unwrap(), state.to_str().unwrap());
    for (more, said) in [
        (
            &["--html", page][..],
            format!(
                "no page was written to {page}, because no test was finished; with --state FILE, finished"
            ),
        ),
        (&["--state", state], format!("the finished trials are in {state}: the same command")),
    ] {
        // Trials of a day end after the test.
        let child = flowyard()
            .args([&["bench", "soak", "--duration", "1000h"], more].concat())
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        crate::yard::wait("the handler of SIGINT", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            (u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0).then_some(())
        });
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{err}");
        assert!(err.contains("flowyard: interrupted;") && err.contains(&said), "{err}");
        assert!(!std::path::Path::new(page).exists());
    }
}

fn an_interrupted_run_writes_the_page_of_what_it_measured() {
    use std::io::{BufRead, Read};
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let mut child = flowyard()
        .args(["bench", "rfc2544", "--sizes", "1518", "--tests", "throughput,loss-rate,latency"])
        .arg("--html")
        .arg(&page)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut err = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("test 2 of 3") {
        line.clear();
        assert!(err.read_line(&mut line).unwrap() > 0, "it ended without a second test");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    let said = format!("interrupted; {} has the tests that were finished;", page.display());
    assert!(rest.contains(&said), "{rest}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("of 3 tests were finished"), "the page says that it is not complete");
    assert!(page.contains("Throughput without frame loss"), "the page has the first test");
}

fn an_interrupted_replay_has_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, fifo) = crate::streams::half(folder.path());
    let args = ["bench", "soak", "--replay", &path, "--json"];
    let output = crate::streams::interrupted(&args, fifo, 1_000_001);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(
        err.contains("interrupted; the packets that were read until then are replayed"),
        "{err}"
    );
    let folder = tempfile::tempdir().unwrap();
    let (path, fifo) = crate::streams::half(folder.path());
    let output = crate::streams::interrupted(&["bench", "soak", "--replay", &path], fifo, 0);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("interrupted before its second packet"), "{err}");
}

/// Options for a short run: one size, trials of a second.
const SHORT: [&str; 7] = ["--sizes", "1518", "--trial", "1s", "--short", "200ms", "--json"];

fn bench(args: &[&str]) -> std::process::Output {
    run([&["bench"], args].concat())
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Standard output of a successful measurement, which prints a line for each test on standard error.
#[track_caller]
fn measured(output: &std::process::Output) -> String {
    let progress = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(progress.lines().all(|line| line.starts_with("flowyard: test ")), "{progress}");
    text(&output.stdout)
}

fn throughput(text: &str) -> f64 {
    let answer = &parse(text)["results"]["sizes"][0]["throughput"];
    assert_eq!(answer["counts"]["sent"], answer["counts"]["good"], "throughput is without loss");
    1e12 / answer["load"]["interval_ps"].as_f64().unwrap()
}

fn a_run_is_repeatable_resumable_and_comparable() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lanner = |cost: &str, more: &[&str]| {
        let args = [&["lanner", "--frame-cost", cost][..], &SHORT, more].concat();
        measured(&bench(&args))
    };
    let state = file("state");
    // Only the device's results: the rest of the document describes the machine.
    let results = |text: &str| parse(text)["results"].clone();
    let first = lanner("900us", &["--state", &state]);
    assert_eq!(results(&first), results(&lanner("900us", &[])));

    // As if the run had been killed while it wrote a line.
    let lines = std::fs::read_to_string(&state).unwrap();
    let last = lines.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&state, &lines[..last + (lines.len() - last) / 2]).unwrap();
    assert_eq!(results(&lanner("900us", &["--state", &state])), results(&first));
    assert_eq!(std::fs::read_to_string(&state).unwrap(), lines);
    let args = [&["lanner", "--frame-cost", "1ms", "--state", &state][..], &SHORT].concat();
    let other = bench(&args);
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("other arguments"));

    let slow = lanner("1800us", &[]);
    assert!(throughput(&first) > 1.1 * throughput(&slow));
    let (a, b) = (file("a.json"), file("b.json"));
    std::fs::write(&a, &slow).unwrap();
    std::fs::write(&b, &first).unwrap();
    let both = parse(&good(&bench(&["compare", &a, &b, "--json"])));
    crate::schema::expect("bench", &parse(&first));
    crate::schema::expect("bench-compare", &both);
    let ratio = both["sizes"][0]["ratio"].as_f64().unwrap();
    assert!((ratio - throughput(&first) / throughput(&slow)).abs() < 1e-9, "{ratio}");
}

fn the_tester_qualifies_and_a_soak_is_long() {
    let text = good(&bench(&["qualify", "--seeds", "2", "--json"]));
    assert_eq!(parse(&text)["passed"], true);
    crate::schema::expect("bench-qualify", &parse(&text));
    let soak = measured(&bench(&["soak", "--sizes", "1518", "--json"]));
    crate::schema::expect("bench", &parse(&soak));
    let result = &parse(&soak)["results"]["sizes"][0]["soak"];
    // 14 hours at 40 % of 812.7 frames per second, in both directions.
    let sent = result["counts"]["sent"].as_u64().unwrap();
    assert!((32_769_000..32_771_000).contains(&sent), "{sent}");
    assert_eq!(result["counts"]["good"], sent);
    assert!(result["repeated_frames"].as_u64().unwrap() > sent * 9 / 10);
}

fn other_traffic_and_other_tests_run() {
    let short = ["--trial", "200ms", "--short", "200ms", "--json"];
    let run = |args: &[&str]| {
        let document = parse(&measured(&bench(&[args, &short].concat())));
        crate::schema::expect("bench", &document);
        document
    };
    let at = |json: &Value| json["results"]["sizes"][0].clone();
    let etc = run(&["rfc2544", "--mix", "etc", "--flows", "8", "--tests", "throughput"]);
    // The frames have 104 bytes on average instead of 64, so the line carries fewer.
    assert_eq!(etc["results"]["sizes"].as_array().unwrap().len(), 1, "one row for all sizes");
    let [line, mixed] = [672e5, at(&etc)["max"]["interval_ps"].as_f64().unwrap()];
    assert!(mixed > 1.3 * line, "{mixed}");

    let bursts = run(&["rfc2544", "--sizes", "1518", "--tests", "bursts"]);
    let found = at(&bursts)["bursts"].as_array().unwrap().clone();
    let frames: Vec<_> = found.iter().map(|burst| burst["frames"].as_u64().unwrap()).collect();
    assert_eq!(frames, [16, 64, 256, 1024]);

    // The device counts as dropped the learning frames that its filters deny.
    let filters = run(&["rfc2544", "--filters", "25", "--sizes", "1518", "--tests", "throughput"]);
    assert!(at(&filters)["throughput"]["load"].is_object());
    assert!(!filters["drops"].as_array().unwrap().is_empty(), "{}", filters["drops"]);

    let args = ["rfc2889", "--bridge", "64", "--most", "256", "--frame-cost", "1us", "--json"];
    let switch = parse(&measured(&bench(&args)));
    crate::schema::expect("bench-rfc2889", &switch);
    assert!((32..=256).contains(&switch["capacity"].as_u64().unwrap()), "{switch:#}");
    assert!(switch["learning_pps"].as_u64().unwrap() > 0);
}

fn a_capture_is_replayed_in_its_own_time() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/yard.pcap");
    let soak = |speed: &str| {
        let args = [
            "soak",
            "--replay",
            capture,
            "--speed",
            speed,
            "--line",
            "1G",
            "--frame-cost",
            "1us",
            "--json",
        ];
        parse(&measured(&bench(&args)))["results"].clone()
    };
    let (once, twice) = (soak("1"), soak("2"));
    let result = |results: &Value| results["sizes"][0]["soak"].clone();
    let frames = once["profile"]["mix"]["replay"]["frames"].as_u64().unwrap();
    for results in [&once, &twice] {
        // Every frame of the capture is sent from both ports.
        assert_eq!(result(results)["counts"]["sent"], 2 * frames);
        assert_eq!(result(results)["repeated_frames"], 0);
        // The load is the mean rate: it has as many frames as each port sends.
        let trial = &result(results)["trial"];
        let [duration, interval] = [&trial["duration"], &trial["load"]["interval_ps"]];
        let sent = duration.as_f64().unwrap() * 1000.0 / interval.as_f64().unwrap();
        assert!((sent / frames as f64 - 1.0).abs() < 0.01, "{sent} of {frames}");
    }
    let length = |results: &Value| result(results)["trial"]["duration"].as_u64().unwrap();
    assert_eq!(length(&once), 2 * length(&twice) + length(&once) % 2);
}

/// The capture needs more than the line of 10 Mbit/s: its frames wait, and none is lost.
fn a_replay_faster_than_the_line_is_reported() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/yard.pcap");
    let soak = |args: &[&str]| measured(&bench(&[&["soak", "--replay", capture], args].concat()));
    for speed in ["2", "4"] {
        let document = parse(&soak(&["--speed", speed, "--json"]));
        let counts = &document["results"]["sizes"][0]["soak"]["counts"];
        assert_eq!(counts["sent"], counts["good"], "{counts}");
    }
    let text = soak(&["--speed", "4"]);
    assert!(text.contains("later than in the capture") && text.contains("--line 100M"), "{text}");
    assert!(text.contains("Traffic: both ports send to each other"), "{text}");
    assert!(!text.contains("Lanner"), "{text}");
}

fn devices_are_ranked_if_the_repetitions_show_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let mut words = Vec::new();
    for (name, cost) in [("fast", "900us"), ("slow", "1800us"), ("same", "900us")] {
        let file = folder.path().join(name).to_str().unwrap().to_owned();
        let args = [&["lanner", "--frame-cost", cost][..], &SHORT].concat();
        std::fs::write(&file, measured(&bench(&args))).unwrap();
        words.push(format!("{name}={file},{file},{file}"));
    }
    let args: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = good(&bench(&[&["rank", "--json"], args.as_slice()].concat()));
    crate::schema::expect("bench-rank", &parse(&text));
    let devices = parse(&text)["orders"][0]["devices"].as_array().unwrap().clone();
    let places: Vec<_> = devices
        .iter()
        .map(|d| (d["name"].as_str().unwrap(), d["place"].as_u64().unwrap()))
        .collect();
    assert_eq!(places, [("fast", 1), ("same", 1), ("slow", 3)]);
    // With one run of each, no device is ranked.
    let one: Vec<String> =
        words.iter().map(|word| word.split(',').next().unwrap().to_owned()).collect();
    let one: Vec<&str> = one.iter().map(String::as_str).collect();
    let text = good(&bench(&[&["rank"], one.as_slice()].concat()));
    assert_eq!(text.matches("not ranked: 1 run, at least 3 are needed").count(), 3, "{text}");
    let twice = bench(&["rank", one[0], one[0]]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&twice.stderr).contains("'fast' is named twice"));
}

fn invalid_arguments_are_refused_with_the_fix() {
    for (args, fix) in [
        (&["rfc2544", "--sizes", "63"][..], "imix"),
        (&["rfc2544", "--sizes", "64x7,594x4"], "64x7+594x4"),
        (&["rfc2544", "--mix", "etc", "--sizes", "64"], "leave out --sizes"),
        (&["rfc2544", "--line", "fast"], "such as 10M"),
        (&["rfc2544", "--topology", "mesh"], "--bridge"),
        (&["rfc2544", "--ports", "3"], "even"),
        (&["rfc2544", "--mix", "zipf:x"], "exponent"),
        (&["rfc2544", "--mix", "nothing"], "agh-2015"),
        (&["rfc2544", "--cores", "0"], "1 to 16"),
        (&["rfc2544", "--trial", "0s"], "1ms"),
        (&["compare", "Cargo.toml", "Cargo.toml"], "Cargo.toml: the file is not JSON"),
        (&["compare", "nowhere", "nowhere"], "nowhere"),
        (&["qualify", "--seeds", "0"], "10000"),
        (&["qualify", "--interfaces", "a"], "--interfaces: needs two names"),
        (&["rfc2544", "--interfaces", "a"], "--interfaces: needs 2 to 8 names"),
        (&["rfc2889", "--bridge", "64", "--interfaces", "a,b"], "'--interfaces'"),
        (&["rfc2889", "--bridge", "64", "--html", "a.html"], "'--html'"),
        (&["rfc2889", "--bridge", "64", "--sizes", "64"], "'--sizes'"),
        (&["soak", "--speed", "2"], "add --replay FILE"),
        (&["soak", "--load", "150"], "must be 1 to 100"),
        (&["rfc2544", "--filters", "2"], "0, 1, 25"),
        (&["rfc2544", "--seconds", "1"], "--interfaces"),
        (&["rfc2544", "--interfaces", "a,b", "--tester", "nowhere"], "qualify"),
        (&["rfc2544", "--cover", "all"], "payload"),
        (&["rfc2889"], "--bridge"),
        (&["rank", "a.json"], "kernel="),
        (&["soak", "--replay", "nowhere.pcap"], "nowhere.pcap"),
        (&["latency", "--loads", "50,0"], "0 is not 1 to 100"),
        (&["latency", "--time", "2h"], "1ms to 60s"),
        (&["engine", "--l3fwd", "l3fwd"], "--peers"),
        (&["engine", "--peers", "--l3fwd", "nowhere"], "nowhere is not a file"),
        (&["steer", "requests", "--time", "1ms"], "10ms to 60s"),
        (&["steer", "requests", "--load", "0"], "1 to 100 percent"),
        (&["steer", "order", "--every", "2s"], "1ms to 1s"),
        (&["steer", "order", "--ways", "fast"], "steer-rfs"),
        (&["steer", "survival", "--seconds", "3"], "must be 10 to 86400"),
        (&["memcached", "--time", "1ms"], "10ms to 60s"),
        (&["memcached", "--sets", "101"], "0 to 100 percent"),
        (&["memcached", "--rates", "2000,1000"], "must ascend, but 1000 follows 2000"),
        (&["memcached", "--ways", "fast"], "yard-atr"),
        (&["memcached", "--profile", "missing.toml"], "`flowyard calibrate --output missing.toml`"),
        (&["history", "nowhere.jsonl"], "--add"),
        (&["history", "Cargo.toml"], "line 1 is no entry"),
        (&["history", "new.jsonl", "--add", "nowhere.json"], "nowhere.json"),
    ] {
        let output = bench(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(fix) && error.lines().count() == 1, "{args:?}: {error}");
    }
}

fn the_latency_of_all_curves_fits_its_schema() {
    let page = format!("{}/latency.html", env!("CARGO_TARGET_TMPDIR"));
    let short = ["latency", "--rounds", "1", "--time", "2ms", "--loads", "50,95"];
    let args = [&short[..], &["--json", "--html", &page]].concat();
    let document = parse(&good(&bench(&args)));
    let schema = crate::common::json(["schema", "bench-latency"]);
    let faults = crate::schema::faults(&document, &schema);
    assert!(faults.is_empty(), "{faults:?}");
    let curves = document["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 6, "two numbers of cores, three orders");
    assert!(curves.iter().all(|curve| curve["points"].as_array().unwrap().len() == 2));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("99.9th percentile") && page.contains("2 cores, ordered"));
}

/// Also where DPDK is not installed: what is missing is reported, and there is nothing to record.
fn the_engine_beside_what_is_installed_becomes_a_line_of_the_record() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let (result, record) = (format!("{folder}/engine.json"), format!("{folder}/history.jsonl"));
    let _none = std::fs::remove_file(&record);
    let nothing = format!("{folder}/no-programs");
    std::fs::create_dir_all(&nothing).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowyard"))
        .args(["bench", "engine", "--rounds", "1", "--time", "1ms", "--peers", "--json"])
        .env("PATH", nothing) // no peers there
        .output()
        .unwrap();
    let text = good(&output);
    let document = parse(&text);
    let schema = crate::common::json(["schema", "bench-engine"]);
    let faults = crate::schema::faults(&document, &schema);
    assert!(faults.is_empty(), "{faults:?}");
    let missing = document["peers"]["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 2, "{missing:?}");
    let flows = |walk: &Value| (walk["name"].clone(), walk["source"].clone());
    let walks: Vec<_> = document["walks"].as_array().unwrap().iter().map(flows).collect();
    assert!(walks.contains(&("hash (RSS)".into(), "in order".into())), "{walks:?}");
    std::fs::write(&result, &text).unwrap();
    let refused = bench(&["history", &record, "--add", &result]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("tests/bench/l3fwd"), "{why}");
    // The same with a ratio.
    let ratio = serde_json::json!({
        "flowyard": "a", "peer": "b", "ratio": 1.5, "least": 1.0, "most": 2.0, "rounds": 5
    });
    let mut document = document;
    document["peers"]["ratios"] = serde_json::json!([ratio]);
    std::fs::write(&result, document.to_string()).unwrap();
    for lines in 1..3 {
        let args = ["history", &record, "--add", &result, "--note", "a test", "--json"];
        let history = parse(&good(&bench(&args)));
        let schema = crate::common::json(["schema", "bench-history"]);
        let faults = crate::schema::faults(&history, &schema);
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(history["entries"].as_array().unwrap().len(), lines);
    }
    // The largest file that this process may write replaces a full disk.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let unwritten = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_flowyard"), "bench"])
        .args(["history", &record, "--add", &result, "--json"])
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&unwritten.stderr);
    assert_eq!(unwritten.status.code(), Some(1), "{why}");
    assert!(why.contains("history.jsonl: cannot write the record: "), "{why}");
    let printed = parse(&String::from_utf8_lossy(&unwritten.stdout));
    assert_eq!(printed["entries"].as_array().unwrap().len(), 3, "also the one that was not added");
    let shown = good(&bench(&["history", &record]));
    assert!(shown.contains("1.50"), "{shown}");
}
