//! `flowyard figures`: recomputes the tables and figures of the source papers and compares the numbers.
//!
//! ```text
//!  calibrate (or --profile) ─> measurements on this machine, one at a time ─┐
//!                              models, in parallel on all CPUs ─────────────┴─> tables, page, JSON
//! ```

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use flowyard_bench::calibrate::{Effort, profile};
use flowyard_bench::figures as live;
use flowyard_hostsim::Profile;
use flowyard_hostsim::paper::{self, Context};
use flowyard_report::exhibit::Exhibit;
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::Serialize;

use crate::outfile::OutFile;
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

mod adapter;
mod page;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  flowyard figures --html figures.html\n  flowyard figures kth-baseline dlb-workers\n  flowyard figures --profile here.toml --json"
)]
pub(crate) struct Args {
    /// Names of the tables and figures to make; --list prints them [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print the names of all tables and figures, one per line, and exit
    #[arg(long)]
    list: bool,

    /// File with the costs of this machine, written by `flowyard calibrate` [default: measure them now]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Number of threads that compute models in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    threads: Option<usize>,

    /// Also write all figures with plots to this file, as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON (schema flowyard.figures/2) instead of tables
    #[arg(long)]
    json: bool,
}

/// Name and version of the JSON document.
pub(crate) const SCHEMA: &str = "flowyard.figures/2";

/// Tables and figures: the papers' numbers beside those of this run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Results<'a> {
    /// This machine's costs, measured in this run or read from the file of --profile; null if no figure
    /// needs them.
    profile: Option<&'a Profile>,
    /// In the order of the HTML page.
    figures: &'a [Exhibit],
}

/// All names, in the order of the page.
fn all() -> Vec<&'static str> {
    paper::names().chain(live::NAMES).chain(adapter::names()).collect()
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let all = all();
    if args.list {
        return output::text(&(all.join("\n") + "\n"));
    }
    if let Some(unknown) = args.names.iter().find(|name| !all.contains(&name.as_str())) {
        let known = all.join(", ");
        return Err(bad_input(format!("there is no figure '{unknown}'; choose from {known}")));
    }
    let file = OutFile::new(args.html.as_ref(), "page")?;
    let wanted = |name: &&str| args.names.is_empty() || args.names.iter().any(|n| n == name);
    let names: Vec<&str> = all.into_iter().filter(wanted).collect();
    let here = calibrated(args, &names)?;
    let threads = args.threads.unwrap_or_else(flowyard_bench::processors);
    let figures = make(&names, &Context { here: here.clone() }, threads)?;

    let page = || page::page(&figures, here.as_ref());
    let written = file.map_or(Ok(()), |file| file.write_page(&page()));
    if args.json {
        output::json(SCHEMA, Results { profile: here.as_ref(), figures: &figures })?;
        return written;
    }
    let style = style();
    let mut text = String::new();
    for figure in &figures {
        text += &figure.table().to_text(&style);
        text += "\n";
    }
    text += &page::summary(&figures).to_text(&style);
    if let (Some(path), Ok(())) = (&args.html, &written) {
        text += &format!("Page with plots: {}\n", path.display());
    }
    output::text(&text)?;
    written
}

/// This machine's costs, if one of the figures needs them.
fn calibrated(args: &Args, names: &[&str]) -> Result<Option<Profile>, Stop> {
    if let Some(path) = &args.profile {
        let name = path.display().to_string();
        let text =
            fs::read_to_string(path).map_err(|error| bad_input(format!("{name}: {error}")))?;
        return Profile::parse(&name, &text).map(Some).map_err(bad_input);
    }
    let wants = live::wants(names);
    if !(wants.yard || wants.host) {
        return Ok(None);
    }
    let (date, clock) = (crate::clock::date(), crate::clock::new());
    let profile = profile(wants, Effort::default(), &date, &clock, &|_, _, _| {});
    profile.map(Some).map_err(Stop::Failed)
}

fn one(name: &str, context: &Context, clock: &Clock) -> anyhow::Result<Exhibit> {
    if let Some(figure) = paper::make(name, context) {
        return Ok(figure?);
    }
    let figure = adapter::make(name).or_else(|| live::make(name, context, clock));
    figure.unwrap_or_else(|| Err(anyhow::anyhow!("there is no such figure")))
}

/// Makes the figures `names`, and returns them in that order.
fn make(names: &[&str], context: &Context, threads: usize) -> Result<Vec<Exhibit>, Stop> {
    let bar = Progress::new("{bar:40} {pos}/{len} figures, {elapsed}, {msg}");
    let (count, clock) = (AtomicUsize::new(0), crate::clock::new());
    let step = |name: &str| {
        let done = count.fetch_add(1, Ordering::Relaxed) + 1;
        bar.at(done as u64, names.len() as u64);
        bar.message(name.to_owned());
    };
    let done: Vec<Mutex<Option<anyhow::Result<Exhibit>>>> =
        names.iter().map(|_| Mutex::new(None)).collect();
    let put = |at: usize| {
        let made = one(names[at], context, &clock);
        if let Ok(mut slot) = done[at].lock() {
            *slot = Some(made);
        }
        step(names[at]);
    };
    // Measurements run one at a time, with nothing beside them; models run in parallel.
    let (alone, shared): (Vec<usize>, Vec<usize>) =
        (0..names.len()).partition(|&at| live::is_alone(names[at]));
    alone.into_iter().for_each(put);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(shared.len()) {
            scope.spawn(|| {
                while let Some(&at) = shared.get(next.fetch_add(1, Ordering::Relaxed)) {
                    put(at);
                }
            });
        }
    });
    drop(bar);
    let made = names.iter().zip(done).map(|(name, slot)| match slot.into_inner() {
        Ok(Some(Ok(figure))) => Ok(figure),
        Ok(Some(Err(error))) => Err(Stop::Failed(error.context(format!("figure '{name}'")))),
        _ => Err(Stop::Failed(anyhow::anyhow!("figure '{name}' was not made"))),
    });
    made.collect()
}
