//! The state of a running instance as tables, for `show` and `top`. If an earlier state is given, counters
//! are shown as rates.

use std::collections::BTreeMap;

use flowyard_operate::protocol::{
    Controllers, CoreState, Cores, Drops, Elephants, Flows, Offload, Queues, Tables,
};
use flowyard_report::{Cell, Column, Table, Tone, Unit, num};

/// How counters are shown.
struct Growth {
    /// As rates over this many seconds; `None`: as totals since the start.
    span: Option<f64>,
}

impl Growth {
    fn since(now: f64, before: Option<f64>) -> Self {
        Self { span: before.map(|before| (now - before).max(1e-3)) }
    }

    fn cell(&self, now: u64, before: u64) -> Cell {
        Cell::new(match self.span {
            None => num::exact(now),
            Some(span) => num::exact((now.saturating_sub(before) as f64 / span).round() as u64),
        })
    }

    fn unit(&self) -> &'static str {
        if self.span.is_some() { "frames/s" } else { "frames" }
    }

    fn times(&self) -> &'static str {
        if self.span.is_some() { "per second" } else { "times" }
    }
}

/// Counters of the cores.
pub(crate) fn cores(now: &Cores, before: Option<&Cores>) -> Table {
    let growth = Growth::since(now.at_s, before.map(|before| before.at_s));
    let mut table = Table::new("Cores")
        .column(Column::number("core"))
        .column(Column::number("received").unit(growth.unit()))
        .column(Column::number("processed").unit(growth.unit()))
        .column(Column::number("sent").unit(growth.unit()))
        .column(Column::number("dropped").unit(growth.unit()))
        .column(Column::number("exact hits").unit(growth.unit()))
        .column(Column::number("flow moves").unit(growth.times()))
        .column(Column::number("moves deferred").unit(growth.unit()))
        .column(Column::number("busy"))
        .column(Column::number("processor time"))
        .column(Column::text("state"));
    let nothing = CoreState::default();
    for core in &now.cores {
        let find = |before: &'_ Cores| before.cores.iter().position(|old| old.core == core.core);
        let old = before.and_then(|b| Some(&b.cores[find(b)?])).unwrap_or(&nothing);
        let grew = |name: &str| growth.cell(core.get(name), old.get(name));
        let span = growth.span.unwrap_or(now.at_s).max(1e-3) * 1e9;
        let share = |name: &str| {
            let ns = core.get(name).saturating_sub(old.get(name)) as f64;
            Cell::new(Unit::Share.show((ns / span).min(1.0)))
        };
        let state = match core.alive {
            true => Cell::new("responds"),
            false => {
                Cell::new("no response: failed, ended, or busy with one batch").tone(Tone::Bad)
            }
        };
        table.push([
            Cell::new(core.core.to_string()).tone(Tone::Strong),
            grew("rx_frames"),
            grew("work_frames"),
            grew("tx_frames"),
            growth.cell(core.dropped(), old.dropped()),
            grew("exact_hit"),
            grew("settle_moved"),
            grew("settle_held"),
            share("busy_ns"),
            share("cpu_ns"),
            state,
        ]);
    }
    let moves = |core: &CoreState| core.get("settle_moved") > 0;
    match now.cores.iter().any(moves) {
        true => table.note(MOVES),
        false => table,
    }
}

/// What counts as a move of a flow.
const MOVES: &str = "flow moves: by a learner, by a changed table, or because flows that go to different queues share a \
                     slot of the settle stage (raise 'settle_slots' in [yard] if nothing else moves flows)";

