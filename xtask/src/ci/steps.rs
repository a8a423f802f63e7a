//! The steps of CI, in the order in which they run. Each is short: it names the command.

use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use super::Ci;
use super::results::{self, Expected, Machine, Totals, run_tests};
use crate::bpf as programs;
use crate::firmware as images;
use crate::shell::{self, run, say, tee};

pub(super) const CAPTURE: &str = "captures/yard.pcap";

/// Prints the versions. `rust-toolchain.toml` names the version; rustup downloads it if necessary.
pub(super) fn toolchain(ci: &mut Ci) -> Result<()> {
    run(ci.command("rustc").arg("--version"))?;
    run(&mut ci.cargo("--version"))
}

pub(super) fn fmt(ci: &mut Ci) -> Result<()> {
    run(&mut ci.cargo("fmt --all --check"))
}

pub(super) fn tidy(_: &mut Ci) -> Result<()> {
    crate::tidy::run(false)
}

pub(super) fn clippy(ci: &mut Ci) -> Result<()> {
    run(&mut ci.cargo("clippy --workspace --all-targets -- -D warnings"))
}

/// All tests but the live tests, which step `live` runs. A test that is ignored for a
/// reason which `.ci/expected-ignored` does not list, or not for this machine, fails the step.
pub(super) fn tests(ci: &mut Ci) -> Result<()> {
    let expected = Expected::read(&ci.root.join(".ci/expected-ignored"))?;
    let printed = tee(ci.limited_cargo("test --workspace").env("FLOWYARD_LIVE", "0"))?;
    let totals = Totals::read(&printed.text);
    say(&totals.to_string());
    let (machine, mut unexpected) = (Machine::here(), 0);
    for (reason, names) in results::ignored(&printed.text) {
        let is_expected = expected.permits(reason, &machine);
        let reason = if reason.is_empty() { "no reason given" } else { reason };
        let mark = if is_expected { "" } else { "UNEXPECTED: " };
        say(&format!("{mark}{} ignored ({reason}): {}", names.len(), names.join(", ")));
        unexpected += if is_expected { 0 } else { names.len() };
        if is_expected {
            ci.skip_quietly(&format!("{} tests: {reason}", names.len()));
        }
    }
    let passed = totals.passed;
    ci.totals = Some(totals);
    printed.checked()?;
    if passed == 0 {
        bail!("no test was run");
    }
    if unexpected > 0 {
        bail!(
            "{unexpected} tests were ignored for a reason that .ci/expected-ignored does not permit"
        );
    }
    Ok(())
}

/// The whole engine under seeds that were never tried before. A failure prints its seed and the
/// command that repeats it. The fixed seeds are among the tests.
pub(super) fn fresh(ci: &mut Ci) -> Result<()> {
    // The same packages as in step `tests`, so that nothing is built again.
    let mut command = ci.cargo("test --workspace --test main sim::every_seed -- --nocapture");
    run_tests(command.env("FLOWYARD_FIRST_SEED", seed()?).env("FLOWYARD_SEEDS", "2000")).map(drop)
}

#[allow(clippy::disallowed_methods, reason = "the time is a seed that no earlier run has used")]
fn seed() -> Result<String> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string())
}

/// The queues, and the rings of guests, under every order of events that the model checker finds.
pub(super) fn loom(ci: &mut Ci) -> Result<()> {
    // Its own target folder: with other RUSTFLAGS everything would be built again.
    let mut command =
        ci.cargo("test --release -p flowyard-queue -p flowyard-flow -p flowyard-vhost -p flowyard-ipsec --test loom");
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom");
    run_tests(&mut command).map(drop)
}

