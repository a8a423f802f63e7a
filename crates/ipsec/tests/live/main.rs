//! `flowyard run` with `kind = "ipsec"` against the IPsec of another implementation: the kernel of a QEMU guest.
//!
//! ```text
//!  client ── veth ── flowyard ── TAP ── guest: esp4, esp6
//! ```
//!
//! ```text
//! cargo build --release -p flowyard-cli
//! FLOWYARD_LIVE=1 cargo test -p flowyard-ipsec --test live -- --nocapture --test-threads 1
//! ```
//!
//! `FLOWYARD_BINARY` names another build of the command than `target/release/flowyard`.

mod guests;
mod yard;

use flowyard_testkit::harness::Need;

flowyard_testkit::tests! {
    mod guests needs [
        Need::Live,
        Need::Namespaces,
        Need::Program("qemu-system-x86_64"),
        Need::Program("busybox"),
        Need::Program("ethtool"),
        Need::Program("ip"),
        Need::Program("ldd"),
        Need::Program("dpkg"),
        Need::Check(yard::has_binary),
        Need::Check(guests::has_kernel),
    ],
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
