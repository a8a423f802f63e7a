//! `flowyard calibrate`: measures what basic operations cost on this machine, as a profile for the models.
//!
//! The engine does no work in these measurements; the models predict its rates with work.

use std::path::PathBuf;
use std::time::Duration;

use flowyard_bench::calibrate::{Effort, Wants, profile};
use flowyard_hostsim::Profile;
use flowyard_report::{Cell, Column, Table, Tone};
use schemars::JsonSchema;
use serde::Serialize;

use crate::outfile::OutFile;
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.calibrate/1";

/// What was measured on this machine.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Calibrated {
    /// The costs of basic operations.
    profile: Profile,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  flowyard calibrate\n  flowyard calibrate --output here.toml\n  flowyard figures --profile here.toml\n  flowyard predict --profile here.toml\n\nEach cost is the median of the rounds, with an interval that contains the true median with a probability of 95 % (order\nstatistics; it needs at least 6 rounds). A machine that is not quiet is refused with status 1: other programs that use\nmore than 5 % of the processors, a hypervisor that takes more than 1 %, or a processor whose speed changes by more than\n5 %, before or during the measurement. --force measures nevertheless, and the profile records what disturbed it.\n\nAs root, with two CPUs and memcached, the costs of sockets and threads are measured too."
)]
pub(crate) struct Args {
    /// Write the profile (TOML) to this file and print a table, instead of printing the profile
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print the profile as JSON (schema flowyard.calibrate/1) instead of TOML or a table
    #[arg(long)]
    json: bool,

    /// Number of rounds; each measures every operation once, and the median is used
    #[arg(long, value_name = "N", default_value_t = 15)]
    rounds: usize,

    /// Measure also on a machine that is not quiet; the profile records what disturbed it
    #[arg(long)]
    force: bool,

    /// Duration of each run of the engine, 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "60ms", value_parser = humantime::parse_duration)]
    time: Duration,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.rounds == 0 {
        return Err(bad_input("--rounds: must be at least 1"));
    }
    if args.time < Duration::from_millis(1) || args.time > Duration::from_secs(60) {
        return Err(bad_input("--time: must be 1ms to 60s"));
    }
    let file = OutFile::new(args.output.as_ref(), "profile")?;
    let wants = Wants { yard: true, host: true };
    let effort = Effort { rounds: args.rounds, time: args.time, force: args.force };
    let bar = Progress::new("{bar:40} {pos}/{len} steps, {eta} left; {msg}");
    let watch = |name: &str, done: usize, of: usize| {
        bar.at(done as u64, of as u64);
        bar.message(name.to_owned());
    };
    let profile = profile(wants, effort, &crate::clock::date(), &crate::clock::new(), &watch);
    drop(bar);
    let profile = profile.map_err(Stop::Failed)?;
    let written = file.map_or(Ok(()), |file| file.write(profile.to_toml().as_bytes()));
    if args.json {
        output::json(SCHEMA, Calibrated { profile })?;
        return written;
    }
    let Some(path) = &args.output else { return output::text(&profile.to_toml()) };
    if written.is_err() {
        output::text(&profile.to_toml())?; // the measurements are not lost
        return written;
    }
    let table = table(&profile).to_text(&style());
    output::text(&format!("{table}Profile written to {}\n", path.display()))
}

/// The constants as a table.
pub(crate) fn table(profile: &Profile) -> Table {
    let mut table = Table::new(format!("Costs: {}", profile.title))
        .column(Column::text("constant"))
        .column(Column::number("value"))
        .column(Column::text("interval"))
        .column(Column::text("obtained"))
        .column(Column::text("operation or source"));
    for (name, constant) in &profile.constants {
        // The engine is measured without work: this value is zero by definition.
        let is_none =
            constant.value == 0.0 && name.starts_with("yard") && name.ends_with("_work_ns");
        table.push([
            Cell::new(name.clone()),
            Cell::new(if is_none { "none".into() } else { format!("{:.1}", constant.value) }),
            Cell::new(constant.interval.filter(|_| !is_none).map_or_else(
                || "-".to_owned(),
                |interval| format!("{:.1} to {:.1}", interval.low, interval.high),
            )),
            Cell::new(constant.how.name()).tone(Tone::Dim),
            Cell::new(constant.source.clone()),
        ]);
    }
    let about = profile.about.iter().map(|(name, value)| format!("{name}: {value}"));
    let intervals = profile.constants.values().filter_map(|constant| constant.interval);
    let least = intervals.map(|interval| interval.confidence).min_by(f64::total_cmp);
    let least = least.map(|least| {
        format!("each interval contains the true median with a probability of at least {:.1} %, if the rounds are independent", 100.0 * least)
    });
    about.chain(least).chain(profile.warning()).fold(table, Table::note)
}