/// Pool, ring, done bits and pins under Miri: undefined behaviour, leaks and data races.
pub(super) fn miri(ci: &mut Ci) -> Result<()> {
    if !ci.has_nightly() {
        return ci.skip("no nightly toolchain (rustup toolchain install nightly)");
    }
    let mut add = ci.command("rustup");
    add.args("component add --toolchain nightly miri rust-src".split(' '));
    let added = add.stdout(Stdio::null()).output()?;
    if !added.status.success() {
        let text = String::from_utf8_lossy(&added.stderr);
        let last = text.lines().last().unwrap_or_default();
        return ci.skip(&format!("the nightly toolchain has no miri: {last}"));
    }
    ci.start_fuzz_build()?; // Miri uses one thread, so there is a processor for it
    let all = [
        // The model of DLB has no unsafe code, and its tests would take minutes here.
        "-p flowyard-queue --lib -- --skip dlb::",
        "-p flowyard-queue --test main threads::",
        "-p flowyard-pool --lib",
    ];
    for tests in all {
        let mut command = ci.cargo(&format!("+nightly miri test {tests}"));
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
        run_tests(command.env("CARGO_TARGET_DIR", "target/miri"))?;
    }
    Ok(())
}

pub(super) fn doc(ci: &mut Ci) -> Result<()> {
    run(ci.cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
}

/// The command that the README shows first.
pub(super) fn analyze(ci: &mut Ci) -> Result<()> {
    let report = shell::output(&mut ci.cargo(&format!("run --release -- analyze {CAPTURE}")))?;
    say(report.trim_end());
    if report.trim().is_empty() {
        bail!("analyze printed nothing for {CAPTURE}");
    }
    Ok(())
}

/// The engine on real threads, as in the README.
pub(super) fn forward(ci: &mut Ci) -> Result<()> {
    for config in ["forward", "switch", "balance"] {
        run(&mut ci.cargo(&format!("run --release -- run docs/examples/{config}.toml")))?;
    }
    Ok(())
}

/// The commands of the documentation, in a fresh clone.
pub(super) fn docs(ci: &mut Ci) -> Result<()> {
    crate::docs::check(false)?.iter().for_each(|block| ci.skip_quietly(block));
    Ok(())
}

/// The committed firmware images are the build of their sources. The tools are installed if that is possible.
pub(super) fn firmware(ci: &mut Ci) -> Result<()> {
    if images::tools_are_here().is_err() && Machine::here().is_root {
        images::install_tools();
    }
    match images::tools_are_here() {
        Ok(()) => images::check(),
        Err(wanted) => ci.skip(&format!("{wanted} are not installed")),
    }
}

/// The committed programs for the kernel are what their sources give. The compiler is installed if that is possible.
pub(super) fn bpf(ci: &mut Ci) -> Result<()> {
    if programs::compiler_is_here().is_err() && Machine::here().is_root {
        programs::install_compiler();
    }
    match programs::compiler_is_here() {
        Ok(()) => programs::check(),
        Err(wanted) => ci.skip(&format!("{wanted} is not installed")),
    }
}

/// Simulated core cycles a second. The floor is 30 million; a slow machine is reported, not failed.
/// Live tests begin after this measurement, which is the only one.
pub(super) fn nicspeed(ci: &mut Ci) -> Result<()> {
    // The bench profile would build everything again, with optimisation across crates.
    let bench = "bench --profile release -p flowyard-nicsim --bench speed";
    let text = tee(&mut ci.cargo(bench))?.checked()?;
    let row = text.lines().find(|line| line.contains("Mitem/s")).unwrap_or_default();
    let rate = row.split_whitespace().nth(1).unwrap_or_default();
    let slow = rate.parse::<f64>().unwrap_or_default() < 30.0;
    let note = if slow { ": below the floor of 30" } else { "" };
    say(&format!("nicsim: {rate} million core cycles a second{note}"));
    ci.start_live()
}

pub(super) fn deny(ci: &mut Ci) -> Result<()> {
    if !ci.has_tool("deny") {
        return ci.skip("cargo-deny cannot be installed here");
    }
    run(&mut ci.cargo("deny check licenses bans sources"))?;
    // The advisory database is a git repository that not every network reaches.
    if std::env::var_os("CHECK_ADVISORIES").is_some_and(|value| !value.is_empty()) {
        run(&mut ci.cargo("deny check advisories"))
    } else {
        ci.skip("advisories (CHECK_ADVISORIES=1 fetches the database)")
    }
}
