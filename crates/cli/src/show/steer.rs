//! The state of `flowyard steer` as tables, for `show` and `top`.

use flowyard_operate::protocol::Steer;
use flowyard_report::{Cell, Column, Table, Tone, num};

/// The stages, in the order of the columns.
const STAGES: [&str; 8] =
    ["rss", "rule", "filter", "settling", "elephant", "no_hash", "dropped", "gap_drop"];

/// Queues, and rings of CPUs. If an earlier state is given, counters are shown as rates.
pub(crate) fn tables(now: &Steer, before: Option<&Steer>) -> Vec<Table> {
    let span = before.map(|before| (now.at_s - before.at_s).max(1e-3));
    let unit = if span.is_some() { "frames/s" } else { "frames" };
    let grown = |now: u64, before: u64| match span {
        None => now,
        Some(span) => (now.saturating_sub(before) as f64 / span).round() as u64,
    };
    let cell = |now: u64, before: u64| Cell::new(num::exact(grown(now, before)));
    let title = format!("{}: {}, {}", now.interface, now.policy, now.attached);
    let mut queues = Table::new(title)
        .column(Column::number("queue"))
        .column(Column::number("CPU"))
        .column(Column::number("bytes").unit(if span.is_some() { "per second" } else { "total" }));
    for stage in STAGES {
        queues = queues.column(Column::number(stage).unit(unit));
    }
    for (at, queue) in now.queues.iter().enumerate() {
        let old = before.and_then(|before| before.queues.get(at));
        let mut cells = vec![
            Cell::new(queue.queue.to_string()).tone(Tone::Strong),
            Cell::new(queue.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string())),
            cell(queue.bytes, old.map_or(0, |old| old.bytes)),
        ];
        cells.extend(STAGES.map(|stage| {
            let of = |frames: &std::collections::BTreeMap<String, u64>| {
                frames.get(stage).copied().unwrap_or_default()
            };
            cell(of(&queue.frames), old.map_or(0, |old| of(&old.frames)))
        }));
        queues.push(cells);
    }
    let learned = num::exact(grown(now.learned_flows, before.map_or(0, |b| b.learned_flows)));
    let moved = num::exact(grown(now.flow_moves, before.map_or(0, |b| b.flow_moves)));
    let per = if span.is_some() { " a second" } else { "" };
    let pins = now.pins.as_ref().map_or(String::new(), |pins| format!("; pinned in {pins}"));
    let queues = queues.note(format!("flows learned{per}: {learned}; moves{per}: {moved}{pins}"));
    let mut all = vec![queues];
    if let Some(rings) = &now.rings {
        let mut table = Table::new("Rings of CPUs")
            .column(Column::number("CPU"))
            .column(Column::number("handed over").unit(unit))
            .column(Column::number("dropped, full").unit(unit));
        for (at, ring) in rings.iter().enumerate() {
            let old = before.and_then(|b| b.rings.as_ref()?.get(at).cloned()).unwrap_or_default();
            table.push([
                Cell::new(ring.cpu.to_string()).tone(Tone::Strong),
                cell(ring.frames, old.frames),
                cell(ring.dropped, old.dropped),
            ]);
        }
        all.push(table);
    }
    all
}
