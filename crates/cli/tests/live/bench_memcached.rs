//! `flowyard bench memcached`: short measurements. What they conclude depends on the machine; that each request gets its
//! answer does not.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

flowyard_testkit::tests! {
    each_request_gets_its_answer_by_every_way,
    the_model_is_beside_the_kernels_ways,
    an_earlier_measurement_is_beside_this_one,
    without_memcached_nothing_is_measured,
    nothing_is_left_behind,
}

fn flowyard() -> Command {
    let built = env!("CARGO_BIN_EXE_flowyard").into();
    Command::new(std::env::var_os("FLOWYARD_BINARY").unwrap_or(built))
}

fn bench(args: &[&str], path: Option<&str>) -> Output {
    let mut command = flowyard();
    command.args(["bench", "memcached", "--quick"]).args(args).stdin(Stdio::null());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().unwrap()
}

fn measured(args: &[&str]) -> Value {
    let output = bench(&[args, &["--json"]].concat(), None);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "flowyard.bench-memcached/1");
    document
}

/// Conservation: requests are answered once each, with the bytes that were stored. The command fails otherwise; the
/// counters say so, too.
fn each_request_gets_its_answer_by_every_way() {
    // Any latency holds, so that each way has both rates on every machine.
    let document = measured(&["--sets", "20", "--latency", "1h", "--keys", "2000"]);
    let ways = document["ways"].as_array().unwrap();
    let names: Vec<_> = ways.iter().map(|way| way["way"].as_str().unwrap()).collect();
    let all = [
        "none",
        "rps",
        "rfs",
        "yard-hash",
        "yard-atr",
        "yard-rfs",
        "tap-hash",
        "tap-atr",
        "tap-rfs",
    ];
    assert_eq!(names, all);
    for way in ways {
        let of = |key: &str| way[key].as_u64().unwrap();
        assert_eq!(of("requests"), of("answered"), "{way}");
        assert!(of("sets") > 0 && of("sets") < of("requests"), "{way}");
        let points = way["points"].as_array().unwrap();
        assert!(!points.is_empty(), "{way}");
        for point in points {
            let median = |key: &str| point[key]["median"].as_f64().unwrap();
            let quantiles = ["p50_ns", "p99_ns", "p999_ns"].map(median);
            assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{point}");
            assert!((0.0..=1.0).contains(&median("local_share")), "{point}");
        }
    }
}

/// Each pair of ways is in the order, and a document is compared with itself without a difference. `atr` is compared with the
/// hash at both rates. Which of them is better depends on the machine.
fn an_earlier_measurement_is_beside_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("earlier.json");
    let ways = ["--ways", "none,tap-hash,tap-atr", "--latency", "1h"];
    let earlier = measured(&ways);
    assert!(earlier["against"].is_null());
    let order = earlier["order"].as_array().unwrap();
    assert_eq!(order.len(), 3);
    assert!(
        order.iter().all(|pair| pair["differs"] == false),
        "one round shows nothing: {order:?}"
    );
    let locality = &earlier["locality"][0];
    assert_eq!(
        (&locality["by_hash"], &locality["by_atr"]),
        (&"tap-hash".into(), &"tap-atr".into())
    );
    let points = locality["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for point in points {
        assert!((-1.0..=1.0).contains(&point["local_share"].as_f64().unwrap()), "{point}");
        assert!(point["predicted_cpu_saved_ns"].is_null());
    }
    std::fs::write(&file, earlier.to_string()).unwrap();
    let file = file.display().to_string();
    let document = measured(&[&ways[..], &["--against", &file]].concat());
    assert_eq!(document["against"]["date"], earlier["date"]);
    assert_eq!(document["against"]["reversed"], serde_json::json!([]));
    let refused = bench(&["--against", "/dev/null"], None);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is no document of"));
}

/// `flowyard calibrate` measures every cost that the model reads. The model has the rates of the measurement, and the yard
/// is not modelled. Whether they agree depends on the machine.
fn the_model_is_beside_the_kernels_ways() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("here.toml").display().to_string();
    let args = ["calibrate", "--rounds", "1", "--time", "1ms", "--force", "--output", &profile];
    let output = flowyard().args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = measured(&["--ways", "rps,yard-hash", "--profile", &profile, "--latency", "1h"]);
    let model = &document["model"];
    let inputs = model["inputs"].as_array().unwrap();
    let names: Vec<_> = inputs.iter().map(|input| input["name"].as_str().unwrap()).collect();
    for name in ["here.fair_slice_ns", "here.ppoll_armed_ns", "here.memcached_keys_ns"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(model["not_modelled"], serde_json::json!(["yard-hash"]));
    let ways = model["ways"].as_array().unwrap();
    assert_eq!((ways.len(), ways[0]["way"].as_str()), (1, Some("rps")));
    let rates = |way: &Value| {
        let points = way["points"].as_array().unwrap();
        points.iter().map(|point| point["offered_rps"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(rates(&ways[0]), rates(&document["ways"][0]));
    // Every rate holds at this limit, measured and predicted.
    assert_eq!(ways[0]["wall_found"], false);
    assert_eq!(ways[0]["overlaps"], true, "{document}");
    let without = measured(&["--ways", "none", "--keys", "100"]);
    assert!(without["model"].is_null());
    // As text and as a page, with a sentence for each way.
    let page = folder.path().join("page.html").display().to_string();
    let ways = ["--ways", "none,tap-hash", "--keys", "100", "--latency", "1h"];
    let output = bench(&[&ways[..], &["--profile", &profile, "--html", &page]].concat(), None);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for text in [text, std::fs::read_to_string(page).unwrap()] {
        assert!(text.contains("The model beside the measurement"), "{text}");
        assert!(text.contains("kernel, none: the measured wall, at least "), "{text}");
        assert!(text.contains(" overlaps what the model predicts, at least "), "{text}");
        assert!(text.contains("yard and TAP, hash: not modelled."), "{text}");
    }
}

fn without_memcached_nothing_is_measured() {
    // The other programs that the measurement needs are in a folder of links; memcached is not.
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for program in ["ip", "unshare", "nsenter", "mount", "setpriv", "ethtool"] {
        let found = std::env::split_paths(&path).map(|at| at.join(program)).find(|at| at.is_file());
        std::os::unix::fs::symlink(found.unwrap(), folder.path().join(program)).unwrap();
    }
    let output = bench(&[], Some(folder.path().to_str().unwrap()));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("memcached is missing; install the package memcached"), "{error}");
    assert!(output.stdout.is_empty());
}

/// The processes that the measurement starts end with it, and with them its namespaces.
fn nothing_is_left_behind() {
    let built = env!("CARGO_BIN_EXE_flowyard").into();
    let binary = std::env::var_os("FLOWYARD_BINARY").unwrap_or(built);
    let args = ["bench", "memcached", "--quick", "--ways", "tap-atr", "--keys", "100", "--json"];
    let child = Command::new(binary)
        .args(args)
        .env("FLOWYARD_TEST_MARK", std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Processes inherit the environment, also those that nsenter starts.
    let mark = format!("FLOWYARD_TEST_MARK={}", std::process::id());
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let left: Vec<_> = all
        .filter(|process| {
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        })
        .map(|process| process.path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
