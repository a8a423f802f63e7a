//! Metrics of the engine: counters of the cores, queues and tables.

use std::fmt::Display;

use flowyard_yard::ask::{self, Answer};
use flowyard_yard::{Counters, DropReason, Handle};

use super::text::Page;

/// Help texts of the engine's counters. A test requires one for each counter.
const HELP: [(&str, &str); 37] = [
    (
        "rx_frames",
        "Counts the frames that the core received from its ports, including those that were dropped on reception.",
    ),
    ("rx_bytes", "Counts the bytes of the frames that the core received."),
    ("tx_frames", "Counts the frames that the core transmitted on its ports."),
    ("tx_bytes", "Counts the bytes of the frames that the core transmitted."),
    (
        "copies",
        "Counts the copies requested for frames that leave on several ports, and the frames that the work creates; \
         a copy without a free buffer is counted as a drop too.",
    ),
    ("work_frames", "Counts the frames that the core dequeued and processed."),
    ("work_batches", "Counts the batches of frames that the core dequeued and processed."),
    (
        "exact_hit",
        "Counts the received frames that matched an exact, promoted or learnt entry, or the port mapping of a \
         switch, before they were enqueued.",
    ),
    ("rule_hit", "Counts the received frames that matched a rule, before they were enqueued."),
    (
        "settle_moved",
        "Counts the flows that were moved to another queue by a learner or a changed table, after their frames had \
         left the old one. Flows that share a slot of the settle stage and go to different queues count too, each \
         time that another of them uses the slot; raise settle_slots in [yard] to make that rare.",
    ),
    (
        "settle_held",
        "Counts the frames that were kept on the flow's current queue because a move was not yet safe.",
    ),
    (
        "hold_frames",
        "Counts the frames that were buffered at the entry so that their flow could move to another queue.",
    ),
    (
        "hold_moved",
        "Counts the flows that were buffered at the entry and then moved because their old queue was drained.",
    ),
    (
        "edits",
        "Counts the edits that were applied to the tables of the core: entries that learners, the elephant detector or a reload added, changed or removed.",
    ),
    (
        "edits_refused",
        "Counts the edits that a table of the core refused, for example because it was full.",
    ),
    (
        "edits_lost",
        "Counts the edits of the core's learners that were lost because a mailbox was full.",
    ),
    (
        "reports_lost",
        "Counts the reports to the elephant detector that were lost because its mailbox was full.",
    ),
    (
        "promoted",
        "Counts the decisions to split a flow over cores, on the core that runs the elephant detector.",
    ),
    (
        "demoted",
        "Counts the decisions to return a split flow to one core, on the core that runs the elephant detector.",
    ),
    (
        "rebalanced",
        "Counts the entries of the indirection table that were moved to another core, on the core that runs the \
         elephant detector.",
    ),
    (
        "refused",
        "Counts the overloads of a core for which no action was taken, on the core that runs the elephant detector.",
    ),
    (
        "port_reopens",
        "Counts how often a port was opened again, because its interface was replaced or moved, or because the port was \
         stalled; the log names the port.",
    ),
    (
        "port_stalls",
        "Counts how often a port received none of the frames that its interface counted; the port is then opened again.",
    ),
    (
        "port_violations",
        "Counts how often a port was taken down, because the guest on its other side broke the rules of its rings; the log \
         has the reason.",
    ),
    (
        "checksum_not_checked",
        "Counts the received frames without a checksum that could be verified, of ports with bad_checksums.",
    ),
    (
        "checksum_good",
        "Counts the received frames with correct checksums, of ports with bad_checksums.",
    ),
    (
        "checksum_bad",
        "Counts the received frames with a wrong checksum, of ports with bad_checksums.",
    ),
    (
        "checksum_partial",
        "Counts the received frames with a checksum that is not complete yet, of ports with bad_checksums.",
    ),
    (
        "rx_coalesced",
        "Counts the received frames that became parts of longer ones, of ports with offload = { gro = true }; a long frame counts \
         as one received frame.",
    ),
    (
        "tx_cut",
        "Counts the transmitted frames that were cut into segments, because their port does not pass on long ones.",
    ),
    ("tx_segments", "Counts the segments that left in place of the frames that were cut."),
    ("tx_checksums", "Counts the checksums that were completed in transmitted frames."),
    (
        "tx_coalesced",
        "Counts the transmitted frames that left as parts of longer ones, of an IPsec gateway with coalesce = true; each counts as one \
         transmitted frame.",
    ),
    (
        "ticks_busy",
        "Counts the ticks (rounds of the core's loop: receive, serve, transmit) that moved at least one frame or message.",
    ),
    (
        "ticks_idle",
        "Counts the ticks (rounds of the core's loop) that found nothing to do; many of them mean that the core has time left.",
    ),
    (
        "busy_ns",
        "Counts the time that the core spent in ticks that made progress; its rate is the share of time for which the core is busy.",
    ),
    (
        "cpu_ns",
        "Counts the processor time that the thread of the core used, also while it had nothing to do.",
    ),
];

