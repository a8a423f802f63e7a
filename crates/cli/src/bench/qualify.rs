//! `flowyard bench qualify`: what the tester proves of itself.

use std::io::{Write, stdout};

use flowyard_report::Document as Json;
use flowyard_rfc2544::line::Line;
use flowyard_rfc2544::qualify::{Check, table, virtual_checks};
use serde::Serialize;

use crate::stop::{Stop, bad_input};

/// What the tester proves of itself: loopback, conservation, repeatability, 2^32 frames, and the truth
/// about a faulty device in every fault, at every size.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard bench qualify --seeds 100")]
pub(crate) struct Args {
    /// Runs of the faulty device for each fault and size
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,

    /// Print JSON (schema flowyard.bench-qualify/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checks {
    checks: Vec<Check>,
    holds: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    if !(1..=10_000).contains(&args.seeds) {
        return Err(bad_input(format!("--seeds: from 1 to 10000, not {}", args.seeds)));
    }
    let checks =
        virtual_checks(Line::GBIT_1, args.seeds).map_err(|error| Stop::Failed(error.into()))?;
    let holds = checks.iter().all(|check| check.holds);
    let mut out = stdout().lock();
    if args.json {
        let json = Json::new("flowyard.bench-qualify/1", Checks { checks, holds });
        out.write_all(json.to_json().map_err(|error| Stop::Failed(error.into()))?.as_bytes())?;
    } else {
        out.write_all(table(&checks).to_text(&crate::style()).as_bytes())?;
    }
    out.flush()?;
    if holds { Ok(()) } else { Err(Stop::Failed(anyhow::anyhow!("the tester does not qualify"))) }
}
