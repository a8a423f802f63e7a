//! `flowyard bench eventdev`: the rules of event schedulers, against a DPDK event device or our own queues.

use flowyard_bench::eventdev::{Job, Kind, Results, Verdict, measure};
use flowyard_report::{Cell, Column, Table, Tone};

use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-eventdev/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench eventdev
  flowyard bench eventdev --device dlb2-model --rounds 0
  flowyard bench eventdev --device event_sw0 --eal=--no-huge --eal=-m --eal=256
  flowyard bench eventdev --device event_opdl0 --json > opdl.json

One thread plays the producer, the workers, the consumer and the scheduler of a software device, so
the events of a rule are the same in each run. Rates of two devices can only be compared if they are
measured in turn on a machine that is otherwise idle.

If a yard can use the device (event_sw), the command also measures five yards over it and the same
yards over flowyard's own queues, in turn, each for 0.3 seconds in a round. The ratio is the rate over
the device divided by the rate over flowyard's own queues.

The exit status is 0, whether the device keeps the rules or not.")]
pub(crate) struct Args {
    /// The device: own for flowyard's queues, dlb2-model for a model of the limits of Intel's DLB 2.0, or an event
    /// device of DPDK with its arguments
    #[arg(long, value_name = "DEVICE", default_value = "own")]
    device: String,

    /// An option of DPDK's environment (may be repeated), as --eal=--no-huge
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    eal: Vec<String>,

    /// Number of rounds in which the rates and the yards are measured; with 0 only the rules are tried
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Number of events in a round of a rate
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    events: u32,

    /// Print JSON (schema flowyard.bench-eventdev/1) instead of tables
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    if args.events == 0 {
        return Err(bad_input("--events: must be at least 1"));
    }
    let job =
        Job { device: &args.device, options: &args.eal, rounds: args.rounds, events: args.events };
    let results = measure(&job, &crate::clock::new())?;
    if args.json {
        return output::json(SCHEMA, results);
    }
    output::text(&text(&results))
}

fn text(results: &Results) -> String {
    let mut table = Table::new(format!("Rules of event schedulers: {}", results.title))
        .column(Column::text("rule"))
        .column(Column::text("result"))
        .column(Column::text("seen"));
    for row in &results.rules {
        let (word, tone) = match row.verdict {
            Verdict::Kept => ("kept", Tone::Good),
            Verdict::Differs => ("differs", Tone::Bad),
            Verdict::Absent => ("absent", Tone::Dim),
        };
        table.push([Cell::new(row.rule), Cell::new(word).tone(tone), Cell::new(row.seen.as_str())]);
    }
    let mut text = table.to_text(&style());
    text += "\nThe demands of the rules:\n";
    for row in &results.rules {
        text += &format!("  {:<22} {}\n", row.rule, row.demands);
    }
    if results.rates.is_empty() {
        return text;
    }
    let mut rates = Table::new("Rate of one stage on one thread")
        .column(Column::text("stage"))
        .column(Column::number("rate").unit("M events/s"))
        .column(Column::number("misordered"))
        .column(Column::number("lost"));
    for rate in &results.rates {
        let kind = match rate.kind {
            Kind::Ordered => "ordered",
            Kind::Atomic => "atomic",
            Kind::Parallel => "parallel",
        };
        let speed =
            rate.million_per_s.map_or_else(|| "absent".into(), |speed| format!("{speed:.1}"));
        let (misordered, lost) = (rate.misordered.to_string(), rate.lost.to_string());
        rates.push([Cell::new(kind), Cell::new(speed), Cell::new(misordered), Cell::new(lost)]);
    }
    text += "\n";
    text += &rates.to_text(&style());
    if results.yards.is_empty() {
        return text;
    }
    text + "\n" + &yards(results).to_text(&style())
}

/// The yards over the device.
fn yards(results: &Results) -> Table {
    let mut table = Table::new("Yards over the device beside flowyard's own queues")
        .column(Column::text("yard"))
        .column(Column::number("own").unit("M frames/s"))
        .column(Column::number("device").unit("M frames/s"))
        .column(Column::number("ratio"));
    for yard in &results.yards {
        let number = |value: f64| Cell::new(format!("{value:.2}"));
        table.push([
            Cell::new(yard.yard),
            number(yard.own_million_per_s),
            number(yard.device_million_per_s),
            number(yard.ratio),
        ]);
    }
    table
}
