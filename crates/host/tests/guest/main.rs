//! flowyard and ethtool in a virtual machine whose adapter has RSS: QEMU's virtio-net, an independent implementation.
//!
//! These tests run with `FLOWYARD_LIVE=1` only: each boots a guest, which takes half a minute. Debian's kernel is
//! downloaded once, below the target folder. docs/guest.md describes how to run them.

mod flowyard;
mod proof;
mod rebalance;
mod rss;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flowyard_livekit::guest;
use flowyard_testkit::harness::Need;

const GUEST: [Need; 9] = [
    Need::Live,
    Need::Namespaces,
    Need::Program("qemu-system-x86_64"),
    Need::Program("busybox"),
    Need::Program("ethtool"),
    Need::Program("ip"),
    Need::Program("ldd"),
    Need::Program("dpkg"),
    Need::Check(has_kernel),
];

/// A guest, and the command in it.
const COMMAND: [Need; 10] = {
    let mut all = [Need::Check(has_command); 10];
    let mut at = 0;
    while at < GUEST.len() {
        all[at] = GUEST[at];
        at += 1;
    }
    all
};

flowyard_testkit::tests! {
    mod flowyard needs COMMAND,
    mod proof needs COMMAND,
    mod rebalance needs COMMAND,
    mod rss needs GUEST,
}

/// How often a test repeats what it tests: `full` times, or `quick` times with `FLOWYARD_GUEST_QUICK=1`, as in CI.
fn rounds(full: usize, quick: usize) -> usize {
    if std::env::var_os("FLOWYARD_GUEST_QUICK").is_some() { quick } else { full }
}

/// The folder of the kernel and of the images.
fn cache() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The kernel, which is downloaded the first time.
fn kernel() -> Result<PathBuf, String> {
    static KERNEL: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    KERNEL.get_or_init(|| guest::kernel(&cache())).clone()
}

fn has_kernel() -> Result<(), String> {
    // Without permission to take minutes, nothing is downloaded.
    if std::env::var_os("FLOWYARD_LIVE").is_none() { Ok(()) } else { kernel().map(drop) }
}

fn has_command() -> Result<(), String> {
    flowyard::binary().map(drop)
}

fn main() -> std::process::ExitCode {
    // The test program itself is what receives in the guest.
    if std::env::args().nth(1).as_deref() == Some("receive") {
        rebalance::receive();
    }
    flowyard_testkit::harness::run(tests())
}
