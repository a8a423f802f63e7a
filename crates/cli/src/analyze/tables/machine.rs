//! Tables of what lies around steering: rule counters, interrupts, tenants, storage, management.

use std::collections::BTreeMap;

use flowyard_analyze::{Analysis, PoolSummary};
use flowyard_report::{Cell, Column, Table, Tone, Unit, num};

/// The hardware counters that rules select.
pub(crate) fn counters(analysis: &Analysis) -> Option<Table> {
    let mut table =
        Table::new("").column(Column::number("counter")).column(Column::number("packets"));
    for (counter, packets) in analysis.policies.iter().flat_map(|policy| &policy.counters) {
        table.push([Cell::new(counter.to_string()), Cell::new(num::exact(*packets))]);
    }
    (!table.is_empty()).then_some(table)
}

/// The interrupts of each policy.
pub(crate) fn interrupts(analysis: &Analysis) -> Option<Table> {
    let mut table = Table::new("")
        .column(Column::text("policy"))
        .column(Column::number("interrupts"))
        .column(Column::number("interrupts").unit("a second"))
        .column(Column::number("low latency"))
        .column(Column::number("added latency").unit("mean"))
        .column(Column::number("vectors").unit("in use"))
        .column(Column::text("moderation"));
    for policy in &analysis.policies {
        let Some(found) = &policy.interrupts else { continue };
        table.push([
            Cell::new(&*policy.name).tone(Tone::Strong),
            Cell::new(num::exact(found.interrupts)),
            Cell::new(num::exact(found.per_second.round() as u64)),
            Cell::new(num::exact(found.low_latency)),
            Cell::new(Unit::Nanos.show(found.mean_wait_ns)),
            Cell::new(found.vectors.len().to_string()),
            Cell::new(&*found.moderation),
        ]);
    }
    (!table.is_empty()).then(|| {
        table
            .note("low latency: interrupts that a rule with `moderation low-latency` caused before the end of the interval")
            .note("added latency: from the arrival of a frame to the interrupt that tells the host of it; the host itself is not modelled")
    })
}

/// The interrupts of each queue under the first policy.
pub(crate) fn interrupts_of_queues(analysis: &Analysis) -> Option<Table> {
    let found = analysis.policies.first()?.interrupts.as_ref()?;
    let mut table = Table::new("")
        .column(Column::number("queue"))
        .column(Column::number("vector"))
        .column(Column::number("packets"))
        .column(Column::number("interrupts of the vector").unit("a second"))
        .column(Column::number("added latency").unit("mean"))
        .column(Column::number("added latency").unit("longest"));
    for queue in &found.queues {
        let vector = found.vectors.iter().find(|vector| vector.vector == queue.vector);
        let rate = vector.map_or(0, |vector| vector.per_second.round() as u64);
        table.push([
            Cell::new(queue.queue.to_string()).tone(Tone::Strong),
            Cell::new(queue.vector.to_string()),
            Cell::new(num::exact(queue.packets)),
            Cell::new(num::exact(rate)),
            Cell::new(Unit::Nanos.show(queue.mean_wait_ns)),
            Cell::new(Unit::Nanos.show(queue.longest_wait_ns as f64)),
        ]);
    }
    (!table.is_empty()).then_some(table)
}

/// The frames of each tenant.
pub(crate) fn tenants(analysis: &Analysis) -> Option<Table> {
    let found = analysis.tenants.as_ref()?;
    let mut table = Table::new("")
        .column(Column::number("pool"))
        .column(Column::text("tenant"))
        .column(Column::number("packets"))
        .column(Column::number("bytes"))
        .column(Column::text("queue: packets"))
        .column(Column::number("sent").unit("to the network"))
        .column(Column::number("sent").unit("to tenants only"))
        .column(Column::text("dropped as spoofed"));
    for pool in &found.pools {
        table.push(row(pool));
    }
    table = table.note(format!("the queues are divided as {}", found.layout));
    if !found.dropped.is_empty() {
        table = table.note(format!("dropped by the adapter: {}", counts(&found.dropped)));
    }
    if let Some(management) = &found.management {
        table = table.note(format!("to the management controller: {}", counts(management)));
    }
    Some(found.remarks.iter().fold(table, |table, remark| table.note(remark.clone())))
}

fn row(pool: &PoolSummary) -> [Cell; 8] {
    let queues: Vec<_> = pool
        .queues
        .iter()
        .map(|(queue, packets)| format!("{queue}: {}", num::exact(*packets)))
        .collect();
    [
        Cell::new(pool.pool.to_string()).tone(Tone::Strong),
        Cell::new(pool.tenant.as_deref().unwrap_or("-")),
        Cell::new(num::exact(pool.packets)),
        Cell::new(Unit::Bytes.show(pool.bytes as f64)),
        Cell::new(queues.join(", ")),
        Cell::new(num::exact(pool.to_network)),
        Cell::new(num::exact(pool.local)),
        Cell::new(counts(&pool.spoofed)),
    ]
}

/// `no filter of the address 3, no pool left 1`; a dash if there is nothing.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    let each: Vec<_> =
        counts.iter().map(|(what, number)| format!("{what} {}", num::exact(*number))).collect();
    if each.is_empty() { "-".to_owned() } else { each.join(", ") }
}

/// What the adapter would place directly.
pub(crate) fn storage(analysis: &Analysis) -> Option<Table> {
    let found = analysis.storage.as_ref()?;
    let mut table = Table::new("").column(Column::text("what")).column(Column::number("number"));
    let mut push = |what: String, number: u64| {
        table.push([Cell::new(what), Cell::new(num::exact(number))]);
    };
    push("FCoE frames".to_owned(), found.frames);
    push("exchanges with a context".to_owned(), found.exchanges);
    push("frames placed directly".to_owned(), found.placed);
    push("bytes placed directly".to_owned(), found.placed_bytes);
    push("headers that the host gets".to_owned(), found.headers);
    for (title, counts) in [
        ("exchanges without a context", &found.refused),
        ("whole frames to the host", &found.whole),
        ("frames with an error", &found.errors),
    ] {
        counts.iter().for_each(|(why, number)| push(format!("{title}: {why}"), *number));
    }
    if found.malformed > 0 {
        push("frames cut short".to_owned(), found.malformed);
    }
    Some(table.note(match found.contexts {
        0 => "no public source says that this adapter places FCoE directly; choose x520, x540 or x550".to_owned(),
        contexts => format!("the adapter has {contexts} contexts; one is set up for each command that reads, and for each request for data"),
    }))
}

/// What management controllers and adapters say to each other.
pub(crate) fn control(analysis: &Analysis) -> Option<Table> {
    let mut table = Table::new("").column(Column::text("what")).column(Column::number("packets"));
    for (what, packets) in &analysis.control {
        table.push([Cell::new(&**what), Cell::new(num::exact(*packets))]);
    }
    (!table.is_empty()).then_some(table)
}
