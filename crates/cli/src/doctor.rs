//! `flowyard doctor`: checks this machine's settings and prints the commands that fix problems.

use std::fmt::Write as _;
use std::path::PathBuf;

use flowyard_config::Config;
use flowyard_operate::doctor::{Finding, Here, Level, Port, Wanted, examine};
use flowyard_ports::live::Carries;
use schemars::JsonSchema;
use serde::Serialize;

use crate::output;
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard doctor yard.toml
  flowyard doctor --interface eth1 --kind af_xdp
  flowyard doctor --interface eth1 --kind steer
  flowyard doctor yard.toml --json

The doctor changes nothing; run the printed commands to fix what it found. The exit status is 1 if
there is a problem, otherwise 0.")]
pub(crate) struct Args {
    /// Configuration file (TOML) to check the machine for [default: check only what every configuration
    /// needs]
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Also check this interface (may be repeated)
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,

    /// Kind of port that --interface will be used for, or steer: it will be given to `flowyard steer`
    #[arg(long, value_name = "KIND", default_value = "af_xdp")]
    kind: PortKind,

    /// Also list the checks that passed
    #[arg(long)]
    all: bool,

    /// Print JSON (schema flowyard.doctor/2) instead of text
    #[arg(long)]
    json: bool,
}

/// The kinds of port that use an interface, by their names in the configuration.
#[derive(Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum PortKind {
    AfXdp,
    AfPacket,
    Tap,
    Steer,
}

impl PortKind {
    const fn name(self) -> &'static str {
        match self {
            Self::AfXdp => "af_xdp",
            Self::AfPacket => "af_packet",
            Self::Tap => "tap",
            Self::Steer => "steer",
        }
    }
}

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.doctor/2";

/// The findings about this machine.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// Number of problems; with any, the command ends with status 1.
    problems: usize,
    /// Number of warnings.
    warnings: usize,
    /// The result of each check.
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let mut want = match &args.config {
        None => Wanted::default(),
        Some(path) => {
            let setup = Config::read(path).and_then(|config| config.resolve());
            Wanted::of(&setup.map_err(bad_input)?)
        }
    };
    want.ports.extend(args.interface.iter().map(|name| Port {
        interface: name.clone(),
        kind: args.kind.name().to_owned(),
        queues: 1,
        carries: match args.kind.name() {
            "af_packet" | "tap" => Carries::ALL,
            _ => Carries::NONE,
        },
        ..Port::default()
    }));
    let findings = examine(&Here, &want);
    let count = |level| findings.iter().filter(|one| one.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    if args.json {
        output::json(SCHEMA, Report { problems, warnings, findings })?;
    } else {
        output::text(&text(&findings, args.all))?;
    }
    match problems {
        0 => Ok(()),
        1 => Err(Stop::Failed(anyhow::anyhow!("1 problem; see the fix above"))),
        n => Err(Stop::Failed(anyhow::anyhow!("{n} problems; see the fixes above"))),
    }
}

/// Problems first, then warnings. Passed checks are listed in one line, or in full if `all`.
fn text(findings: &[Finding], all: bool) -> String {
    let mut text = String::new();
    for level in [Level::Problem, Level::Warning, Level::Ok] {
        for one in findings.iter().filter(|one| one.level == level && (all || level != Level::Ok)) {
            let name = match level {
                Level::Ok => "ok     ",
                Level::Warning => "warning",
                Level::Problem => "PROBLEM",
            };
            let _infallible =
                writeln!(text, "{name}  {}: {}\n         why: {}", one.about, one.what, one.why);
            if let Some(fix) = &one.fix {
                let _infallible = writeln!(text, "         fix: {fix}");
            }
            text.push('\n');
        }
    }
    let passed: Vec<_> = findings
        .iter()
        .filter(|one| one.level == Level::Ok)
        .map(|one| one.about.as_str())
        .collect();
    if !all && !passed.is_empty() {
        let _infallible = writeln!(text, "passed: {}", passed.join(", "));
    }
    text
}
