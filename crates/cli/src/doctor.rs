//! `flowyard doctor`: what on this machine stands in a yard's way, and how to mend it.

use std::fmt::Write as _;
use std::io::{Write, stdout};
use std::path::PathBuf;

use flowyard_config::Config;
use flowyard_operate::doctor::{Finding, Here, Level, Port, Wanted, examine};
use flowyard_report::Document;
use serde::Serialize;

use crate::stop::{Stop, bad_input};

/// Check the machine: what stands in a yard's way, and the command that mends it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard doctor yard.toml
  flowyard doctor --interface eth1 --kind af_xdp
  flowyard doctor yard.toml --json

Nothing is changed: commands that mend are printed, to be pasted. The exit status is 1 if there is a
problem, 0 if there are warnings at most.")]
pub(crate) struct Args {
    /// The configuration that is to run; without one, only what every yard needs is looked at
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// An interface to look at besides
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,

    /// The kind of port that is to be on it: af_xdp, af_packet or tap
    #[arg(long, value_name = "KIND", default_value = "af_xdp")]
    kind: String,

    /// Show what is as it should be, too
    #[arg(long)]
    all: bool,

    /// Print JSON (schema flowyard.doctor/2)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    problems: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if !["af_xdp", "af_packet", "tap"].contains(&args.kind.as_str()) {
        return Err(bad_input(format!(
            "--kind: '{}' is none of af_xdp, af_packet, tap",
            args.kind
        )));
    }
    let mut want = match &args.config {
        None => Wanted::default(),
        Some(path) => {
            let setup = Config::read(path).and_then(|config| config.resolve());
            Wanted::of(&setup.map_err(bad_input)?)
        }
    };
    want.ports.extend(args.interface.iter().map(|name| Port {
        interface: name.clone(),
        kind: args.kind.clone(),
        queues: 1,
        ..Port::default()
    }));
    let findings = examine(&Here, &want);
    let count = |level| findings.iter().filter(|one| one.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let mut out = stdout().lock();
    if args.json {
        let document = Document::new("flowyard.doctor/2", Report { problems, warnings, findings });
        let json = document.to_json().map_err(anyhow::Error::from).map_err(Stop::Failed)?;
        out.write_all(json.as_bytes())?;
    } else {
        out.write_all(text(&findings, args.all).as_bytes())?;
    }
    out.flush()?;
    match problems {
        0 => Ok(()),
        1 => Err(Stop::Failed(anyhow::anyhow!("1 problem; see the fix above"))),
        n => Err(Stop::Failed(anyhow::anyhow!("{n} problems; see the fixes above"))),
    }
}

/// The worst first; what is well in one line, unless all is wanted.
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
                writeln!(text, "{name}  {}: {}\n         why:  {}", one.about, one.what, one.why);
            if let Some(fix) = &one.fix {
                let _infallible = writeln!(text, "         fix:  {fix}");
            }
            text.push('\n');
        }
    }
    let well: Vec<_> = findings
        .iter()
        .filter(|one| one.level == Level::Ok)
        .map(|one| one.about.as_str())
        .collect();
    if !all && !well.is_empty() {
        let _infallible = writeln!(text, "as it should be: {}", well.join(", "));
    }
    text
}
