//! The step `dpdk`: the feature `dpdk` is built, linted and tested where libdpdk is installed or can be installed.

use std::process::Command;

use anyhow::{Result, bail};

use super::Ci;
use super::results::{Machine, Totals, ignored};
use crate::shell::{self, run, say, tee};

/// What the feature needs, by the names of Debian.
const PACKAGES: [&str; 2] = ["libdpdk-dev", "pkg-config"];

/// Builds, lints and tests the crates that have the feature. The library is installed if that is possible. A test that
/// is ignored because DPDK cannot start here is listed as not run.
pub(super) fn dpdk(ci: &mut Ci) -> Result<()> {
    if !is_here() && Machine::here().is_root {
        install();
    }
    if !is_here() {
        return ci
            .skip(&format!("libdpdk 22.11 or later is not installed ({})", PACKAGES.join(", ")));
    }
    let crates = "-p flowyard-dpdk -p flowyard-ports -p flowyard-config -p flowyard-bench -p flowyard-operate";
    let features = "--features flowyard-dpdk/dpdk,flowyard-ports/dpdk,flowyard-config/dpdk,flowyard-bench/dpdk,\
                    flowyard-operate/dpdk";
    let mut clippy = ci.cargo(&format!("clippy {crates} {features} --all-targets -- -D warnings"));
    run(clippy.env("FLOWYARD_WERROR", "1"))?;
    run(&mut ci.cargo("check -p flowyard-cli --features dpdk"))?;
    let mut passed = 0;
    for tests in [
        "test -p flowyard-dpdk --features dpdk --test main",
        "test -p flowyard-config --features dpdk --test dpdk",
        "test -p flowyard-config --features dpdk --test main eventdev",
        "test -p flowyard-bench --features dpdk --lib eventdev",
        "test -p flowyard-bench --features dpdk --test eventdev",
    ] {
        // The memory and the devices of DPDK belong to a process, so its tests run one after another.
        let printed = tee(&mut ci.cargo(&format!("{tests} -- --test-threads=1")))?;
        for (reason, names) in ignored(&printed.text) {
            ci.skip_quietly(&format!("{} tests: {reason}", names.len()));
        }
        passed += Totals::read(&printed.text).passed;
        printed.checked()?;
    }
    if passed == 0 {
        bail!("no test of DPDK was run");
    }
    say(&format!("dpdk: {passed} tests passed"));
    Ok(())
}

/// Whether the library is installed.
pub(super) fn is_here() -> bool {
    let mut probe = Command::new("pkg-config");
    probe.args(["--atleast-version=22.11", "libdpdk"]);
    shell::in_path("pkg-config") && shell::succeeds(&mut probe)
}

/// Installs the library, if this is a Debian machine and the user may: about 150 MB.
fn install() -> bool {
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(PACKAGES);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    shell::in_path("apt-get") && shell::succeeds(&mut apt)
}
