//! `flowyard bench engine`: the engine with ports in memory, on the threads of this machine.
//!
//! Three tables: frames per second, nanoseconds per frame and stage, and the gain of splitting one flow
//! over two cores at several costs of work, beside the gain predicted from the stage costs.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::Duration;

use flowyard_flow::learn::elephant::{Costs, Room};
use flowyard_report::{Cell, Column, Document, Table, Tone, Unit};
use flowyard_yard::{Clock, Span, Stages};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::rounds::{Case, Load, Round, median};
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench engine
  flowyard bench engine --rounds 9 --json

Rates are medians over all rounds. Every round runs all cases one after another, so that other load
on the machine disturbs all of them alike. A core that does all the work times its stages in one
iteration of sixteen; the rates include the cost of that.")]
pub(crate) struct Args {
    /// Number of rounds; every round measures every case once
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Duration of each measurement, 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = humantime::parse_duration)]
    time: Duration,

    /// Print JSON (schema flowyard.bench-engine/1) instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Results {
    processors: usize,
    rounds: usize,
    walks: Vec<Walk>,
    splits: Vec<Split>,
    break_even: BreakEven,
}

/// One configuration of the engine.
#[derive(Serialize)]
struct Walk {
    name: &'static str,
    cores: u16,
    /// Frames per second, the median of the rounds.
    pps: f64,
    /// 10^9 / `pps`.
    ns_per_frame: f64,
    /// Nanoseconds per frame by stage, over all rounds; a stage that was not timed is missing.
    stages: Vec<(&'static str, f64)>,
}

/// One flow on one core and on two.
#[derive(Serialize)]
struct Split {
    /// The work done on each frame.
    work: String,
    /// Cost of the work in nanoseconds per frame, beyond that of forwarding.
    work_ns: f64,
    one_pps: f64,
    two_pps: f64,
    /// `two_pps / one_pps`, the median of the rounds' ratios.
    gain: f64,
    /// The gain predicted from the costs per stage.
    expected: f64,
}

/// The costs that decide from which work per frame on splitting a flow pays.
#[derive(Serialize)]
struct BreakEven {
    rx_ns: f64,
    handoff_ns: f64,
    commit_ns: f64,
    /// The least work per frame, in nanoseconds, at which two cores that share all stages gain
    /// [`GAIN`].
    two_cores_ns: f64,
}

/// Costs of the work at which one flow is split, in nanoseconds per frame.
const COSTS: [u64; 7] = [0, 50, 100, 200, 500, 1000, 2600];

/// Load balancer modes in which one flow is split.
const MODES: [&str; 3] = ["dsr", "ipip", "fullnat"];

/// The least gain that justifies a split: the default in `[elephants]`.
const GAIN: f64 = 1.1;

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.rounds == 0
        || args.time < Duration::from_millis(1)
        || args.time > Duration::from_secs(60)
    {
        return Err(bad_input("--rounds: must be at least 1; --time: must be 1ms to 60s"));
    }
    let results = measure(args, &crate::run::clock()).map_err(Stop::Failed)?;
    let mut out = stdout().lock();
    if args.json {
        let document = Document::new("flowyard.bench-engine/1", results);
        let json = document.to_json().map_err(anyhow::Error::from).map_err(Stop::Failed)?;
        out.write_all(json.as_bytes())?;
    } else {
        out.write_all(text(&results).as_bytes())?;
    }
    Ok(out.flush()?)
}

fn walks() -> Vec<(&'static str, Case)> {
    let one = Case {
        cores: 1,
        order: "direct",
        consumers: vec![0],
        load: Load::Forward,
        flows: 8192,
        exact: false,
        length: 60,
    };
    let two = Case { cores: 2, consumers: vec![1], ..one.clone() };
    vec![
        ("hash (RSS)", one.clone()),
        ("exact entry for each flow", Case { exact: true, ..one.clone() }),
        ("hash, atomic queue", Case { order: "atomic", ..one.clone() }),
        ("hash, ordered queue", Case { order: "ordered", ..one.clone() }),
        ("hash, 1,514-byte frames", Case { length: 1514, ..one }),
        ("passed to a second core", two.clone()),
        ("passed to a second core in order", Case { order: "ordered", ..two }),
    ]
}

