//! The final counters of a run, as text and as JSON: every core, every queue, every drop.

use std::collections::BTreeMap;

use flowyard_flow::learn::elephant::Decision;
use flowyard_report::{Cell, Column, Style, Table, Tone, Unit, num};
use flowyard_yard::Counters;
use flowyard_yard::run::Outcome;
use schemars::JsonSchema;
use serde::Serialize;

/// The JSON document of `flowyard run --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// Duration of the run.
    elapsed_s: f64,
    /// Whether frames in + copies = frames out + drops + frames held.
    balanced: bool,
    /// Frames still inside at the end.
    held: u64,
    /// The sum over all cores.
    total: CoreCounters,
    /// In the order of core numbers.
    cores: Vec<CoreCounters>,
    /// The queues of the configuration, then the tx queue of each port.
    queues: Vec<QueueCounters>,
    /// Decisions about elephants, oldest first.
    decisions: Vec<DecisionReport>,
    /// Counters that table entries name.
    counters: Vec<NamedCounter>,
    /// Remarks, such as on cores that are not pinned, in sentences.
    remarks: Vec<String>,
    /// Captures that could not be read or written to the end, and why; the command then ends with status 1.
    failed: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct CoreCounters {
    /// Frames received.
    rx_frames: u64,
    /// Bytes received.
    rx_bytes: u64,
    /// Frames transmitted.
    tx_frames: u64,
    /// Bytes transmitted.
    tx_bytes: u64,
    /// Copies of frames that leave by several ports, and frames that the work makes.
    copies: u64,
    /// Frames that the core worked on.
    work_frames: u64,
    /// Frames that an exact, promoted or learnt entry matched.
    exact_hit: u64,
    /// Frames that a rule matched.
    rule_hit: u64,
    /// Flows that moved to another queue.
    settle_moved: u64,
    /// Frames that stayed on the old queue of their flow because a move was not safe yet.
    settle_held: u64,
    /// Share of the time in ticks that moved frames.
    busy_share: f64,
    /// Share of the time that the threads of the cores used a CPU; 0 in a simulation.
    cpu_share: f64,
    /// Decisions to split a flow over cores.
    promoted: u64,
    /// Decisions to return a split flow to one core.
    demoted: u64,
    /// Entries of the indirection table that were moved to another core.
    rebalanced: u64,
    /// Overloads for which nothing was done.
    refused: u64,
    /// Frames dropped, by reason.
    drops: BTreeMap<&'static str, u64>,
    /// Why the core died, if it did.
    died: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct DecisionReport {
    /// When it was made, in seconds since the start.
    at_s: f64,
    /// The core that it is about.
    core: u16,
    /// `rebalance`, `promote`, `outcome`, `demote`, `undo` or `refuse`.
    what: &'static str,
    /// The flow, if the decision is about one.
    flow: Option<String>,
    /// The decision in words, with its numbers.
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct QueueCounters {
    /// The name of the queue, or of the port for a tx queue.
    name: String,
    /// `direct`, `unordered`, `ordered` or `atomic`.
    order: String,
    /// Whether it is the tx queue of a port.
    tx: bool,
    /// Frames that were enqueued.
    enqueued: u64,
    /// Frames that were completed.
    completed: u64,
}

#[derive(Serialize, JsonSchema)]
struct NamedCounter {
    /// The name in the configuration.
    name: String,
    /// Frames counted.
    frames: u64,
    /// Bytes counted.
    bytes: u64,
    /// Frames by the core that received them.
    cores: Vec<u64>,
}

impl Report {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let core = |counters: &Counters, died: Option<String>, cores: usize| CoreCounters {
            rx_frames: counters.rx_frames,
            rx_bytes: counters.rx_bytes,
            tx_frames: counters.tx_frames,
            tx_bytes: counters.tx_bytes,
            copies: counters.copies,
            work_frames: counters.work_frames,
            exact_hit: counters.exact_hit,
            rule_hit: counters.rule_hit,
            settle_moved: counters.settle_moved,
            settle_held: counters.settle_held,
            busy_share: share(counters.busy_ns, outcome, cores),
            cpu_share: share(counters.cpu_ns, outcome, cores),
            promoted: counters.promoted,
            demoted: counters.demoted,
            rebalanced: counters.rebalanced,
            refused: counters.refused,
            drops: counters.drops.iter().map(|(reason, frames)| (reason.name(), frames)).collect(),
            died,
        };
        Self {
            elapsed_s: outcome.elapsed as f64 / 1e9,
            balanced: outcome.is_balanced(),
            held: outcome.held as u64,
            total: core(&outcome.total(), None, outcome.cores.len()),
            cores: outcome
                .cores
                .iter()
                .map(|one| core(&one.counters, one.died.clone(), 1))
                .collect(),
            queues: outcome
                .queues
                .iter()
                .map(|queue| QueueCounters {
                    name: queue.name.clone(),
                    order: format!("{:?}", queue.order).to_lowercase(),
                    tx: queue.is_tx,
                    enqueued: queue.enqueued,
                    completed: queue.completed,
                })
                .collect(),
            decisions: outcome.decisions.iter().map(DecisionReport::of).collect(),
            counters: outcome
                .counts
                .iter()
                .map(|count| NamedCounter {
                    name: count.name.clone(),
                    frames: count.total().frames,
                    bytes: count.total().bytes,
                    cores: count.cores.iter().map(|core| core.frames).collect(),
                })
                .collect(),
            remarks: outcome.remarks.clone(),
            failed: outcome.failed.clone(),
        }
    }
}

impl DecisionReport {
    fn of(decision: &Decision) -> Self {
        Self {
            at_s: decision.at as f64 / 1e9,
            core: decision.core,
            what: decision.what.kind(),
            flow: decision.what.flow().map(ToString::to_string),
            text: decision.to_string(),
        }
    }
}

/// The share of the run that `ns` of a core, or of this number of cores together, are.
fn share(ns: u64, outcome: &Outcome, cores: usize) -> f64 {
    let whole = outcome.elapsed.max(1) as f64 * cores.max(1) as f64;
    (ns as f64 / whole).min(1.0)
}

/// The counters as text.
pub(crate) fn text(outcome: &Outcome, style: &Style) -> String {
    let total = outcome.total();
    let seconds = outcome.elapsed as f64 / 1e9;
    let copies = match total.copies {
        0 => String::new(),
        copies => format!(" {} copied,", num::exact(copies)),
    };
    let mut text = format!(
        "{} frames in,{copies} {} out, {} dropped, {} held, in {} ({})\n\n",
        num::exact(total.rx_frames),
        num::exact(total.tx_frames),
        num::exact(total.drops.total()),
        num::exact(outcome.held as u64),
        Unit::Nanos.show(outcome.elapsed as f64),
        Unit::Pps.show(total.rx_frames as f64 / seconds.max(1e-9)),
    );
    text += &cores(outcome).to_text(style);
    text += "\n";
    text += &queues(outcome).to_text(style);
    if !outcome.counts.is_empty() {
        text += "\n";
        text += &counters(outcome).to_text(style);
    }
    if let Some(drops) = drops(outcome) {
        text += "\n";
        text += &drops.to_text(style);
    }
    if !outcome.decisions.is_empty() {
        text += "\n";
        text += &elephants(outcome).to_text(style);
    }
    for remark in &outcome.remarks {
        text += &format!("\nNote: {remark}\n");
    }
    for failed in &outcome.failed {
        text += &format!("\nFailed: {failed}\n");
    }
    text
}

fn cores(outcome: &Outcome) -> Table {
    let mut table = Table::new("Cores")
        .column(Column::number("core"))
        .column(Column::number("received").unit("frames"))
        .column(Column::number("").unit("bytes"))
        .column(Column::number("processed").unit("frames"))
        .column(Column::number("sent").unit("frames"))
        .column(Column::number("").unit("bytes"))
        .column(Column::number("dropped").unit("frames"))
        .column(Column::number("exact hits").unit("frames"))
        .column(Column::number("rule hits").unit("frames"))
        .column(Column::number("flow moves").unit("times"))
        .column(Column::number("moves deferred").unit("frames"))
        .column(Column::number("busy"))
        .column(Column::number("processor time"));
    let row = |name: Cell, c: &Counters, cores: usize| {
        [
            name,
            Cell::new(num::exact(c.rx_frames)),
            Cell::new(Unit::Bytes.show(c.rx_bytes as f64)),
            Cell::new(num::exact(c.work_frames)),
            Cell::new(num::exact(c.tx_frames)),
            Cell::new(Unit::Bytes.show(c.tx_bytes as f64)),
            Cell::new(num::exact(c.drops.total())),
            Cell::new(num::exact(c.exact_hit)),
            Cell::new(num::exact(c.rule_hit)),
            Cell::new(num::exact(c.settle_moved)),
            Cell::new(num::exact(c.settle_held)),
            Cell::new(Unit::Share.show(share(c.busy_ns, outcome, cores))),
            Cell::new(Unit::Share.show(share(c.cpu_ns, outcome, cores))),
        ]
    };
    for (number, core) in outcome.cores.iter().enumerate() {
        let tone = if core.died.is_some() { Tone::Bad } else { Tone::Strong };
        table.push(row(Cell::new(number.to_string()).tone(tone), &core.counters, 1));
    }
    table.total(row(Cell::new("all"), &outcome.total(), outcome.cores.len()))
}

fn queues(outcome: &Outcome) -> Table {
    let mut table = Table::new("Queues")
        .column(Column::text("queue"))
        .column(Column::text("order"))
        .column(Column::number("enqueued").unit("frames"))
        .column(Column::number("inside").unit("frames"));
    for queue in &outcome.queues {
        let name = if queue.is_tx { format!("{} (tx)", queue.name) } else { queue.name.clone() };
        table.push([
            Cell::new(name).tone(Tone::Strong),
            Cell::new(format!("{:?}", queue.order).to_lowercase()),
            Cell::new(num::exact(queue.enqueued)),
            Cell::new(num::exact(queue.enqueued - queue.completed)),
        ]);
    }
    table
}

/// Maximum number of decisions to print, the latest ones.
const SHOWN: usize = 20;

fn elephants(outcome: &Outcome) -> Table {
    let all = &outcome.decisions;
    let title = match all.len() {
        ..=SHOWN => "Elephants".into(),
        more => format!("Elephants (the last {SHOWN} of {more} decisions)"),
    };
    let mut table = Table::new(title)
        .column(Column::number("time").unit("s"))
        .column(Column::number("core"))
        .column(Column::number("busy"))
        .column(Column::number("queued").unit("frames"))
        .column(Column::number("dropped").unit("frames"))
        .column(Column::text("decision"));
    for decision in &all[all.len().saturating_sub(SHOWN)..] {
        table.push([
            Cell::new(format!("{:.3}", decision.at as f64 / 1e9)),
            Cell::new(decision.core.to_string()),
            Cell::new(Unit::Share.show(decision.load.busy)),
            Cell::new(num::exact(decision.load.queue_len)),
            Cell::new(num::exact(decision.load.drops)),
            Cell::new(decision.what.to_string()),
        ]);
    }
    table
}

fn counters(outcome: &Outcome) -> Table {
    let mut table = Table::new("Counters")
        .column(Column::text("counter"))
        .column(Column::number("frames"))
        .column(Column::number("bytes"));
    for count in &outcome.counts {
        table.push([
            Cell::new(count.name.clone()).tone(Tone::Strong),
            Cell::new(num::exact(count.total().frames)),
            Cell::new(Unit::Bytes.show(count.total().bytes as f64)),
        ]);
    }
    table
}

fn drops(outcome: &Outcome) -> Option<Table> {
    let mut table =
        Table::new("Drops").column(Column::text("reason")).column(Column::number("frames"));
    for (reason, frames) in outcome.total().drops.iter() {
        table.push([Cell::new(reason.name()), Cell::new(num::exact(frames))]);
    }
    (!table.is_empty()).then_some(table)
}
