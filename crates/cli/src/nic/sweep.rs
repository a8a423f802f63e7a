//! `flowyard nic sweep`: simulates every combination of values of the varied keys.

use std::fmt::Write as _;

use flowyard_nicsim::Fast;
use flowyard_nicsim::engine::Parts;
use flowyard_nicsim::run::{Outcome, RunError, image, run as simulate};
use flowyard_nicsim::sweep::parallel;
use flowyard_report::{Cell, Column, Table};
use schemars::JsonSchema;
use serde::Serialize;

use super::machine::{BAR, MachineArgs, threads};
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.nic-sweep/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard nic sweep --vary chip.cores=1,2,4,8,16 --set mac.link_gbps=25 --set sdram.mhz=2500 --set chip.banks=16
  flowyard nic sweep --vary chip.banks=1,2,4,8 --vary chip.mhz=150,500/3,200
  flowyard nic sweep --vary firmware.bundle=1,2,4,8,16 --csv")]
pub(crate) struct Args {
    #[command(flatten)]
    machine: MachineArgs,

    /// A configuration key and its values; if repeated, all combinations are simulated
    #[arg(long, value_name = "KEY=A,B,...", required = true)]
    vary: Vec<String>,

    /// Number of simulations to run in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    threads: Option<usize>,

    /// Print JSON (schema flowyard.nic-sweep/1) instead of a table
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print comma-separated values instead of a table
    #[arg(long)]
    csv: bool,
}

/// A simulation.
#[derive(Serialize, JsonSchema)]
struct Point {
    /// The keys that were varied, as `chip.cores=8`.
    settings: Vec<String>,
    /// The rate of UDP payload in both directions, in Gbit/s.
    udp_gbps: f64,
    /// The same, as a share of the highest rate that the link allows.
    share_of_limit: f64,
    /// Frames in both directions.
    frames_per_second: f64,
    /// The share of the received frames that was dropped, 0 to 1.
    drop_share: f64,
    /// Instructions per cycle of a core.
    ipc: f64,
    /// The share of the cycles that waited for loads.
    load: f64,
    /// The share of the cycles that waited for busy banks.
    conflict: f64,
    /// The share of the cycles lost to pipeline hazards.
    pipeline: f64,
    /// Frames that left out of order, changed or unexpectedly.
    errors: u64,
    frame_memory_busy: f64,
}

/// The simulations of a sweep.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Points {
    /// One for each combination of settings.
    points: Vec<Point>,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let mut settings: Vec<Vec<String>> = vec![Vec::new()];
    for vary in &args.vary {
        let (key, values) = vary
            .split_once('=')
            .ok_or_else(|| bad_input(format!("--vary: write KEY=A,B,..., not '{vary}'")))?;
        let grown = settings.iter().flat_map(|before| {
            values.split(',').map(move |value| {
                let mut now = before.clone();
                now.push(format!("{}={}", key.trim(), value.trim()));
                now
            })
        });
        settings = grown.collect();
    }
    let elf = args.machine.elf()?;
    let mut machines = Vec::new();
    for point in &settings {
        let mut config = args.machine.config()?;
        for set in point {
            config.set(set).map_err(|error| bad_input(format!("--vary: {error}")))?;
        }
        config.check().map_err(|error| bad_input(format!("--vary: {error}")))?;
        let image = image(&config, &elf).map_err(bad_input)?;
        machines.push(Parts { config, image, ..Parts::default() });
    }
    let bar = Progress::new(BAR);
    let progress = |n: usize, of: usize| bar.at(n as u64, of as u64);
    let runs = parallel(&machines, threads(args.threads), &progress, |parts| {
        simulate::<Fast>(parts.clone())
    });
    drop(bar);
    let mut points = Vec::new();
    let mut wrong = Ok(());
    for (settings, outcome) in settings.into_iter().zip(runs) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(RunError::Build(error)) => {
                return Err(bad_input(format!("{}: {error}", settings.join(" "))));
            }
            Err(error) => return Err(failed(error, &settings)),
        };
        wrong = wrong.and(outcome.verdict().map_err(|error| failed(error, &settings)));
        points.push(point(settings, &outcome));
    }
    print(points, args)?;
    wrong
}

