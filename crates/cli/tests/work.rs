//! `flowyard run` on threads with the kinds of work that copy and rewrite frames.

mod common;

use common::run;
use serde_json::Value;

/// The books of a run of `file`.
fn books(file: &str) -> Value {
    let output = run(["run", file, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{file}: {output:?}");
    let books: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&books["balanced"], &books["held"]), (&true.into(), &0.into()), "{books:#}");
    books
}

#[test]
fn a_bridge_copies_and_its_books_balance() {
    let books = books("scenarios/bridge-ordered.toml");
    let total = &books["total"];
    let frames = ["rx_frames", "copies", "tx_frames"].map(|name| total[name].as_u64());
    assert_eq!(frames, [Some(500), Some(500), Some(1000)], "{books:#}");
    let text = run(["run", "scenarios/bridge-ordered.toml"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.starts_with("500 frames in, 500 copied, 1,000 out, 0 dropped, 0 held"), "{text}");
}

#[test]
fn a_router_says_what_it_dropped() {
    let books = books("scenarios/route-not-ip.toml");
    let drops = &books["total"]["drops"];
    let frames = ["not_ip", "malformed", "filtered"].map(|name| drops[name].as_u64());
    assert_eq!(frames, [Some(5), Some(4), Some(1)], "{books:#}");
    assert_eq!(books["total"]["tx_frames"], 1);
}
