//! `flowyard bench`: the methods under virtual time, state files, comparisons, and bad words.

mod common;

use common::{good, run};
use serde_json::Value;

/// Short: one size, trials of a second.
const SHORT: [&str; 7] = ["--sizes", "1518", "--trial", "1s", "--short", "200ms", "--json"];

fn bench(args: &[&str]) -> std::process::Output {
    run([&["bench"], args].concat())
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn throughput(text: &str) -> f64 {
    let answer = &parse(text)["results"]["sizes"][0]["throughput"];
    assert_eq!(answer["counts"]["sent"], answer["counts"]["good"], "throughput is without loss");
    1e12 / answer["load"]["interval_ps"].as_f64().unwrap()
}

#[test]
fn a_run_is_repeatable_resumable_and_comparable() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lanner = |cost: &str, more: &[&str]| {
        let args = [&["lanner", "--frame-cost", cost][..], &SHORT, more].concat();
        good(&bench(&args))
    };
    let state = file("state");
    // What the machine was doing is not the device's.
    let results = |text: &str| parse(text)["results"].clone();
    let first = lanner("900us", &["--state", &state]);
    assert_eq!(results(&first), results(&lanner("900us", &[])));

    // As if it had been killed in the middle of a line.
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
    let ratio = both["sizes"][0]["ratio"].as_f64().unwrap();
    assert!((ratio - throughput(&first) / throughput(&slow)).abs() < 1e-9, "{ratio}");
}

#[test]
fn the_tester_qualifies_and_a_soak_is_long() {
    let text = good(&bench(&["qualify", "--seeds", "2", "--json"]));
    assert_eq!(parse(&text)["holds"], true);
    let soak = good(&bench(&["soak", "--sizes", "1518", "--json"]));
    let result = &parse(&soak)["results"]["sizes"][0]["soak"];
    // 14 hours at 40 % of 812.7 frames a second, both ways.
    let sent = result["counts"]["sent"].as_u64().unwrap();
    assert!((32_769_000..32_771_000).contains(&sent), "{sent}");
    assert_eq!(result["counts"]["good"], sent);
    assert!(result["repeated_frames"].as_u64().unwrap() > sent * 9 / 10);
}

#[test]
fn bad_words_are_answered_with_the_mend() {
    for (args, mend) in [
        (&["rfc2544", "--sizes", "63"][..], "imix"),
        (&["rfc2544", "--line", "fast"], "such as 10M"),
        (&["rfc2544", "--topology", "mesh"], "--bridge"),
        (&["rfc2544", "--ports", "3"], "even"),
        (&["rfc2544", "--mix", "zipf:x"], "exponent"),
        (&["rfc2544", "--mix", "nothing"], "agh-2015"),
        (&["rfc2544", "--cores", "0"], "1 to 16"),
        (&["rfc2544", "--trial", "0s"], "1ms"),
        (&["compare", "Cargo.toml", "Cargo.toml"], "--json"),
        (&["compare", "nowhere", "nowhere"], "nowhere"),
        (&["qualify", "--seeds", "0"], "10000"),
    ] {
        let output = bench(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(mend) && error.lines().count() == 1, "{args:?}: {error}");
    }
}