fn failed(error: RunError, settings: &[String]) -> Stop {
    Stop::Failed(anyhow::Error::from(error).context(settings.join(" ")))
}

fn point(settings: Vec<String>, outcome: &Outcome) -> Point {
    let total = outcome.window.total();
    let share = |cycles: u64| cycles as f64 / (total.cycles() as f64).max(1.0);
    Point {
        settings,
        udp_gbps: outcome.udp_gbps(),
        share_of_limit: outcome.udp_gbps() / outcome.udp_limit_gbps().max(1e-9),
        frames_per_second: outcome.frames_per_second(),
        drop_share: outcome.drop_share(),
        ipc: share(total.execute),
        load: share(total.load),
        conflict: share(total.conflict),
        pipeline: share(total.pipeline),
        errors: outcome.errors(),
        frame_memory_busy: outcome.window.devices.sdram.busy_cycles as f64
            / outcome.seconds()
            / outcome.config.sdram.mhz.hz(),
    }
}

fn print(points: Vec<Point>, args: &Args) -> Result<(), Stop> {
    if args.json {
        return output::json(SCHEMA, Points { points });
    }
    let keys: Vec<&str> = args.vary.iter().filter_map(|v| v.split_once('=')).map(|v| v.0).collect();
    output::text(&if args.csv {
        csv(&keys, &points)
    } else {
        table(&keys, &points).to_text(&style())
    })
}

impl Point {
    /// The values of the varied keys.
    fn values(&self) -> impl Iterator<Item = &str> {
        self.settings.iter().filter_map(|set| set.split_once('=')).map(|set| set.1)
    }
}

fn csv(keys: &[&str], points: &[Point]) -> String {
    let mut text = format!(
        "{},udp_gbps,share_of_limit,frames_per_second,drop_share,ipc,load,conflict,pipeline,errors,frame_memory_busy\n",
        keys.join(",")
    );
    for p in points {
        let _infallible = writeln!(
            text,
            "{},{:.6},{:.6},{:.1},{:.6},{:.6},{:.6},{:.6},{:.6},{},{:.6}",
            p.values().collect::<Vec<_>>().join(","),
            p.udp_gbps,
            p.share_of_limit,
            p.frames_per_second,
            p.drop_share,
            p.ipc,
            p.load,
            p.conflict,
            p.pipeline,
            p.errors,
            p.frame_memory_busy
        );
    }
    text
}

fn table(keys: &[&str], points: &[Point]) -> Table {
    let mut table = Table::new("");
    for key in keys {
        table = table.column(Column::text(*key));
    }
    for (name, unit) in [
        ("UDP payload", "Gb/s"),
        ("UDP payload", "% of limit"),
        ("frames", "M/s"),
        ("dropped", "%"),
        ("IPC", ""),
        ("load", ""),
        ("conflict", ""),
        ("pipeline", ""),
        ("frame memory busy", "%"),
        ("errors", ""),
    ] {
        table = table.column(Column::number(name).unit(unit));
    }
    for p in points {
        let numbers = [
            format!("{:.3}", p.udp_gbps),
            format!("{:.2}", 100.0 * p.share_of_limit),
            format!("{:.3}", p.frames_per_second / 1e6),
            format!("{:.3}", 100.0 * p.drop_share),
            format!("{:.3}", p.ipc),
            format!("{:.3}", p.load),
            format!("{:.3}", p.conflict),
            format!("{:.3}", p.pipeline),
            format!("{:.1}", 100.0 * p.frame_memory_busy),
            p.errors.to_string(),
        ];
        table.push(p.values().map(Cell::new).chain(numbers.map(Cell::new)));
    }
    table
}
