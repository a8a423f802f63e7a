//! `flowyard predict`: curves, sensitivity, provenance, and wrong use.

use crate::common::{good, json, refused, run};
use serde_json::Value;

flowyard_testkit::tests! {
    a_server_has_a_curve_bars_and_the_source_of_every_input,
    the_adapter_and_the_queues_of_the_user_change_the_result,
    measured_costs_are_used_and_given_ones_before_them,
    the_engine_is_predicted_by_cores_and_by_load,
    wrong_use_is_refused_with_the_fix,
    a_limit_that_no_load_keeps_is_a_failure,
}

/// A small server, whose runs are short.
const SMALL: [&str; 4] = ["predict", "--machine=1x2x1", "--connections=20", "--json"];

fn with(args: &[&str]) -> Value {
    let value = json([&SMALL[..], args].concat());
    crate::schema::expect("predict", &value);
    value
}

fn input<'a>(value: &'a Value, name: &str) -> &'a Value {
    let inputs = value["prediction"]["inputs"].as_array().unwrap();
    inputs.iter().find(|input| input["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn capacity(value: &Value) -> f64 {
    assert_eq!(value["prediction"]["rows"][0]["name"], "capacity, requests/s");
    value["prediction"]["rows"][0]["value"].as_f64().unwrap()
}

fn a_server_has_a_curve_bars_and_the_source_of_every_input() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let value = with(&["--queues=1", "--html", page.to_str().unwrap()]);
    let points = value["prediction"]["curves"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), 11);
    assert!(points.iter().all(|point| point["latency"]["mean_us"].as_f64().unwrap() > 10.0));
    let inputs = value["prediction"]["inputs"].as_array().unwrap();
    for input in inputs {
        assert!(!input["source"].as_str().unwrap().is_empty(), "{input}");
    }
    assert_eq!(input(&value, "setup.queues")["how"], "given");
    assert_eq!(input(&value, "setup.threads")["how"], "assumed");
    assert_eq!(input(&value, "rose-city.cache_bytes")["how"], "published");
    assert_eq!(input(&value, "rose-city.stack_ns")["how"], "fitted");
    let effects = value["sensitivity"]["effects"].as_array().unwrap();
    assert_eq!(effects.len(), inputs.len());
    let size = |effect: &Value| {
        let sizes = effect["result"].as_array().unwrap().iter().filter_map(Value::as_f64);
        sizes.map(f64::abs).fold(0.0, f64::max)
    };
    let sizes: Vec<f64> = effects.iter().map(size).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] > 0.1, "{sizes:?}");
    // Half of one queue is one queue, and two are possible.
    let queues = effects.iter().find(|effect| effect["input"]["name"] == "setup.queues").unwrap();
    assert_eq!(queues["result"][0], 0.0);
    assert!(queues["result"][1].as_f64().unwrap() > 0.1, "{queues}");
    let page = std::fs::read_to_string(page).unwrap();
    for part in ["Change of", "Latency", "rose-city.stack_ns", "Which input moves the result"] {
        assert!(page.contains(part), "no '{part}' in the page");
    }
    let text = good(&run(SMALL[..3].iter().chain(&["--no-sensitivity"])));
    for part in ["capacity, requests/s", "setup.adapter", "Inputs: ", "assumed", "fitted: X520"] {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
}

fn the_adapter_and_the_queues_of_the_user_change_the_result() {
    let of = |args: &[&str]| capacity(&with(&[args, &["--no-sensitivity"]].concat()));
    let two = of(&["--steering=rss"]);
    assert!(of(&["--steering=rss", "--queues=1"]) < 0.9 * two, "one queue serves less");
    let off = with(&["--adapter=e810", "--itr=off", "--no-sensitivity"]);
    assert!(off["sensitivity"].is_null());
    let choices = off["prediction"]["choices"].as_array().unwrap();
    let of = |name: &str| choices.iter().find(|choice| choice["name"] == name).unwrap();
    assert_eq!((&of("adapter")["value"], &of("adapter")["how"]), (&"e810".into(), &"given".into()));
    assert_eq!(
        (&of("steering")["value"], &of("steering")["how"]),
        (&"rss".into(), &"assumed".into())
    );
    // Without moderation a request waits for no interrupt.
    let slow = with(&["--adapter=e810", "--itr=80us", "--no-sensitivity"]);
    let mean = |value: &Value| {
        value["prediction"]["curves"][0]["points"][0]["latency"]["mean_us"].as_f64().unwrap()
    };
    assert!(mean(&slow) > mean(&off) + 10.0, "{} {}", mean(&slow), mean(&off));
}

