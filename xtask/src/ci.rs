//! `cargo xtask ci`: the checks that a change must pass before it is merged, on any machine with
//! rustup and cargo.
//!
//! Each check is a step, a function in `steps`. The steps run in order and stop at the first failure.
//! A step that lacks a tool which it cannot install is skipped, and the last lines list what was
//! skipped, the time of each step and the totals of the tests.
//!
//! Live tests wait most of the time, so they run beside the steps after `nicspeed`, and are reported last.

mod dpdk;
mod fuzz;
mod live;
mod results;
mod steps;

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::shell::{self, say};

/// A check. It returns an error if it fails.
type Step = fn(&mut Ci) -> Result<()>;

/// Every step by name, in the order in which they run.
const STEPS: [(&str, Step); 21] = [
    ("toolchain", steps::toolchain),
    ("fmt", steps::fmt),
    ("tidy", steps::tidy),
    ("clippy", steps::clippy),
    ("tests", steps::tests),
    ("analyze", steps::analyze),
    ("forward", steps::forward),
    ("docs", steps::docs),
    ("nicspeed", steps::nicspeed),
    ("fresh", steps::fresh),
    ("loom", steps::loom),
    ("miri", steps::miri),
    ("doc", steps::doc),
    ("firmware", steps::firmware),
    ("bpf", steps::bpf),
    ("dpdk", dpdk::dpdk),
    ("deny", steps::deny),
    ("fuzz", fuzz::fuzz),
    ("live", live::live),
    ("conformance", live::conformance),
    ("guest", live::guest),
];

/// The seconds after which tests that have not ended are killed. On two processors that build other steps meanwhile, those
/// of a step take up to 15 minutes.
const HANG: &str = "2400";

/// Environment of every command of every step. The programs built here run once, so building them
/// fast matters more than their speed: no debug information, no optimisation across crates.
const ENVIRONMENT: [(&str, &str); 10] = [
    ("CI", "true"),
    ("CARGO_INCREMENTAL", "0"),
    ("CARGO_TERM_COLOR", "never"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_TEST_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_LTO", "off"),
    ("CARGO_PROFILE_TEST_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// A run of some steps.
struct Ci {
    root: PathBuf,
    /// A folder for files of this run, removed at the end.
    work: PathBuf,
    chosen: Vec<&'static str>,
    step: &'static str,
    skipped: Vec<String>,
    totals: Option<results::Totals>,
    /// The build of the fuzz targets, while Miri runs.
    fuzz_build: Option<Child>,
    /// The steps with live tests, while others run.
    live: Option<live::Beside>,
    has_run_live: bool,
}

/// Prints the names of the steps.
pub(crate) fn list() {
    STEPS.iter().for_each(|(name, _)| say(name));
}

/// Runs the named steps, or all, and prints the summary.
pub(crate) fn run(names: &[&str]) -> ExitCode {
    let mut chosen = Vec::new();
    for name in names {
        let Some(step) = STEPS.iter().find(|step| step.0 == *name) else {
            let all = STEPS.map(|step| step.0).join(" ");
            shell::complain(&format!("no step '{name}'; the steps are: {all}"));
            return ExitCode::from(2);
        };
        chosen.push(*step);
    }
    if chosen.is_empty() {
        chosen = STEPS.to_vec();
    }
    let began = clock();
    let mut ci = match Ci::new(chosen.iter().map(|step| step.0).collect()) {
        Ok(ci) => ci,
        Err(error) => {
            shell::complain(&format!("ci: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let mut took = Vec::new();
    let mut failure = None;
    for (name, step) in chosen {
        let start = clock();
        ci.step = name;
        say(&format!("\n=== {name} (at {} s)", (start - began).as_secs()));
        if let Err(error) = step(&mut ci) {
            failure = Some(error);
            break;
        }
        took.push((name, start.elapsed()));
    }
    ci.summary(&took, began.elapsed(), failure)
}

#[allow(clippy::disallowed_methods, reason = "measures the steps; nothing else reads this clock")]
fn clock() -> Instant {
    Instant::now()
}

impl Ci {
    fn new(chosen: Vec<&'static str>) -> Result<Self> {
        let work = std::env::temp_dir().join(format!("flowyard-ci-{}", std::process::id()));
        std::fs::create_dir_all(&work)?;
        Ok(Self {
            root: shell::root(),
            work,
            chosen,
            step: "start",
            skipped: Vec::new(),
            totals: None,
            fuzz_build: None,
            live: None,
            has_run_live: false,
        })
    }

    /// A command in the root of the repository, with the environment of CI and no standard input.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        for (name, value) in ENVIRONMENT {
            if name != "CARGO_TERM_COLOR" || std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        command
    }

    /// Cargo with these arguments, separated by spaces.
    fn cargo(&self, args: &str) -> Command {
        let mut command = self.command("cargo");
        command.args(args.split_whitespace());
        command
    }

    /// As [`Ci::cargo`], for tests of which one may hang: they are killed after [`HANG`] seconds, and what they printed
    /// names the test.
    fn limited_cargo(&self, args: &str) -> Command {
        if !crate::shell::in_path("timeout") {
            return self.cargo(args);
        }
        let mut command = self.command("timeout");
        command.args([HANG, "cargo"]).args(args.split_whitespace());
        command
    }

    /// Records that a part was skipped. It returns `Ok`, as a skipped part does not fail the step.
    fn skip(&mut self, why: &str) -> Result<()> {
        say(&format!("SKIPPED: {why}"));
        self.skip_quietly(why);
        Ok(())
    }

    /// Records a skipped part for the summary.
    fn skip_quietly(&mut self, why: &str) {
        self.skipped.push(format!("{}: {why}", self.step));
    }

    /// Whether rustup has a nightly toolchain.
    fn has_nightly(&self) -> bool {
        let list = shell::output(self.command("rustup").args(["toolchain", "list"]));
        list.is_ok_and(|list| list.lines().any(|line| line.starts_with("nightly")))
    }

    /// Whether a cargo subcommand is installed, or can be installed now (one to three minutes).
    fn has_tool(&self, tool: &str) -> bool {
        if shell::succeeds(self.cargo(tool).arg("--version")) {
            return true;
        }
        say(&format!("installing cargo-{tool}"));
        shell::run(&mut self.cargo(&format!("install --quiet --locked cargo-{tool}"))).is_ok()
    }

    fn summary(
        &self,
        took: &[(&str, Duration)],
        elapsed: Duration,
        failure: Option<anyhow::Error>,
    ) -> ExitCode {
        say("");
        for (name, time) in took {
            say(&format!("{name:<11} {:4} s", time.as_secs()));
        }
        self.skipped.iter().for_each(|part| say(&format!("SKIPPED: {part}")));
        if let Some(totals) = &self.totals {
            say(&totals.to_string());
        }
        let (step, seconds) = (self.step, elapsed.as_secs());
        match failure {
            None => {
                say(&format!("ci: all steps passed in {seconds} s"));
                ExitCode::SUCCESS
            }
            Some(error) => {
                say(&format!("ci: FAILED in step '{step}' after {seconds} s: {error:#}"));
                ExitCode::FAILURE
            }
        }
    }
}

impl Drop for Ci {
    fn drop(&mut self) {
        if let Some(mut build) = self.fuzz_build.take() {
            let _ = build.kill();
            let _ = build.wait();
        }
        drop(self.live.take());
        let _ = std::fs::remove_dir_all(&self.work);
    }
}
