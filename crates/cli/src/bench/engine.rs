//! `flowyard bench engine`: the engine with ports in memory, on the threads of this machine.

use std::time::Duration;

use flowyard_bench::engine::{BreakEven, GAIN, Results, Split, Walk, measure};
use flowyard_report::{Cell, Column, Table, Tone, Unit};
use flowyard_yard::Span;

use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-engine/2";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench engine
  flowyard bench engine --rounds 9 --json

Rates are medians over all rounds. Every round runs all cases one after another, so that other load
on the machine disturbs all of them alike. With one core, the stages are timed in every sixteenth
iteration; the rates include the cost of this timing.")]
pub(crate) struct Args {
    /// Number of rounds; every round measures every case once
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Duration of each measurement, 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = humantime::parse_duration)]
    time: Duration,

    /// Print JSON (schema flowyard.bench-engine/2) instead of tables
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.rounds == 0 {
        return Err(bad_input("--rounds: must be at least 1"));
    }
    if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&args.time) {
        return Err(bad_input("--time: must be 1ms to 60s"));
    }
    let bar = Progress::new("{bar:40} {pos}/{len} measurements, {eta} left");
    let progress = |done: usize, of: usize| bar.at(done as u64, of as u64);
    let results = measure(args.rounds, args.time, &crate::clock::new(), &progress);
    drop(bar);
    let results = results.map_err(Stop::Failed)?;
    if args.json {
        return output::json(SCHEMA, results);
    }
    output::text(&text(&results))
}

fn text(results: &Results) -> String {
    let (style, walks) = (style(), &results.walks);
    let mut text = [rates(walks), stages(walks), splits(&results.splits)]
        .map(|table| table.to_text(&style))
        .join("\n");
    let BreakEven { rx_ns, handoff_ns, commit_ns, two_cores_ns } = &results.break_even;
    text += &match (two_cores_ns, &results.inconclusive) {
        (Some(least), None) if least.is_finite() => format!(
            "\nBreak-even: splitting one flow over two cores gains a factor of {GAIN} or more if the work takes at \
             least {least:.0} ns per frame.\n"
        ),
        (_, Some(why)) => format!("\nNo break-even can be concluded: {why}.\n"),
        (_, None) => {
            "\nBreak-even: splitting one flow over two cores pays at no amount of work.\n".into()
        }
    };
    text += &format!(
        "Costs measured, from the last row of the stage table: rx to settle {rx_ns:.1} ns, one side of a hand-off \
         {handoff_ns:.1} ns, commit {commit_ns:.1} ns.\n[elephants] in a configuration measures the same costs \
         while the engine runs.\n"
    );
    if results.processors < 2 {
        text += "\nNote: this machine has only one CPU; two cores share it and gain nothing.\n";
    }
    text
}

fn rates(walks: &[Walk]) -> Table {
    let title = "Rate by configuration: 64-byte frames of 8,192 flows, ports in memory";
    let mut table = Table::new(title)
        .column(Column::text("configuration"))
        .column(Column::number("cores"))
        .column(Column::number("rate"))
        .column(Column::number("time").unit("ns/frame"));
    for walk in walks {
        table.push([
            Cell::new(walk.name).tone(Tone::Strong),
            Cell::new(walk.cores.to_string()),
            Cell::new(Unit::Pps.show(walk.pps)),
            Cell::new(format!("{:.1}", walk.ns_per_frame)),
        ]);
    }
    table
}

fn stages(walks: &[Walk]) -> Table {
    let mut table =
        Table::new("Nanoseconds per frame and stage").column(Column::text("configuration"));
    for span in Span::ALL {
        table = table.column(Column::number(span.name()));
    }
    table = table.column(Column::number("sum"));
    for walk in walks {
        let of = |name: &str| walk.stages.iter().find(|stage| stage.0 == name).map(|stage| stage.1);
        let cells =
            Span::ALL.map(|span| of(span.name()).map_or("-".into(), |ns| format!("{ns:.1}")));
        let sum = walk.stages.iter().fold(0.0, |sum, stage| sum + stage.1); // sum() of nothing is -0
        let row = [walk.name.to_owned()].into_iter().chain(cells).chain([format!("{sum:.1}")]);
        table.push(row.map(Cell::new).collect::<Vec<_>>());
    }
    table
}

fn splits(splits: &[Split]) -> Table {
    let title = "One flow on one core, and split over two cores by an ordered queue";
    let mut table = Table::new(title)
        .column(Column::text("work"))
        .column(Column::number("work").unit("ns/frame"))
        .column(Column::number("one core"))
        .column(Column::number("two cores"))
        .column(Column::number("gain").unit("measured"))
        .column(Column::number("gain").unit("predicted"));
    for split in splits {
        table.push([
            Cell::new(split.work.clone()),
            Cell::new(format!("{:.0}", split.work_ns)),
            Cell::new(Unit::Pps.show(split.one_pps)),
            Cell::new(Unit::Pps.show(split.two_pps)),
            Cell::new(format!("{:.2}", split.gain)).tone(Tone::Strong),
            Cell::new(format!("{:.2}", split.expected)),
        ]);
    }
    table
}
