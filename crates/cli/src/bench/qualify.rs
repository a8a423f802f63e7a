//! `flowyard bench qualify`: checks of the tester itself, in virtual time and in real time.

use std::path::Path;

use flowyard_bench::tester::qualify::{Job, around_faults, on_cable};
use flowyard_rfc2544::line::{Line, Load};
use flowyard_rfc2544::qualify::{Check, table, virtual_checks};
use flowyard_rfc2544::traffic::Genome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::PortKind;
use super::values;
use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-qualify/2";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench qualify --seeds 100
  flowyard bench qualify --interfaces a,b --json > tester.json   # a and b are connected by a cable
  flowyard bench rfc2544 --interfaces c,d --tester tester.json
  flowyard bench qualify --interfaces a,b --faulty c,d           # a to c and b to d are cables

Without --interfaces everything runs in virtual time. The exit status is 1 if a check fails.")]
pub(crate) struct Args {
    /// Number of runs of the faulty device for each fault and frame size, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,

    /// Check the tester in real time on these two interfaces, which a cable connects; they must be in a
    /// network namespace of their own, see --isolated
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    interfaces: Vec<String>,

    /// Run the faulty device between these two interfaces, each of which a cable connects to one of
    /// --interfaces
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "interfaces")]
    faulty: Vec<String>,

    /// Kind of socket that the tester uses on the interfaces
    #[arg(long, value_enum, default_value_t = PortKind::Mixed)]
    port: PortKind,

    /// Duration of each trial in seconds, with --interfaces
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,

    /// Number of times that the rate search is repeated for each size, 1 to 100, with --interfaces
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,

    /// Frame sizes in bytes with FCS, separated by commas, with --interfaces
    #[arg(long, value_name = "SIZES", default_value = "64,128,256,512,1024,1280,1518")]
    sizes: String,

    /// Send in one direction only, with --interfaces
    #[arg(long)]
    uni: bool,

    /// Declare that the interfaces are isolated from every production network (RFC 6815); skips the
    /// check for a network namespace and a default route
    #[arg(long)]
    isolated: bool,

    /// Print JSON (schema flowyard.bench-qualify/2) instead of a table
    #[arg(long)]
    json: bool,
}

/// The checks of the tester.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Checks {
    /// Each check.
    checks: Vec<Check>,
    /// Whether all of them passed.
    passed: bool,
    /// The tester's own highest rate by frame size; empty in virtual time.
    #[serde(default)]
    limits: Vec<(Genome, Load)>,
}

/// The tester's own highest rates by frame size, from a file that `--json` wrote.
pub(super) fn limits(path: &Path) -> Result<Vec<(Genome, Load)>, Stop> {
    read(path).map(|read| read.limits)
}

/// The results of the tester's checks, from the same file.
pub(super) fn checks(path: &Path) -> Result<Vec<Check>, Stop> {
    read(path).map(|read| read.checks)
}

fn read(path: &Path) -> Result<Checks, Stop> {
    let name = path.display();
    let fix = "--tester needs the output of 'bench qualify --interfaces' with --json";
    let text =
        std::fs::read_to_string(path).map_err(|e| bad_input(format!("{name}: {e}; {fix}")))?;
    let checks: Checks =
        serde_json::from_str(&text).map_err(|e| bad_input(format!("{name}: {e}; {fix}")))?;
    if checks.limits.is_empty() {
        return Err(bad_input(format!(
            "{name}: the file has no rate of the tester in real time; {fix}"
        )));
    }
    Ok(checks)
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    if !(1..=10_000).contains(&args.seeds) {
        return Err(bad_input(format!("--seeds: must be 1 to 10000, not {}", args.seeds)));
    }
    let (checks, limits) = match (args.interfaces.as_slice(), args.faulty.as_slice()) {
        ([], _) => {
            let checks = virtual_checks(Line::GBIT_1, args.seeds);
            (checks.map_err(|error| Stop::Failed(error.into()))?, Vec::new())
        }
        ([_, _], []) => on_cable(&args.job()?, &crate::clock::new())?,
        ([_, _], [_, _]) => {
            (around_faults(&args.job()?, &args.faulty, &crate::clock::new())?, Vec::new())
        }
        ([_, _], _) => {
            return Err(bad_input("--faulty: needs two names, separated by commas, such as c,d"));
        }
        _ => {
            return Err(bad_input(
                "--interfaces: needs two names, separated by commas, such as a,b",
            ));
        }
    };
    let passed = checks.iter().all(|check| check.passed);
    if args.json {
        output::json(SCHEMA, Checks { checks, passed, limits })?;
    } else {
        output::text(&table(&checks).to_text(&style()))?;
    }
    if passed { Ok(()) } else { Err(Stop::Failed(anyhow::anyhow!("a check of the tester failed"))) }
}

impl Args {
    /// The checks on real interfaces.
    fn job(&self) -> Result<Job, Stop> {
        Ok(Job {
            interfaces: self.interfaces.clone(),
            kind: self.port.into(),
            is_isolated: self.isolated,
            sizes: values::sizes(&self.sizes)?,
            trial: values::seconds(self.seconds)?,
            repeats: self.repeat,
            is_uni: self.uni,
        })
    }
}