/// Rules in the adapters of ports: a table for each port, and one for the reasons.
pub(crate) fn offload(now: &Offload) -> Vec<Table> {
    let mut all = Vec::new();
    for port in &now.ports {
        let mut table = Table::new(format!("Adapter of port {}", port.port))
            .column(Column::text("entry"))
            .column(Column::text("matches"))
            .column(Column::text("where the answer comes from"))
            .column(Column::number("counted").unit("frames"));
        for entry in &port.entries {
            table.push([
                Cell::new(entry.entry.as_str()).tone(Tone::Strong),
                Cell::new(entry.matches.as_str()),
                Cell::new(entry.state.as_str()),
                Cell::new(entry.frames.map_or_else(|| "-".into(), num::exact)),
            ]);
        }
        all.push(table.note(format!(
            "The adapter dropped {} counted frames, sent {} out by other ports, and marks {} flows of the work.",
            num::exact(port.dropped_frames),
            num::exact(port.forwarded_frames),
            num::exact(port.marked_flows as u64)
        )));
    }
    let mut table = Table::new("Flows of the work that adapters refused, since the start")
        .column(Column::text("reason"))
        .column(Column::number("refusals"));
    for one in &now.refused_flows {
        table.push([Cell::new(one.reason.as_str()), Cell::new(num::exact(one.flows))]);
    }
    if now.waiting_flows > 0 {
        let waiting = num::exact(now.waiting_flows as u64);
        table = table.note(format!("{waiting} flows wait for their rule to be made or removed."));
    }
    if !now.refused_flows.is_empty() || now.waiting_flows > 0 {
        all.push(table);
    }
    if all.is_empty() {
        let table = Table::new("Adapters").column(Column::text("port"));
        all.push(table.note("No port has an adapter that takes rules."));
    }
    all
}

/// Connections of a switch to its controllers.
pub(crate) fn controllers(now: &Controllers) -> Table {
    let mut table = Table::new("OpenFlow controllers")
        .column(Column::text("controller"))
        .column(Column::text("state"))
        .column(Column::text("OpenFlow"))
        .column(Column::number("connected").unit("times"))
        .column(Column::number("received").unit("messages"))
        .column(Column::number("sent").unit("messages"))
        .column(Column::number("packet-ins dropped"))
        .column(Column::text("last error"));
    for one in &now.connections {
        let name = match (one.peer.is_empty(), one.auxiliary) {
            (true, 0) => one.endpoint.clone(),
            (true, auxiliary) => format!("{} (auxiliary {auxiliary})", one.endpoint),
            (false, _) => format!("{} at {}", one.peer, one.endpoint),
        };
        let state = if one.connected {
            Cell::new("connected").tone(Tone::Good)
        } else {
            let failed = one.failed_attempts;
            Cell::new(format!("not connected, {failed} failed attempts")).tone(Tone::Bad)
        };
        table.push([
            Cell::new(name).tone(Tone::Strong),
            state,
            Cell::new(one.version.as_deref().unwrap_or("-")),
            Cell::new(num::exact(one.ups)),
            Cell::new(num::exact(one.received)),
            Cell::new(num::exact(one.sent)),
            Cell::new(num::exact(one.dropped_packet_ins)),
            Cell::new(one.error.as_str()),
        ]);
    }
    if now.connections.is_empty() {
        return table
            .note("No controller is connected, and the configuration names none to connect to.");
    }
    table
}

/// Queues and transmit queues.
pub(crate) fn queues(now: &Queues, before: Option<&Queues>) -> Table {
    let growth = Growth::since(now.at_s, before.map(|before| before.at_s));
    let mut table = Table::new("Queues")
        .column(Column::text("queue"))
        .column(Column::text("order"))
        .column(Column::text("when full"))
        .column(Column::number("enqueued").unit(growth.unit()))
        .column(Column::number("completed").unit(growth.unit()))
        .column(Column::number("inside").unit("frames"))
        .column(Column::text("cores"))
        .column(Column::text("oldest frame"));
    for (at, queue) in now.queues.iter().enumerate() {
        let old = before.and_then(|before| before.queues.get(at));
        let (enqueued, completed) = old.map_or((0, 0), |old| (old.enqueued, old.completed));
        let cores: Vec<_> = queue.consumers.iter().map(ToString::to_string).collect();
        let name = if queue.tx { format!("{} (tx)", queue.name) } else { queue.name.clone() };
        table.push([
            Cell::new(name).tone(Tone::Strong),
            Cell::new(queue.order.as_str()),
            Cell::new(queue.full.as_str()),
            growth.cell(queue.enqueued, enqueued),
            growth.cell(queue.completed, completed),
            Cell::new(num::exact(queue.enqueued.saturating_sub(queue.completed))),
            Cell::new(cores.join(" ")),
            Cell::new(queue.oldest_held_by.map_or(String::new(), |core| format!("on core {core}"))),
        ]);
    }
    table
}