fn split(load: Load) -> [Case; 2] {
    let one = Case {
        cores: 1,
        order: "direct",
        consumers: vec![0],
        load,
        flows: 1,
        exact: false,
        length: 60,
    };
    let two = Case { cores: 2, order: "ordered", consumers: vec![0, 1], ..one.clone() };
    [one, two]
}

fn measure(args: &Args, clock: &Clock) -> anyhow::Result<Results> {
    let (walks, splits) = (walks(), COSTS.map(|ns| (ns, split(Load::Burn(ns)))));
    let modes = MODES.map(|mode| (mode, split(Load::Balance(mode))));
    let steps = args.rounds * (walks.len() + 2 * (splits.len() + modes.len()));
    let bar = bar(steps as u64);
    let mut walked = vec![Vec::new(); walks.len()];
    let mut shared = vec![Vec::new(); splits.len()];
    let mut balanced = vec![Vec::new(); modes.len()];
    let round = |case: &Case| {
        let round = case.round(args.time, clock);
        if let Some(bar) = &bar {
            bar.inc(1);
        }
        round
    };
    for _ in 0..args.rounds {
        for ((_, case), rounds) in walks.iter().zip(&mut walked) {
            rounds.push(round(case)?);
        }
        for ((_, [one, two]), rounds) in splits.iter().zip(&mut shared) {
            rounds.push([round(one)?, round(two)?]);
        }
        for ((_, [one, two]), rounds) in modes.iter().zip(&mut balanced) {
            rounds.push([round(one)?, round(two)?]);
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let walks: Vec<_> =
        walks.iter().zip(&walked).map(|((name, case), r)| walk(name, case, r)).collect();
    // The stage costs of two cores with an ordered queue between them.
    let costs = walked.last().map_or_else(Stages::default, |rounds| sum(rounds));
    let costs = costs_of(&costs);
    let compare = |what: String, ns: f64, rounds: &[[Round; 2]]| compare(what, ns, rounds, costs);
    let mut compared: Vec<Split> = splits
        .iter()
        .zip(&shared)
        .map(|((ns, _), rounds)| compare(format!("{ns} ns"), *ns as f64, rounds))
        .collect();
    for ((mode, _), rounds) in modes.iter().zip(&balanced) {
        // Cost of the balancer beyond that of forwarding.
        let alone = rounds.iter().fold(Stages::default(), |sum, [one, _]| sum.plus(&one.stages));
        let ns = costs_of(&alone).work_ns - costs.work_ns;
        compared.push(compare(format!("balance, {mode}"), ns.max(0.0), rounds));
    }
    let room = Room { home: 1.0, workers: 2.0, cores: 2.0 };
    Ok(Results {
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        rounds: args.rounds,
        splits: compared,
        break_even: BreakEven {
            rx_ns: costs.rx_ns,
            handoff_ns: costs.handoff_ns,
            commit_ns: costs.commit_ns,
            two_cores_ns: costs.break_even_ns(&room, GAIN),
        },
        walks,
    })
}

fn sum(rounds: &[Round]) -> Stages {
    rounds.iter().fold(Stages::default(), |sum, round| sum.plus(&round.stages))
}

fn walk(name: &'static str, case: &Case, rounds: &[Round]) -> Walk {
    let pps = median(rounds.iter().map(|round| round.pps).collect());
    let stages = sum(rounds);
    let stage = |span: Span| Some((span.name(), stages.ns_per_frame(span)?));
    Walk {
        name,
        cores: case.cores,
        pps,
        ns_per_frame: 1e9 / pps.max(1.0),
        stages: Span::ALL.into_iter().filter_map(stage).collect(),
    }
}

fn costs_of(stages: &Stages) -> Costs {
    let ns =
        |spans: &[Span]| spans.iter().filter_map(|&span| stages.ns_per_frame(span)).sum::<f64>();
    Costs {
        rx_ns: ns(&[Span::Rx, Span::Parse, Span::Steer, Span::Settle]),
        work_ns: ns(&[Span::Work, Span::Tx]),
        handoff_ns: ns(&[Span::Enqueue, Span::Dequeue]) / 2.0,
        commit_ns: ns(&[Span::Complete]),
    }
}

fn compare(work: String, work_ns: f64, rounds: &[[Round; 2]], costs: Costs) -> Split {
    let of = |at: usize| median(rounds.iter().map(|round| round[at].pps).collect());
    let gains = rounds.iter().map(|[one, two]| two.pps / one.pps.max(1.0));
    let room = Room { home: 1.0, workers: 2.0, cores: 2.0 };
    let costs = Costs { work_ns: costs.work_ns + work_ns, ..costs };
    Split {
        work,
        work_ns,
        one_pps: of(0),
        two_pps: of(1),
        gain: median(gains.collect()),
        expected: costs.estimate(room, GAIN).gain(),
    }
}

fn bar(steps: u64) -> Option<ProgressBar> {
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} measurements, {eta} left").ok()?;
    stderr().is_terminal().then(|| ProgressBar::new(steps).with_style(style))
}

fn text(results: &Results) -> String {
    let style = crate::style();
    let mut rates =
        Table::new("Rate by configuration: 64-byte frames of 8,192 flows, ports in memory")
            .column(Column::text("configuration"))
            .column(Column::number("cores"))
            .column(Column::number("rate"))
            .column(Column::number("time").unit("ns/frame"));
    let mut stages =
        Table::new("Nanoseconds per frame and stage").column(Column::text("configuration"));
    for span in Span::ALL {
        stages = stages.column(Column::number(span.name()));
    }
    stages = stages.column(Column::number("sum"));
    for walk in &results.walks {
        rates.push([
            Cell::new(walk.name).tone(Tone::Strong),
            Cell::new(walk.cores.to_string()),
            Cell::new(Unit::Pps.show(walk.pps)),
            Cell::new(format!("{:.1}", walk.ns_per_frame)),
        ]);
        let of = |name: &str| walk.stages.iter().find(|stage| stage.0 == name).map(|stage| stage.1);
        let cells =
            Span::ALL.map(|span| of(span.name()).map_or("-".into(), |ns| format!("{ns:.1}")));
        let all = walk.stages.iter().fold(0.0, |sum, stage| sum + stage.1); // sum() of nothing is -0
        let row = [walk.name.to_owned()].into_iter().chain(cells).chain([format!("{all:.1}")]);
        stages.push(row.map(Cell::new).collect::<Vec<_>>());
    }
    let mut splits =
        Table::new("One flow on one core, and split over two cores by an ordered queue")
            .column(Column::text("work"))
            .column(Column::number("work").unit("ns/frame"))
            .column(Column::number("one core"))
            .column(Column::number("two cores"))
            .column(Column::number("gain").unit("measured"))
            .column(Column::number("gain").unit("predicted"));
    for split in &results.splits {
        splits.push([
            Cell::new(split.work.clone()),
            Cell::new(format!("{:.0}", split.work_ns)),
            Cell::new(Unit::Pps.show(split.one_pps)),
            Cell::new(Unit::Pps.show(split.two_pps)),
            Cell::new(format!("{:.2}", split.gain)).tone(Tone::Strong),
            Cell::new(format!("{:.2}", split.expected)),
        ]);
    }
    let BreakEven { rx_ns, handoff_ns, commit_ns, two_cores_ns } = &results.break_even;
    let mut text = rates.to_text(&style);
    text += "\n";
    text += &stages.to_text(&style);
    text += "\n";
    text += &splits.to_text(&style);
    text += &format!(
        "\nBreak-even: splitting one flow over two cores gains a factor of {GAIN} or more if the work takes at \
         least {two_cores_ns:.0} ns per frame.\nCosts used, from the last row of the stage table: rx to settle \
         {rx_ns:.1} ns, one side of a hand-off {handoff_ns:.1} ns, commit {commit_ns:.1} ns.\n[elephants] in a \
         configuration measures the same costs while the engine runs.\n"
    );
    if results.processors < 2 {
        text += "\nNote: this machine has only one CPU; two cores share it and gain nothing.\n";
    }
    text
}
