//! `flowyard bench engine`: the engine with ports in memory, on the threads of this machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use flowyard_bench::engine::{BreakEven, Flows, GAIN, Job, Results, Split, Walk, measure};
use flowyard_bench::peers::{Peers, Programs, Rate, Ratio};
use flowyard_report::{Cell, Column, Style, Table, Tone, Unit};
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
  flowyard bench engine --peers --l3fwd ./l3fwd

Rates are medians over all rounds. Every round runs all cases one after another, so that other load
on the machine disturbs all of them alike. The stages are timed in one of 17 iterations, and each
nanosecond of such an iteration belongs to one stage: on a quiet machine with one core, the sum is
the processor time of a frame.
The rates include the cost of this timing.")]
pub(crate) struct Args {
    /// Number of rounds; every round measures every case once
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Duration of each measurement, 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = humantime::parse_duration)]
    time: Duration,

    /// Order in which the 8,192 flows send
    #[arg(long, value_enum, default_value_t = FlowOrder::Both)]
    flows: FlowOrder,

    /// Measure DPDK's l3fwd and testpmd in the same rounds, with the same frames, where they are installed
    #[arg(long)]
    peers: bool,

    /// The program l3fwd, which tests/bench/l3fwd builds [default: dpdk-l3fwd in the search path]
    #[arg(long, value_name = "FILE", requires = "peers")]
    l3fwd: Option<PathBuf>,

    /// The program testpmd [default: dpdk-testpmd in the search path]
    #[arg(long, value_name = "FILE", requires = "peers")]
    testpmd: Option<PathBuf>,

    /// Print JSON (schema flowyard.bench-engine/2) instead of tables
    #[arg(long)]
    json: bool,
}

/// Values of `--flows`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FlowOrder {
    /// The flow of each of 65,536 frames is drawn
    Random,
    /// One frame of each flow after another, as the captures that other programs are measured with
    InOrder,
    /// Random, and the first two cases also in order
    Both,
}

impl From<FlowOrder> for Flows {
    fn from(order: FlowOrder) -> Self {
        match order {
            FlowOrder::Random => Self::Random,
            FlowOrder::InOrder => Self::InOrder,
            FlowOrder::Both => Self::Both,
        }
    }
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
    let programs = Programs::find(args.l3fwd.as_deref(), args.testpmd.as_deref())?;
    let peers = args.peers.then_some(&programs);
    let job = Job {
        rounds: args.rounds,
        time: args.time,
        flows: args.flows.into(),
        peers,
        date: &crate::clock::date(),
        build: crate::VERSION,
    };
    let results = measure(&job, &crate::clock::new(), &progress);
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
    if let Some(peers) = &results.peers {
        text += &beside(peers, &style);
    }
    if results.processors < 2 {
        text += "\nNote: this machine has only one CPU; two cores share it and gain nothing.\n";
    }
    text
}

fn rates(walks: &[Walk]) -> Table {
    let title = "Rate by configuration: 64-byte frames of 8,192 flows, ports in memory";
    let mut table = Table::new(title)
        .column(Column::text("configuration"))
        .column(Column::text("flows"))
        .column(Column::number("cores"))
        .column(Column::number("rate"))
        .column(Column::number("time").unit("ns/frame"))
        .column(Column::number("processor time").unit("ns/frame"));
    for walk in walks {
        table.push([
            Cell::new(walk.name).tone(Tone::Strong),
            Cell::new(walk.source),
            Cell::new(walk.cores.to_string()),
            Cell::new(Unit::Pps.show(walk.pps)),
            Cell::new(format!("{:.1}", walk.ns_per_frame)),
            Cell::new(format!("{:.1}", walk.cpu_ns_per_frame)),
        ]);
    }
    table
}

fn stages(walks: &[Walk]) -> Table {
    let mut table =
        Table::new("Nanoseconds per frame and stage").column(Column::text("configuration"));
    table = table.column(Column::text("flows"));
    for span in Span::ALL {
        table = table.column(Column::number(span.name()));
    }
    table = table.column(Column::number("sum"));
    for walk in walks {
        let of = |name: &str| walk.stages.iter().find(|stage| stage.0 == name).map(|stage| stage.1);
        let cells =
            Span::ALL.map(|span| of(span.name()).map_or("-".into(), |ns| format!("{ns:.1}")));
        let sum = walk.stages.iter().fold(0.0, |sum, stage| sum + stage.1); // sum() of nothing is -0
        let name = [walk.name.to_owned(), walk.source.to_owned()];
        let row = name.into_iter().chain(cells).chain([format!("{sum:.1}")]);
        table.push(row.map(Cell::new).collect::<Vec<_>>());
    }
    table
}

/// The engine beside its peers.
fn beside(peers: &Peers, style: &Style) -> String {
    let title = "One core beside programs of DPDK: 64-byte frames of 8,192 flows in order";
    let mut rates = Table::new(title)
        .column(Column::text("program"))
        .column(Column::number("rate").unit("of processor time"))
        .column(Column::number("lowest"))
        .column(Column::number("highest"));
    for Rate { name, pps, least, most } in &peers.rates {
        let cells = [*pps, *least, *most].map(|pps| Cell::new(Unit::Pps.show(pps)));
        let name = Cell::new(name.as_str()).tone(Tone::Strong);
        rates.push([name].into_iter().chain(cells).collect::<Vec<_>>());
    }
    let mut text = format!("\n{}\n{}", rates.to_text(style), ratios(&peers.ratios).to_text(style));
    if let Some(version) = &peers.version {
        text += &format!("\nPeers: {version}.\n");
    }
    for missing in &peers.missing {
        text += &format!("\nNote: {missing}.\n");
    }
    text
}

/// Ratios to peers.
fn ratios(ratios: &[Ratio]) -> Table {
    let mut table = Table::new("Ratio of the rates, by round")
        .column(Column::text("engine"))
        .column(Column::text("peer"))
        .column(Column::number("ratio").unit("median"))
        .column(Column::number("lowest"))
        .column(Column::number("highest"))
        .column(Column::number("rounds"));
    for Ratio { flowyard, peer, ratio, least, most, rounds } in ratios {
        table.push([
            Cell::new(flowyard.as_str()),
            Cell::new(peer.as_str()),
            Cell::new(format!("{ratio:.2}")).tone(Tone::Strong),
            Cell::new(format!("{least:.2}")),
            Cell::new(format!("{most:.2}")),
            Cell::new(rounds.to_string()),
        ]);
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
