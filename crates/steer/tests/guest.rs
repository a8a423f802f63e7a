//! The programs on another kernel: Debian's, in a virtual machine. Its verifier accepts them, and their decisions are
//! equal to the model's there, too.
//!
//! These tests run with `FLOWYARD_LIVE=1` only; docs/guest.md describes how to run them.

use std::path::{Path, PathBuf};

use flowyard_livekit::guest::{self, Guest, Image};
use flowyard_steer::{Error, Follow, Policy, Program};
use flowyard_testkit::harness::{self, Need};
use flowyard_testkit::note;

mod equal;
mod generate;

flowyard_testkit::tests! {
    another_kernel_accepts_and_decides_equally needs [
        Need::Live,
        Need::Namespaces,
        Need::Program("qemu-system-x86_64"),
        Need::Program("busybox"),
        Need::Program("ethtool"),
        Need::Program("ip"),
        Need::Program("ldd"),
        Need::Program("dpkg"),
        Need::Check(has_kernel),
    ],
    attaches on_demand "started by another test",
    mod equal needs [Need::Check(is_in_guest)],
}

fn main() -> std::process::ExitCode {
    harness::run(tests())
}

/// The folder of the kernel and of the images.
fn cache() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn has_kernel() -> Result<(), String> {
    // Without permission to take minutes, nothing is downloaded.
    if std::env::var_os("FLOWYARD_LIVE").is_none() {
        Ok(())
    } else {
        guest::kernel(&cache()).map(drop)
    }
}

/// The tests of equality run here only in the guest; outside they are in the program `main`.
fn is_in_guest() -> Result<(), String> {
    match std::env::var_os("FLOWYARD_FRAMES") {
        Some(_) => Ok(()),
        None => Err("FLOWYARD_LIVE=1, which permits live tests".to_owned()),
    }
}

/// This program is in the guest, where it runs the other tests.
fn another_kernel_accepts_and_decides_equally() {
    let kernel = guest::kernel(&cache()).unwrap();
    let own = std::env::current_exe().unwrap();
    let image = Image::new(&cache(), &kernel, &[("steer-test", &own)]);
    let mut guest = Guest::boot(&image);
    image.delete();
    note!("{}", guest.run("uname -r").1.trim());
    for line in [
        "FLOWYARD_STEER=eth0 steer-test --ignored --exact attaches --nocapture",
        "FLOWYARD_FRAMES=3000 steer-test --exact equal::generated_frames_have_equal_decisions --nocapture",
    ] {
        let (status, said) = guest.run(line);
        note!("{said}");
        assert!(status == 0 && said.contains("1 passed"), "{line}: {said}");
    }
}

/// Every kind of policy on the interface that the environment names.
fn attaches() {
    let interface = std::env::var("FLOWYARD_STEER").unwrap();
    for follow in [None, Some(Follow::Readers), Some(Follow::Senders { sample: 20 })] {
        let policy = Policy { follow, ..Policy::over(&[0, 1]) };
        let mut program = Program::load(&policy, 64).unwrap();
        program.watch_rings().unwrap();
        match program.attach(&interface) {
            Ok(attached) => note!("{follow:?}: {attached:?}"),
            // Links at egress are newer than other links.
            Err(error @ Error::Learner { .. })
                if matches!(follow, Some(Follow::Senders { .. })) =>
            {
                note!("{follow:?}: {error}");
            }
            Err(error) => panic!("{follow:?}: {error}"),
        }
    }
}