/// One row for each table of each core. `before` is an earlier state and the seconds since then.
pub(crate) fn occupancy(now: &Tables, before: Option<(&Tables, f64)>) -> Table {
    let growth = Growth { span: before.map(|(_, span)| span.max(1e-3)) };
    let mut table = Table::new("Tables")
        .column(Column::number("core"))
        .column(Column::text("table"))
        .column(Column::number("entries"))
        .column(Column::number("capacity"))
        .column(Column::number("hits").unit(growth.unit()));
    // A table of rules has no fixed size, and its entries are not counted.
    let number = |n: Option<usize>| Cell::new(n.map_or("-".into(), |n| num::exact(n as u64)));
    for core in &now.cores {
        let old = before.and_then(|(b, _)| b.cores.iter().find(|old| old.core == core.core));
        for (at, one) in core.tables.iter().enumerate() {
            let hits = old.and_then(|old| old.tables.get(at)).map_or(0, |old| old.hits);
            table.push([
                Cell::new(core.core.to_string()),
                Cell::new(one.name.as_str()).tone(Tone::Strong),
                number(one.entries),
                number(one.capacity),
                growth.cell(one.hits, hits),
            ]);
        }
        let size = Some(core.indirection.len());
        table.push([
            Cell::new(core.core.to_string()),
            Cell::new("indirection").tone(Tone::Strong),
            number(size),
            number(size),
            growth.cell(core.indirection_hits, old.map_or(0, |old| old.indirection_hits)),
        ]);
    }
    match now.silent_cores.is_empty() {
        true => table,
        false => table.note(silent(&now.silent_cores)),
    }
}

fn silent(cores: &[u16]) -> String {
    let names: Vec<_> = cores.iter().map(ToString::to_string).collect();
    format!("no response from core {}: failed, ended, or busy with one batch", names.join(", "))
}

/// The tables and their entries.
pub(crate) fn tables(all: &Tables, most: usize) -> Vec<Table> {
    let mut out = vec![occupancy(all, None)];
    for core in &all.cores {
        for one in core.tables.iter().filter(|one| !one.listed.is_empty()) {
            let mut table = Table::new(format!("Table {} of core {}", one.name, core.core))
                .column(Column::text("flow"))
                .column(Column::text("destination"))
                .column(Column::number("mark"));
            for entry in &one.listed {
                let (flow, to) = (entry.flow.as_str(), entry.to.as_str());
                table.push([Cell::new(flow), Cell::new(to), Cell::new(entry.mark.to_string())]);
            }
            let more = one.entries.unwrap_or(0).saturating_sub(one.listed.len());
            out.push(match more {
                0 => table,
                _ => table.note(format!("{more} more entries; --entries N lists more than {most}")),
            });
        }
        let mut by_place = BTreeMap::<&str, Vec<usize>>::new();
        for (entry, to) in core.indirection.iter().enumerate() {
            by_place.entry(to).or_default().push(entry);
        }
        let mut table = Table::new(format!("Indirection table of core {}", core.core))
            .column(Column::text("destination"))
            .column(Column::number("entries"))
            .column(Column::text("entry numbers"));
        for (to, entries) in by_place {
            table.push([
                Cell::new(to),
                Cell::new(entries.len().to_string()),
                Cell::new(some(&entries, 12)),
            ]);
        }
        out.push(table);
    }
    out
}

/// The first of these numbers.
fn some(numbers: &[usize], most: usize) -> String {
    let first: Vec<_> = numbers.iter().take(most).map(ToString::to_string).collect();
    let more = if numbers.len() > most { " ..." } else { "" };
    first.join(" ") + more
}

