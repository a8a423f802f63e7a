//! `flowyard figures`: the tables and figures of the source papers, theirs beside ours.
//!
//! ```text
//!  calibrate (or --profile) ─> what this machine measures, alone ─┐
//!                              models, on all processors ─────────┴─> tables, page, JSON
//! ```
//!
//! What is measured runs first and by itself; models then share the processors, one figure each.

use std::fs;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flowyard_hostsim::Profile;
use flowyard_hostsim::paper::{self, Context};
use flowyard_report::exhibit::Exhibit;
use flowyard_report::{Document, html};
use indicatif::{ProgressBar, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;

use crate::calibrate::Wants;
use crate::stop::{Stop, bad_input};

mod adapter;
mod host;
mod lookup;
mod page;
mod yard;

/// The tables and figures of the source papers: their numbers beside ours.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  flowyard figures --html figures.html\n  flowyard figures kth-baseline dlb-workers\n  flowyard figures --profile here.toml --json"
)]
pub(crate) struct Args {
    /// Which; see --list [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// List the names
    #[arg(long)]
    list: bool,

    /// Costs of this machine, by `flowyard calibrate` [default: measured now]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Host cores to use [default: all]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Write a self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON (schema flowyard.figures/2)
    #[arg(long)]
    json: bool,
}

/// What `--json` holds.
pub(crate) const SCHEMA: &str = "flowyard.figures/2";

/// Tables and figures: the papers' numbers, ours from this run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Results<'a> {
    /// The costs of this machine, if a figure needed them: measured in this run, or the file of --profile.
    profile: Option<&'a Profile>,
    /// In the order of the page.
    figures: &'a [Exhibit],
}

/// What measures: it wants the machine to itself.
const ALONE: [&str; 5] = [lookup::NAME, yard::CORES, yard::WORKERS, yard::NAME, host::NAME];

/// Every name, in the order of the page.
fn all() -> Vec<&'static str> {
    paper::names().chain(ALONE).chain(adapter::names()).collect()
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let all = all();
    let mut out = stdout().lock();
    if args.list {
        all.iter().try_for_each(|name| writeln!(out, "{name}"))?;
        return Ok(out.flush()?);
    }
    if let Some(unknown) = args.names.iter().find(|name| !all.contains(&name.as_str())) {
        let known = all.join(", ");
        return Err(bad_input(format!("no figure '{unknown}'; there are: {known}")));
    }
    let wanted = |name: &&str| args.names.is_empty() || args.names.iter().any(|n| n == name);
    let names: Vec<&str> = all.into_iter().filter(wanted).collect();
    let here = calibrated(args, &names)?;
    let figures = make(&names, &Context { here: here.clone() }, crate::nic::threads(args.threads))?;

    if let Some(path) = &args.html {
        let page = page::page(&figures, here.as_ref());
        html::write(path, &page).map_err(|error| Stop::Failed(error.into()))?;
    }
    if args.json {
        let results = Results { profile: here.as_ref(), figures: &figures };
        let document = Document::new(SCHEMA, results);
        let json = document.to_json().map_err(anyhow::Error::from).map_err(Stop::Failed)?;
        out.write_all(json.as_bytes())?;
        return Ok(out.flush()?);
    }
    for figure in &figures {
        out.write_all(figure.table().to_text(&crate::style()).as_bytes())?;
        writeln!(out)?;
    }
    out.write_all(page::summary(&figures).to_text(&crate::style()).as_bytes())?;
    if let Some(path) = &args.html {
        writeln!(out, "Page with plots: {}", path.display())?;
    }
    Ok(out.flush()?)
}

/// This machine's costs, if a figure wants them.
fn calibrated(args: &Args, names: &[&str]) -> Result<Option<Profile>, Stop> {
    if let Some(path) = &args.profile {
        let name = path.display().to_string();
        let text =
            fs::read_to_string(path).map_err(|error| bad_input(format!("{name}: {error}")))?;
        return Profile::parse(&name, &text).map(Some).map_err(bad_input);
    }
    let wants = |of: &[&str]| names.iter().any(|name| of.contains(name));
    let wants = Wants {
        yard: wants(&[yard::NAME, yard::WORKERS, yard::CORES, "dlb-workers"]),
        host: wants(&[host::NAME]),
    };
    let live = wants.host && crate::live::obstacle().is_none();
    if !(wants.yard || live) {
        return Ok(None);
    }
    let clock = crate::run::clock();
    let time = Duration::from_millis(60);
    crate::calibrate::profile(wants, 15, time, &clock).map(Some).map_err(Stop::Failed)
}

/// One figure.
fn one(name: &str, context: &Context) -> anyhow::Result<Exhibit> {
    if let Some(figure) = paper::make(name, context) {
        return Ok(figure?);
    }
    if let Some(figure) = adapter::make(name).or_else(|| yard::make(name, context)) {
        return figure;
    }
    if name == host::NAME { host::make(context) } else { lookup::make() }
}

/// All of `names`, in their order.
fn make(names: &[&str], context: &Context, threads: usize) -> Result<Vec<Exhibit>, Stop> {
    let bar = bar(names.len() as u64);
    let step = |name: &str| {
        if let Some(bar) = &bar {
            bar.set_message(name.to_owned());
            bar.inc(1);
        }
    };
    let done: Vec<Mutex<Option<anyhow::Result<Exhibit>>>> =
        names.iter().map(|_| Mutex::new(None)).collect();
    let put = |at: usize| {
        let made = one(names[at], context);
        if let Ok(mut slot) = done[at].lock() {
            *slot = Some(made);
        }
        step(names[at]);
    };
    // Measuring wants the machine to itself.
    let (alone, shared): (Vec<usize>, Vec<usize>) = (0..names.len())
        .partition(|&at| [yard::NAME, lookup::NAME, host::NAME].contains(&names[at]));
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
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let made = names.iter().zip(done).map(|(name, slot)| match slot.into_inner() {
        Ok(Some(Ok(figure))) => Ok(figure),
        Ok(Some(Err(error))) => Err(Stop::Failed(error.context(format!("figure '{name}'")))),
        _ => Err(Stop::Failed(anyhow::anyhow!("figure '{name}' was not made"))),
    });
    made.collect()
}

fn bar(steps: u64) -> Option<ProgressBar> {
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} figures, {elapsed}, {msg}").ok()?;
    stderr().is_terminal().then(|| ProgressBar::new(steps).with_style(style))
}