/// Writes the metrics of the engine. `answers` has the tables of each core.
pub(super) fn page(page: &mut Page, yard: &Handle, answers: &[Option<Answer>]) {
    page.metric("build_info", "gauge", "Is always 1; the label has the version of flowyard.");
    page.sample("build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    page.metric("uptime_seconds", "gauge", "Gives the time since the engine was started.");
    page.sample("uptime_seconds", &[], yard.now() as f64 / 1e9);
    page.metric(
        "core_up",
        "gauge",
        "Is 1 if the core answers a query within 200 ms, and 0 if it is dead or in a long batch.",
    );
    for (core, answer) in answers.iter().enumerate() {
        page.sample("core_up", &[("core", &core)], u8::from(answer.is_some()));
    }
    counters(page, &yard.counters());
    queues(page, yard);
    tables(page, answers);
}

fn counters(page: &mut Page, cores: &[Counters]) {
    for (at, name) in Counters::NAMES.into_iter().enumerate() {
        let known = HELP.iter().find(|(counter, _)| *counter == name);
        let help = known.map_or("Counts events of the core; see docs/operate.md.", |it| it.1);
        // The base unit of time is the second.
        let (metric, is_ns) = match name.strip_suffix("_ns") {
            Some(stem) => (format!("{stem}_seconds_total"), true),
            None => (format!("{name}_total"), false),
        };
        page.metric(&metric, "counter", help);
        for (core, counters) in cores.iter().enumerate() {
            let value = counters.values()[at];
            match is_ns {
                true => page.sample(&metric, &[("core", &core)], value as f64 / 1e9),
                false => page.sample(&metric, &[("core", &core)], value),
            }
        }
    }
    let metric = "dropped_frames_total";
    let help = "Counts the frames that the core dropped; the label has the reason, as in flowyard show drops, which also says how to avoid each.";
    page.metric(metric, "counter", help);
    for (core, counters) in cores.iter().enumerate() {
        for reason in DropReason::ALL {
            let labels: [(&str, &dyn Display); 2] = [("core", &core), ("reason", &reason.name())];
            page.sample(metric, &labels, counters.drops.get(reason));
        }
    }
}

fn queues(page: &mut Page, yard: &Handle) {
    let places = yard.places();
    let queues = places.queues.iter().map(|place| (place, "queue"));
    let all: Vec<_> = queues.chain(places.ports.iter().map(|place| (place, "tx"))).collect();
    let metrics = [
        (
            "queue_enqueued_frames_total",
            "counter",
            "Counts the frames that were enqueued in the queue, or in the tx queue of the port.",
        ),
        (
            "queue_completed_frames_total",
            "counter",
            "Counts the frames of the queue that were completed, up to the oldest frame that is not.",
        ),
        (
            "queue_frames",
            "gauge",
            "Gives the number of frames in the queue that are waiting or being processed.",
        ),
    ];
    for (at, (metric, kind, help)) in metrics.into_iter().enumerate() {
        page.metric(metric, kind, help);
        for (place, kind) in &all {
            let head = place.queue.head();
            let tail = place.queue.tail().max(head);
            let labels: [(&str, &dyn Display); 2] = [("queue", &place.name), ("kind", kind)];
            page.sample(metric, &labels, [tail, head, tail - head][at]);
        }
    }
}

/// The size and hits of a table.
struct TableRow<'a> {
    core: usize,
    table: &'a str,
    entries: Option<usize>,
    capacity: Option<usize>,
    hits: u64,
}

impl TableRow<'_> {
    fn labels(&self) -> [(&'static str, &dyn Display); 2] {
        [("core", &self.core), ("table", &self.table)]
    }
}

fn tables(page: &mut Page, answers: &[Option<Answer>]) {
    let mut all = Vec::new();
    let mut promoted = 0;
    for (core, answer) in answers.iter().enumerate() {
        let Some(Answer::Tables(tables)) = answer else { continue };
        if !tables.receives {
            continue;
        }
        for table in &tables.front {
            let ask::TableState { name, entries, capacity, hits, .. } = table;
            all.push(TableRow {
                core,
                table: name,
                entries: *entries,
                capacity: *capacity,
                hits: *hits,
            });
            if name == "promoted" {
                promoted = promoted.max(entries.unwrap_or(0)); // every core has the same entries
            }
        }
        let entries = Some(tables.spread.len());
        let (table, hits) = ("indirection", tables.spread_hits);
        all.push(TableRow { core, table, entries, capacity: entries, hits });
    }
    page.metric("table_entries", "gauge", "Gives the number of entries in the table.");
    for row in &all {
        if let Some(entries) = row.entries {
            page.sample("table_entries", &row.labels(), entries);
        }
    }
    page.metric("table_capacity", "gauge", "Gives the largest number of entries of the table.");
    for row in &all {
        if let Some(capacity) = row.capacity {
            page.sample("table_capacity", &row.labels(), capacity);
        }
    }
    let help = "Counts the frames whose destination was taken from an entry of the table.";
    page.metric("table_hits_total", "counter", help);
    for row in &all {
        page.sample("table_hits_total", &row.labels(), row.hits);
    }
    page.metric("promoted_flows", "gauge", "Gives the number of flows that are split over cores.");
    page.sample("promoted_flows", &[], promoted);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_help_text_that_is_a_sentence() {
        let mut names = HELP.map(|(name, _)| name);
        let mut counters = Counters::NAMES;
        names.sort_unstable();
        counters.sort_unstable();
        assert_eq!(names.as_slice(), counters.as_slice());
        for (name, help) in HELP {
            assert!(help.starts_with("Counts ") && help.ends_with('.'), "{name}");
        }
    }
}
