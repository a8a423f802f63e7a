//! The step `dpdk`: the feature `dpdk` is built, linted and tested where libdpdk is installed or can be installed.

use std::process::Command;

use anyhow::Result;

use super::Ci;
use super::results::{Machine, Totals, ignored, run_tests};
use crate::shell::{self, run, say};

/// What the feature needs, by the names of Debian.
const PACKAGES: [&str; 2] = ["libdpdk-dev", "pkg-config"];

/// The crates with tests of the feature, and the feature of each. All commands name the same crates, because cargo would
/// build those that they share again for another selection.
const TESTED: &str = "-p flowyard-dpdk -p flowyard-config -p flowyard-bench";
const FEATURES: &str = "flowyard-dpdk/dpdk,flowyard-config/dpdk,flowyard-bench/dpdk";

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
    let mut clippy = ci.cargo(&format!(
        "clippy {TESTED} -p flowyard-ports -p flowyard-operate -p flowyard-cli --features \
         {FEATURES},flowyard-ports/dpdk,flowyard-operate/dpdk,flowyard-cli/dpdk --all-targets -- -D warnings"
    ));
    run(clippy.env("FLOWYARD_WERROR", "1"))?;
    let mut passed = 0;
    for tests in
        ["--test virtual_devices", "--test dpdk", "--test eventdev", "--test main eventdev"]
    {
        // The memory and the devices of DPDK belong to a process, so its tests run one after another.
        let tests = format!("test {TESTED} --features {FEATURES} {tests} -- --test-threads=1");
        let text = run_tests(&mut ci.cargo(&tests))?;
        for (reason, names) in ignored(&text) {
            ci.skip_quietly(&format!("{} tests: {reason}", names.len()));
        }
        passed += Totals::read(&text).passed;
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
