//! `flowyard figures`: recomputes the tables and figures of the source papers and compares the numbers.
//!
//! ```text
//!  calibrate (or --profile) ─> measurements on this machine, one at a time ─┐
//!                              models, in parallel on all CPUs ─────────────┴─> tables, page, JSON
//! ```

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use flowyard_bench::calibrate::{Effort, profile};
use flowyard_bench::figures as live;
use flowyard_hostsim::Profile;
use flowyard_hostsim::paper::{self, Context};
use flowyard_report::exhibit::{Exhibit, Score, Sensitivity};
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::Serialize;

use crate::outfile::{self, OutFile};
use crate::output::{self, Progress, style};
use crate::parallel::in_parallel;
use crate::stop::{Stop, bad_input};

mod adapter;
mod page;
mod sensitivity;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  flowyard figures --html figures.html\n  flowyard figures kth-baseline dlb-workers\n  flowyard figures --profile here.toml --json\n  flowyard figures dlb-workers --sensitivity"
)]
pub(crate) struct Args {
    /// Names of the tables and figures to make; --list prints them [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print the names of all tables and figures, one per line, and exit
    #[arg(long)]
    list: bool,

    /// File with the costs of this machine, written by `flowyard calibrate` [default: measure them now]; or a
    /// profile that replaces the built-in one of its name (dlb, kth, lanner, rose-city). May be repeated
    #[arg(long, value_name = "FILE")]
    profile: Vec<PathBuf>,

    /// Also multiply each input of the models by 0.5 and by 2, alone, and print which moves the result of its figure
    /// most
    #[arg(long)]
    sensitivity: bool,

    /// Number of threads that compute models in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    threads: Option<usize>,

    /// Also write all figures with plots to this file, as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON (schema flowyard.figures/3) instead of tables
    #[arg(long)]
    json: bool,
}

/// Name and version of the JSON document.
pub(crate) const SCHEMA: &str = "flowyard.figures/3";

/// Tables and figures: the papers' numbers beside those of this run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Results<'a> {
    /// This machine's costs, measured in this run or read from the file of --profile; null if no figure
    /// needs them.
    profile: Option<&'a Profile>,
    /// Profiles of --profile that replaced a built-in one.
    given: &'a [Profile],
    /// How many rows of all figures count, and how many of those agree. A row counts if it can be compared, is
    /// measured or predicted, and none of its inputs was fitted.
    score: Score,
    /// In the order of the HTML page.
    figures: &'a [Exhibit],
    /// The effect of each input, with --sensitivity: for figures whose model has a profile.
    sensitivity: &'a [Sensitivity],
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
    let reads = args.profile.iter().map(PathBuf::as_path);
    outfile::distinct(&[("--html", "page", args.html.as_deref())], reads)?;
    let file = OutFile::new(args.html.as_ref(), "page")?;
    let wanted = |name: &&str| args.names.is_empty() || args.names.iter().any(|n| n == name);
    let names: Vec<&str> = all.into_iter().filter(wanted).collect();
    let context = context(args, &names)?;
    let threads = args.threads.unwrap_or_else(flowyard_bench::processors);
    let mut figures = make(&names, &context, threads)?;
    sensitivity::intervals(&mut figures, &context)?;
    let Context { here, given } = &context;
    unused(&context, &figures).iter().for_each(|note| output::note(note));
    let warnings = here.iter().chain(given).filter_map(Profile::warning);
    warnings.for_each(|warning| output::note(&warning));

    let effects =
        if args.sensitivity { sensitivity::of(&figures, &context, threads)? } else { Vec::new() };

    let page = || page::page(&figures, &effects, here.as_ref(), given);
    let written = file.map_or(Ok(()), |file| file.write_page(&page()));
    if args.json {
        let score = Score::of(figures.iter().flat_map(|figure| &figure.rows));
        let profile = here.as_ref();
        let results = Results { profile, given, score, figures: &figures, sensitivity: &effects };
        output::json(SCHEMA, results)?;
        return written;
    }
    let style = style();
    let mut text = String::new();
    for figure in &figures {
        text += &figure.table().to_text(&style);
        text += "\n";
        for effect in effects.iter().filter(|effect| effect.figure == figure.name) {
            text += &effect.table().to_text(&style);
            text += "\n";
        }
    }
    text += &page::summary(&figures).to_text(&style);
    if let (Some(path), Ok(())) = (&args.html, &written) {
        text += &format!("Page with plots: {}\n", path.display());
    }
    output::text(&text)?;
    written
}

/// The profiles: those of --profile, and this machine's costs, if one of the figures needs them and no file has them.
fn context(args: &Args, names: &[&str]) -> Result<Context, Stop> {
    let mut context = Context::default();
    for path in &args.profile {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| {
            bad_input(format!("{file}: {error}; --profile needs a readable profile"))
        })?;
        let profile = Profile::parse(&file, &text).map_err(bad_input)?;
        let is_known = |other: &Profile| other.name == profile.name;
        if context.here.iter().chain(&context.given).any(is_known) {
            return Err(bad_input(format!("{file}: a second profile '{}'", profile.name)));
        }
        if Profile::names().any(|name| name == profile.name) {
            context.given.push(profile);
        } else if let Some(here) = &context.here {
            return Err(bad_input(format!(
                "{file}: profile '{}' is no built-in one, and '{}' already has the costs of this machine",
                profile.name, here.name
            )));
        } else {
            context.here = Some(profile);
        }
    }
    let wants = live::wants(names);
    if context.here.is_none() && (wants.yard || wants.host) {
        let (date, clock) = (crate::clock::date(), crate::clock::new());
        // Figures that measure report the state of the machine themselves, so it need not be quiet.
        let effort = Effort { force: true, ..Effort::default() };
        let profile = profile(wants, effort, &date, &clock, &|_, _, _| {});
        context.here = Some(profile.map_err(Stop::Failed)?);
    }
    Ok(context)
}

/// A sentence for each profile that none of the figures read: changing it changes nothing.
fn unused(context: &Context, figures: &[Exhibit]) -> Vec<String> {
    let is_read = |profile: &Profile| {
        let prefix = format!("{}.", profile.name);
        let mut inputs = figures.iter().flat_map(|figure| &figure.inputs);
        inputs.any(|input| input.name.starts_with(&prefix))
    };
    let profiles = context.here.iter().chain(&context.given);
    let unread = profiles.filter(|profile| !is_read(profile));
    unread.map(|profile| format!("none of these figures uses profile '{}'", profile.name)).collect()
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
    let make = |at: usize| {
        let made = one(names[at], context, &clock);
        step(names[at]);
        (at, made)
    };
    // Measurements run one at a time, with nothing beside them; models run in parallel.
    let (alone, shared): (Vec<usize>, Vec<usize>) =
        (0..names.len()).partition(|&at| live::is_alone(names[at]));
    let mut made: Vec<_> = alone.into_iter().map(make).collect();
    made.extend(in_parallel(&shared, threads, |&at| make(at)));
    drop(bar);
    made.sort_by_key(|(at, _)| *at);
    let figure = |(at, made): (usize, anyhow::Result<Exhibit>)| {
        made.map_err(|error| Stop::Failed(error.context(format!("figure '{}'", names[at]))))
    };
    made.into_iter().map(figure).collect()
}
