//! The command on real interfaces in network namespaces that the tests make: `flowyard run`, the load
//! balancer, `flowyard bench`.
//!
//! `FLOWYARD_BINARY` names another build of the command than the one beside the tests; with `FLOWYARD_LIVE=0`
//! these tests are ignored.
//!
//! Tests wait for events, not for times. Their deadlines are far longer than any machine takes.

mod balance;
mod bench;
mod run;
mod yard;

use flowyard_testkit::harness::Need;

/// What all live tests need.
const LIVE: [Need; 7] = [
    Need::Live,
    Need::Namespaces,
    Need::Program("ip"),
    Need::Program("ethtool"),
    Need::Program("ping"),
    Need::Program("nstat"),
    Need::Program("ss"),
];

/// [`LIVE`] and `more`.
const fn live_and<const N: usize, const ALL: usize>(more: [Need; N]) -> [Need; ALL] {
    assert!(LIVE.len() + N == ALL);
    let mut all = [Need::Live; ALL];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < LIVE.len() { LIVE[at] } else { more[at - LIVE.len()] };
        at += 1;
    }
    all
}

flowyard_testkit::tests! {
    mod balance,
    mod bench,
    mod run,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