fn measured_costs_are_used_and_given_ones_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("here.toml");
    let text = "name = \"here\"\ntitle = \"x\"\n[machine]\nsockets = 1\ncores = 2\nthreads = 1\n\
                [constants]\n\
                memcached_request_ns = { value = 9000.0, how = \"measured\", source = \"y\" }\n\
                epoll_ns = { value = 700.0, how = \"measured\", source = \"y\" }\n";
    std::fs::write(&file, text).unwrap();
    let profile = format!("--profile={}", file.display());
    let of = |args: &[&str]| {
        let args = [&["predict", "--connections=20", "--no-sensitivity", "--json"], args].concat();
        json(args)
    };
    let (plain, slow) = (of(&["--machine=1x2x1"]), of(&[&profile]));
    assert_eq!(input(&slow, "here.memcached_request_ns")["how"], "measured");
    assert!(capacity(&slow) < 0.7 * capacity(&plain), "requests that take 9 us");
    let given = of(&[&profile, "--set", "request_ns=545ns"]);
    assert_eq!(input(&given, "given.request_ns")["value"], 545.0);
    assert_eq!(input(&given, "given.request_ns")["how"], "given");
    assert_eq!(input(&given, "here.epoll_ns")["value"], 700.0);
    assert!(capacity(&given) > 0.9 * capacity(&plain));
}

fn the_engine_is_predicted_by_cores_and_by_load() {
    let folder = tempfile::tempdir().unwrap();
    let (file, page) = (folder.path().join("here.toml"), folder.path().join("page.html"));
    let mut text = "name = \"here\"\ntitle = \"x\"\n[machine]\nsockets = 1\ncores = 2\nthreads = 1\n\
                    [constants]\nyard_rest_ns = { value = 0.0, how = \"measured\", source = \"y\" }\n"
        .to_owned();
    for prefix in ["yard", "yard_far"] {
        for stage in ["rx", "enqueue", "dequeue", "work", "complete", "tx"] {
            text += &format!(
                "{prefix}_{stage}_ns = {{ value = 10.0, how = \"measured\", source = \"y\" }}\n"
            );
        }
    }
    std::fs::write(&file, text).unwrap();
    let profile = format!("--profile={}", file.display());
    let args =
        ["predict", "--model=yard", &profile, "--threads=2", "--work=1us", "--json", "--html"];
    let value = json([&args[..], &[page.to_str().unwrap()]].concat());
    crate::schema::expect("predict", &value);
    let curves = value["prediction"]["curves"].as_array().unwrap();
    assert_eq!(curves[0]["points"].as_array().unwrap().len(), 2);
    let one = curves[0]["points"][0]["rate"].as_f64().unwrap();
    assert!((one * 1060e-9 - 1.0).abs() < 0.02, "1,060 ns for a frame: {one}");
    // Two more cores double the rate; the work is nearly all of a frame's cost, so half of it does nearly the same.
    let effects = value["sensitivity"]["effects"].as_array().unwrap();
    assert_eq!(effects[0]["input"]["name"], "setup.cores");
    assert_eq!(effects[1]["input"]["name"], "setup.work_ns");
    assert!((0.8..1.0).contains(&effects[1]["result"][0].as_f64().unwrap()), "{}", effects[1]);
    assert!(std::fs::read_to_string(page).unwrap().contains("By number of cores"));
    let told = refused(&run(["predict", "--model=yard"]));
    assert!(told.contains("flowyard calibrate --output"), "{told}");
}

fn wrong_use_is_refused_with_the_fix() {
    for (args, fix) in [
        (&["--adapter=x521"][..], "choose one of"),
        (&["--steering=arfs"], "rfs"),
        (&["--adapter=e810", "--steering=atr"], "choose rss, rps or rfs"),
        (&["--queues=65"], "--queues: 65 is not possible; choose 1 to 32"),
        (&["--connections=2000000"], "choose 1 to 1000000"),
        (&["--threads=0"], "at least 1"),
        (&["--set=stack=5"], "stack_ns"),
        (&["--set=stack_ns=fast"], "2us"),
        (&["--machine=2x8"], "2x8x2"),
        (&["--itr=5"], "50us"),
        (&["--work=1us"], "--model yard"),
        (&["--model=yard", "--queues=2"], "--model server"),
        (&["--profile=no-such-file.toml"], "flowyard calibrate"),
    ] {
        let told = refused(&run([&["predict"], args].concat()));
        assert!(told.contains(fix), "{args:?}: {told}");
    }
}

fn a_limit_that_no_load_keeps_is_a_failure() {
    let output = run([&SMALL[..], &["--latency=5us"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("limit of 5.0 us") && told.contains("--latency"), "{told}");
}
