//! `flowyard bench latency`: latency of the engine against its load, in real time.

use std::path::PathBuf;
use std::time::Duration;

use flowyard_bench::latency::{Curve, Job, Point, Results, measure};
use flowyard_report::{Axis, Card, Cell, Column, Page, Plot, Section, Table, Tone, Unit, num};

use crate::outfile::OutFile;
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-latency/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench latency
  flowyard bench latency --rounds 5 --html latency.html
  flowyard bench latency --loads 50,90,95,99 --json

Each round measures the throughput of an engine, and then its latency at shares of that throughput.
The time at which a frame is due is drawn before and does not depend on the engine: a frame that the
engine takes late counts with the time that it waited. The order of every flow and the number of
frames are checked at the end of each measurement.")]
pub(crate) struct Args {
    /// Number of rounds; every round measures every point once
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,

    /// Duration of each measurement, 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = humantime::parse_duration)]
    time: Duration,

    /// Loads in percent of the throughput, 1 to 100
    #[arg(
        long,
        value_name = "PERCENT,...",
        value_delimiter = ',',
        default_value = "10,30,50,70,80,90,95"
    )]
    loads: Vec<f64>,

    /// Write one HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON (schema flowyard.bench-latency/1) instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    if args.rounds == 0 {
        return Err(bad_input("--rounds: must be at least 1"));
    }
    if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&args.time) {
        return Err(bad_input("--time: must be 1ms to 60s"));
    }
    if let Some(load) = args.loads.iter().find(|load| !(1.0..=100.0).contains(*load)) {
        return Err(bad_input(format!(
            "--loads: {load} is not 1 to 100; give percent of the throughput, such as 50,90,95"
        )));
    }
    let file = OutFile::new(args.html.as_ref(), "page")?;
    let loads = args.loads.iter().map(|percent| percent / 100.0).collect();
    let job = Job { rounds: args.rounds, time: args.time, loads };
    let bar = Progress::new("{bar:40} {pos}/{len} measurements, {eta} left");
    let progress = |done: usize, of: usize| bar.at(done as u64, of as u64);
    let results = measure(&job, &crate::clock::new(), &progress);
    drop(bar);
    let results = results.map_err(Stop::Failed)?;
    let written = file.map_or(Ok(()), |file| file.write_page(&page(&results)));
    if args.json {
        output::json(SCHEMA, results)?;
        return written;
    }
    let mut text = table(&results).to_text(&style());
    if let (Some(path), Ok(())) = (&args.html, &written) {
        text += &format!("Page with plots: {}\n", path.display());
    }
    if let Some(note) = remark(&results) {
        text += &format!("\nNote: {note}\n");
    }
    output::text(&text)?;
    written
}

/// What disturbs the results.
fn remark(results: &Results) -> Option<String> {
    if results.machine.processors < 2 {
        let only =
            "this machine has only one CPU; the latency of two cores is that of the scheduler.";
        return Some(only.into());
    }
    let Results { rounds, quiet_rounds, others_share, .. } = results;
    (2 * quiet_rounds < *rounds).then(|| {
        format!(
            "the machine was loaded: {quiet_rounds} of {rounds} rounds were quiet, and other programs used up to {:.0} % of the \
             CPU time in a round. Their time is in these latencies; stop them and measure again.",
            others_share * 100.0
        )
    })
}

fn table(results: &Results) -> Table {
    let title = format!(
        "Latency against load: 64-byte frames of {} flows, ports in memory",
        num::exact(results.flows)
    );
    let mut table = Table::new(title)
        .column(Column::number("cores"))
        .column(Column::text("queue"))
        .column(Column::number("load"))
        .column(Column::number("offered"))
        .column(Column::number("achieved"))
        .column(Column::number("p50"))
        .column(Column::number("p99"))
        .column(Column::number("p99.9"));
    for curve in &results.curves {
        let most = Unit::Pps.show(curve.throughput_pps);
        let start =
            [curve.cores.to_string(), curve.order.to_owned(), "all".into(), "-".into(), most];
        let none = || ["-"; 3].map(str::to_owned);
        table.push(
            start
                .into_iter()
                .chain(none())
                .map(|text| Cell::new(text).tone(Tone::Strong))
                .collect::<Vec<_>>(),
        );
        for point in &curve.points {
            let row = [
                curve.cores.to_string(),
                curve.order.to_owned(),
                Unit::Share.show(point.load),
                Unit::Pps.show(point.offered_pps),
                Unit::Pps.show(point.achieved_pps),
                Unit::Nanos.show(point.p50_ns),
                Unit::Nanos.show(point.p99_ns),
                Unit::Nanos.show(point.p999_ns),
            ];
            table.push(row.map(Cell::new));
        }
    }
    table
}

/// A plot of one percentile, with a line for each curve.
fn plot(title: &str, results: &Results, of: fn(&Point) -> f64) -> Plot {
    let x = Axis::linear("load, of the throughput", Unit::Share).range(0.0, 1.0);
    let plot = Plot::new(title, x, Axis::log("latency", Unit::Nanos));
    results.curves.iter().fold(plot, |plot, curve| {
        let points = curve.points.iter().map(|point| (point.load, of(point)));
        plot.line(name(curve), points.collect::<Vec<_>>())
    })
}

fn name(curve: &Curve) -> String {
    let cores = if curve.cores == 1 { "1 core" } else { "2 cores" };
    format!("{cores}, {}", curve.order)
}

fn page(results: &Results) -> Page {
    let machine = &results.machine;
    let plots = [
        plot("Median", results, |point| point.p50_ns),
        plot("99th percentile", results, |point| point.p99_ns),
        plot("99.9th percentile", results, |point| point.p999_ns),
    ];
    let mut page = Page::new("Latency of the engine against its load")
        .subtitle(format!("64-byte frames of {} flows, ports in memory", num::exact(results.flows)))
        .command(output::command_line())
        .time(crate::clock::date())
        .card(
            Card::new("processor", &machine.processor)
                .detail(format!("{} CPUs, Linux {}", machine.processors, machine.kernel)),
        )
        .card(
            Card::new("rounds", results.rounds.to_string())
                .detail("each value is the median of the rounds"),
        );
    for curve in &results.curves {
        page = page.card(Card::new(name(curve), Unit::Pps.show(curve.throughput_pps)));
    }
    let section = Section::new("Latency")
        .plots(plots)
        .note(
            "A load is a share of the throughput that was measured in the same round. The time at which a frame is due does \
             not depend on the engine; a frame that the engine takes late counts with the time that it waited.",
        );
    if let Some(note) = remark(results) {
        page = page.footnote(format!("Note: {note}"));
    }
    page = page.section(section).section(Section::new("All values").table(table(results)));
    page.footnote(
        "The order of every flow and the number of frames were checked in each measurement.",
    )
}
