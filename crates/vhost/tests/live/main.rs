//! `flowyard run` with ports of kind `vhost_user` and programs of others: QEMU's guests and DPDK's
//! virtio-user.
//!
//! ```text
//! cargo build --release -p flowyard-cli
//! FLOWYARD_LIVE=1 cargo test -p flowyard-vhost --test live -- --nocapture --test-threads 1
//! ```
//!
//! `FLOWYARD_BINARY` names another build of the command than `target/release/flowyard`; `FLOWYARD_ROUNDS`
//! another number of kills than 10. Each fifth of them is one of a guest, or each one with the number that
//! `FLOWYARD_GUESTS` gives.

mod guests;
mod testpmd;
mod yard;

use flowyard_testkit::harness::Need;

flowyard_testkit::tests! {
    mod guests needs [
        Need::Live,
        Need::Namespaces,
        Need::Program("qemu-system-x86_64"),
        Need::Program("busybox"),
        Need::Program("ethtool"),
        Need::Program("iperf3"),
        Need::Program("ip"),
        Need::Program("ldd"),
        Need::Program("dpkg"),
        Need::Check(yard::has_binary),
        Need::Check(guests::has_kernel),
    ],
    mod testpmd needs [
        Need::Live,
        Need::Root,
        Need::Program("dpdk-testpmd"),
        Need::Program("stdbuf"),
        Need::Check(yard::has_binary),
    ],
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}

/// How often something is killed.
fn rounds() -> usize {
    number_of("FLOWYARD_ROUNDS", 10)
}

/// A number of the environment, which is not 0.
fn number_of(name: &str, default: usize) -> usize {
    let value = std::env::var(name).ok().and_then(|text| text.parse().ok());
    value.filter(|value| *value > 0).unwrap_or(default)
}

/// Nanoseconds since a moment in the past.
#[allow(clippy::disallowed_methods, reason = "live tests use the real clock")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
