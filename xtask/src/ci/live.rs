//! The steps that use real interfaces, in network namespaces of their own.
//!
//! ```text
//!  ... docs ─ nicspeed ─┬─ fresh ─ loom ─ miri ─ doc ─ ... ─ fuzz ─┬─ live: prints the log, fails if these failed
//!                       └─ xtask ci live conformance ──> log ──────┘
//! ```

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command};

use anyhow::{Context, Result, bail, ensure};

use super::Ci;
use super::results::{self, Expected, Machine, run_tests};
use crate::shell::{self, run, say, tee};

/// The programs that a live test may run.
const TOOLS: [&str; 5] = ["ip", "ethtool", "ping", "nstat", "ss"];

/// The steps of this module, run by another process beside the other steps. It ends with this value.
pub(super) struct Beside {
    process: Child,
    log: PathBuf,
}

impl Ci {
    /// Starts the live steps beside those that follow, if they are chosen.
    pub(super) fn start_live(&mut self) -> Result<()> {
        let steps: Vec<&str> =
            ["live", "conformance"].into_iter().filter(|step| self.chosen.contains(step)).collect();
        if !steps.contains(&"live") {
            return Ok(());
        }
        let log = self.work.join("live");
        let file = File::create(&log)?;
        let program = std::env::current_exe()?;
        let mut command = self.command(&program.to_string_lossy());
        command.arg("ci").args(&steps).stdout(file.try_clone()?).stderr(file);
        say(&format!("started beside the next steps: {}", steps.join(", ")));
        self.live = Some(Beside { process: command.spawn()?, log });
        self.has_run_live = true;
        yield_processors();
        Ok(())
    }
}

/// Lowers the priority of this process and of the steps that follow. A live test waits most of the time, but its programs
/// have to answer while compilers use all processors.
fn yield_processors() {
    let id = std::process::id().to_string();
    if !shell::succeeds(Command::new("renice").args(["-n", "15", "-p", &id])) {
        say("the priority of the next steps was not lowered: renice failed");
    }
}

impl Beside {
    /// Waits for the steps, and prints what they printed.
    fn finish(mut self, ci: &mut Ci) -> Result<()> {
        let status = self.process.wait()?;
        let mut text = String::new();
        File::open(&self.log)?.read_to_string(&mut text).context("the log of the live steps")?;
        say(text.trim_end());
        // The summary of that process; the steps themselves print `SKIPPED: REASON` as well.
        let skipped = text.lines().filter_map(|line| line.strip_prefix("SKIPPED: "));
        let is_summary =
            |line: &&str| line.starts_with("live: ") || line.starts_with("conformance: ");
        ci.skipped.extend(skipped.filter(is_summary).map(str::to_owned));
        if !status.success() {
            bail!("the steps beside the others: {status}");
        }
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(Some(_))) {
            return;
        }
        // First what it runs, which would otherwise continue: `timeout` passes the signal on.
        let id = self.process.id().to_string();
        let _ = shell::succeeds(Command::new("pkill").args(["-TERM", "-P", &id]));
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The command, as it is released, on real interfaces and with real programs, in namespaces that the
/// tests make, and the engine alone on such interfaces. This needs root and a kernel that permits
/// network namespaces.
pub(super) fn live(ci: &mut Ci) -> Result<()> {
    if let Some(beside) = ci.live.take() {
        return beside.finish(ci);
    }
    let machine = Machine::here();
    if !machine.is_root {
        return ci.skip("not root, which network namespaces need");
    }
    if !machine.has_namespaces {
        return ci.skip("no network namespaces here");
    }
    if let Some(tool) = TOOLS.iter().find(|tool| !shell::in_path(tool)) {
        return ci.skip(&format!("no {tool}"));
    }
    run(&mut ci.cargo("build --release -p flowyard-cli"))?;
    // The same packages as in step `tests`: of one package alone they would be built again.
    let live = "test --workspace --test live --test interfaces";
    run(&mut ci.cargo(&format!("{live} --no-run")))?;
    let text = live_tests(ci, live)?;
    results::require_passed(live, &text)?;
    let expected = Expected::read(&ci.root.join(".ci/expected-ignored"))?;
    for (reason, names) in results::ignored(&text) {
        let names = names.join(", ");
        ensure!(
            !expected.contradicts(reason, &machine),
            "ignored ({reason}), which is here: {names}"
        );
    }
    // Unit tests that load BPF programs.
    run_tests(&mut ci.cargo("test --workspace --lib -- --ignored the_kernel_agrees")).map(drop)
}

/// flowyard in a virtual machine whose adapter has RSS. Tests whose requirements are missing are left out, with the
/// reason.
pub(super) fn guest(ci: &mut Ci) -> Result<()> {
    run(&mut ci.cargo("build --release -p flowyard-cli"))?;
    let guest = "test -p flowyard-host -p flowyard-steer --test guest";
    run(&mut ci.cargo(&format!("{guest} --no-run")))?;
    live_tests(ci, guest)?;
    if !super::dpdk::is_here() {
        return ci.skip("rules of net_tap: libdpdk is not installed");
    }
    let tap = "test -p flowyard-dpdk --features dpdk --test tap";
    run(&mut ci.cargo(&format!("{tap} --no-run")))?;
    live_tests(ci, tap).map(drop)
}

/// Runs `cargo` with these arguments, and the tests that need interfaces. Returns what it printed.
fn live_tests(ci: &mut Ci, arguments: &str) -> Result<String> {
    let mut command = ci.limited_cargo(arguments);
    command.args(["--", "--nocapture", "--test-threads", "1"]);
    command.env("FLOWYARD_LIVE", "1").env("FLOWYARD_GUEST_QUICK", "1");
    let printed = tee(command.env("FLOWYARD_BINARY", ci.root.join("target/release/flowyard")))?;
    let text = printed.checked()?;
    results::require_found(arguments, &text)?;
    let ignored = results::ignored(&text);
    let ignored = ignored.iter().map(|(why, names)| format!("{} tests: {why}", names.len()));
    let left_out = text.lines().filter(|line| line.starts_with("left out: ")).map(str::to_owned);
    ignored.chain(left_out).collect::<Vec<_>>().iter().try_for_each(|part| ci.skip(part))?;
    Ok(text)
}

/// The OpenFlow switch against os-ken's switch tester, live: the part of it that takes a minute.
pub(super) fn conformance(ci: &mut Ci) -> Result<()> {
    if ci.has_run_live {
        return Ok(()); // beside the other steps, and step `live` has printed it
    }
    run(&mut ci.cargo("build --release -p flowyard-cli"))?;
    let mut command = ci.command("tests/conformance/run");
    command.env("FLOWYARD_BINARY", ci.root.join("target/release/flowyard")).env("LIMIT", "300");
    let printed = tee(command.arg("fast"))?;
    if printed.code == Some(77) {
        let why = printed.text.lines().find_map(|line| line.strip_prefix("skipped: "));
        return ci.skip(why.unwrap_or("tests/conformance/run gives no reason"));
    }
    printed.checked().map(drop)
}
