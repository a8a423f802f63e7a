//! Metrics: the yard's numbers in Prometheus' text format (version 0.0.4).
//!
//! ```text
//!  flowyard_rx_frames_total{core="0"} 1234
//!  flowyard_dropped_frames_total{core="0",reason="queue_full"} 5
//! ```
//!
//! Names follow Prometheus' conventions: base units, `_total` for what only grows. A counter that
//! the engine gets is exported with no word here; a help text of its own is added to `HELP`.
//!
//! Thread-safety: plain functions over a [`Handle`].

use std::fmt::{Display, Write};
use std::time::Duration;

use flowyard_yard::ask::{Answer, Question};
use flowyard_yard::{Counters, DropReason, Handle};

mod http;
mod lb;
mod switch;

pub use http::{Metrics, MetricsError, address};

/// How long cores may take to tell of their tables: a scrape must not hang.
const PATIENCE: Duration = Duration::from_millis(200);

/// Help texts of the engine's counters.
const HELP: [(&str, &str); 20] = [
    ("rx_frames", "Frames received, those dropped at the port included"),
    ("rx_bytes", "Bytes of frames received"),
    ("tx_frames", "Frames transmitted"),
    ("tx_bytes", "Bytes of frames transmitted"),
    ("work_frames", "Frames worked on"),
    ("work_batches", "Batches worked on"),
    ("exact_hit", "Frames that a table in front of the indirection table answered"),
    ("settle_moved", "Flows that moved to another home"),
    ("settle_held", "Frames sent to their flow's old home against the tables' word"),
    ("hold_frames", "Frames held back so that their flow could move"),
    ("hold_moved", "Holds that ended with the old home drained"),
    ("edits", "Edits applied to this core's tables"),
    ("edits_refused", "Edits that a table refused"),
    ("edits_lost", "Edits that a full mailbox lost"),
    ("reports_lost", "Reports about elephants that a full mailbox lost"),
    ("promoted", "Flows that were split over cores"),
    ("demoted", "Flows that came back to one core"),
    ("rebalanced", "Entries of the indirection table that were sent to another core"),
    ("refused", "Overloads that nothing was done about"),
    ("busy_ns", "Time spent in ticks that got something done"),
];

/// Text under construction.
struct Page(String);

impl Page {
    /// The head of a metric.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible =
            write!(self.0, "# HELP flowyard_{name} {help}\n# TYPE flowyard_{name} {kind}\n");
    }

    /// One sample of the metric `name`.
    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let _infallible = write!(self.0, "flowyard_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let _infallible = write!(self.0, "{open}{label}=\"{}\"", escape(&text.to_string()));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _infallible = writeln!(self.0, "{close} {value}");
    }
}

/// A label's value as the format wants it.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The whole page.
#[must_use]
pub fn page(yard: &Handle) -> String {
    let tables = yard.ask(&Question::Tables { entries: 0 }, PATIENCE);
    let mut page = Page(String::with_capacity(16 << 10));
    page.metric("build_info", "gauge", "The version of flowyard, as a label");
    page.sample("build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    page.metric("uptime_seconds", "gauge", "Time since the yard was started");
    page.sample("uptime_seconds", &[], yard.now() as f64 / 1e9);
    page.metric("core_up", "gauge", "1 if the core answers, 0 if it is dead or at work for long");
    for (core, answer) in tables.iter().enumerate() {
        page.sample("core_up", &[("core", &core)], u8::from(answer.is_some()));
    }
    counters(&mut page, &yard.counters());
    queues(&mut page, yard);
    self::tables(&mut page, &tables);
    lb::page(&mut page, yard);
    switch::page(&mut page, yard);
    page.0
}

fn counters(page: &mut Page, cores: &[Counters]) {
    for (at, name) in Counters::NAMES.into_iter().enumerate() {
        let known = HELP.iter().find(|(counter, _)| *counter == name);
        let help = known.map_or_else(|| format!("What a core counts as {name}"), |it| it.1.into());
        // Base units: seconds.
        let (metric, is_ns) = match name.strip_suffix("_ns") {
            Some(stem) => (format!("{stem}_seconds_total"), true),
            None => (format!("{name}_total"), false),
        };
        page.metric(&metric, "counter", &help);
        for (core, counters) in cores.iter().enumerate() {
            let value = counters.values()[at];
            match is_ns {
                true => page.sample(&metric, &[("core", &core)], value as f64 / 1e9),
                false => page.sample(&metric, &[("core", &core)], value),
            }
        }
    }
    let metric = "dropped_frames_total";
    page.metric(metric, "counter", "Frames dropped, by reason");
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
        ("queue_entered_frames_total", "counter", "Frames that entered a queue"),
        (
            "queue_done_frames_total",
            "counter",
            "Frames of a queue that are done, with all before them",
        ),
        ("queue_frames", "gauge", "Frames in a queue, waiting or worked on"),
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

fn tables(page: &mut Page, answers: &[Option<Answer>]) {
    let mut all = Vec::new();
    let mut promoted = 0;
    for (core, answer) in answers.iter().enumerate() {
        let Some(Answer::Tables(tables)) = answer else { continue };
        if !tables.receives {
            continue;
        }
        for table in &tables.front {
            all.push((core, table.name.as_str(), table.entries, table.capacity, table.hits));
            if table.name == "promoted" {
                promoted = promoted.max(table.entries.unwrap_or(0)); // every core has the same
            }
        }
        let entries = Some(tables.spread.len());
        all.push((core, "indirection", entries, entries, tables.spread_hits));
    }
    page.metric("table_entries", "gauge", "Entries of a table that are taken");
    for (core, table, entries, ..) in &all {
        if let Some(entries) = entries {
            page.sample("table_entries", &[("core", core), ("table", table)], entries);
        }
    }
    page.metric("table_capacity", "gauge", "Entries that a table takes");
    for (core, table, _, capacity, _) in &all {
        if let Some(capacity) = capacity {
            page.sample("table_capacity", &[("core", core), ("table", table)], capacity);
        }
    }
    page.metric("table_hits_total", "counter", "Frames that a table answered");
    for (core, table, .., hits) in &all {
        page.sample("table_hits_total", &[("core", core), ("table", table)], hits);
    }
    page.metric("promoted_flows", "gauge", "Flows that are split over cores now");
    page.sample("promoted_flows", &[], promoted);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page(String::new());
        page.sample("x", &[("queue", &"a\"b\\c\nd"), ("n", &3)], 1.5);
        assert_eq!(page.0, "flowyard_x{queue=\"a\\\"b\\\\c\\nd\",n=\"3\"} 1.5\n");
    }

    #[test]
    fn every_help_is_for_a_counter_that_exists() {
        for (name, help) in HELP {
            assert!(Counters::NAMES.contains(&name), "{name}");
            assert!(!help.is_empty());
        }
    }
}