/// The largest flows of each core.
pub(crate) fn flows(all: &Flows) -> Vec<Table> {
    let mut table =
        Table::new(format!("Largest flows of each core, counted for {} s", all.seconds))
            .column(Column::number("core"))
            .column(Column::number("share of bytes").unit("at least"))
            .column(Column::number("").unit("at most"))
            .column(Column::text("flow"))
            .column(Column::text("hash"));
    for core in &all.cores {
        for flow in &core.flows {
            table.push([
                Cell::new(core.core.to_string()),
                Cell::new(Unit::Share.show(flow.share)),
                Cell::new(Unit::Share.show(flow.share_at_most)),
                Cell::new(flow.flow.as_str()),
                Cell::new(format!("{:#010x}", flow.hash)),
            ]);
        }
        if core.flows.is_empty() {
            table = table.note(format!("core {} processed {} frames", core.core, core.frames));
        }
    }
    if !all.silent_cores.is_empty() {
        table = table.note(silent(&all.silent_cores));
    }
    vec![table]
}

/// Flows that are split over cores, and the latest decisions.
pub(crate) fn elephants(all: &Elephants, most: usize) -> Vec<Table> {
    let mut promoted = Table::new("Flows split over cores")
        .column(Column::text("flow"))
        .column(Column::text("destination"));
    for entry in &all.promoted {
        promoted.push([Cell::new(entry.flow.as_str()), Cell::new(entry.to.as_str())]);
    }
    if all.promoted.is_empty() {
        promoted =
            promoted.note("none; [elephants] in the configuration turns this on (see docs/run.md)");
    }
    let mut decisions = Table::new("Decisions about elephants, newest last")
        .column(Column::number("time").unit("s"))
        .column(Column::number("core"))
        .column(Column::number("busy"))
        .column(Column::number("queued").unit("frames"))
        .column(Column::text("decision"));
    for decision in &all.decisions[all.decisions.len().saturating_sub(most)..] {
        decisions.push([
            Cell::new(format!("{:.3}", decision.at_s)),
            Cell::new(decision.core.to_string()),
            Cell::new(Unit::Share.show(decision.busy)),
            Cell::new(num::exact(decision.waiting)),
            Cell::new(decision.text.as_str()),
        ]);
    }
    if all.decisions.is_empty() { vec![promoted] } else { vec![promoted, decisions] }
}

/// Drops by reason, how to avoid each, and the latest drops.
pub(crate) fn drops(all: &Drops, most: usize) -> Vec<Table> {
    let mut reasons = Table::new("Drops")
        .column(Column::text("reason"))
        .column(Column::number("frames"))
        .column(Column::text("core: frames"))
        .column(Column::text("fix"));
    for drop in &all.reasons {
        let by = (0..).zip(&drop.cores).filter(|(_, frames)| **frames > 0);
        let by: Vec<_> = by.map(|(core, frames): (u16, _)| format!("{core}: {frames}")).collect();
        reasons.push([
            Cell::new(drop.reason.as_str()).tone(Tone::Strong),
            Cell::new(num::exact(drop.frames)),
            Cell::new(by.join(", ")),
            Cell::new(drop.fix.as_str()),
        ]);
    }
    if all.reasons.is_empty() {
        reasons = reasons.note("no frame was dropped");
    }
    let mut last = Table::new("Latest dropped frames, newest last")
        .column(Column::number("age").unit("s"))
        .column(Column::number("core"))
        .column(Column::text("reason"))
        .column(Column::text("place"))
        .column(Column::text("flow"));
    for drop in &all.last[all.last.len().saturating_sub(most)..] {
        let flow =
            drop.flow.clone().unwrap_or_else(|| format!("{} frames, not parsed", drop.frames));
        last.push([
            Cell::new(format!("{:.3}", (all.at_s - drop.at_s).max(0.0))),
            Cell::new(drop.core.to_string()),
            Cell::new(drop.reason.as_str()),
            Cell::new(drop.place.as_str()),
            Cell::new(flow),
        ]);
    }
    if !all.silent_cores.is_empty() {
        last = last.note(silent(&all.silent_cores));
    }
    if all.last.is_empty() { vec![reasons] } else { vec![reasons, last] }
}
