//! What `flowyard rebalance` says: sentences, and metrics for Prometheus.

use std::fmt::Write as _;
use std::time::Duration;

use flowyard_flow::learn::rebalance::Busy;
use flowyard_host::{Moved, Rebalancer};

use super::Counted;

/// Moves that are named in a line.
const NAMED: usize = 8;

fn ratio(imbalance: Option<f64>) -> String {
    imbalance
        .map_or_else(|| "few frames".to_owned(), |ratio| format!("{ratio:.2} times the mean load"))
}

fn entries(number: usize) -> String {
    flowyard_report::num::count(number as u64, "entry", "entries")
}

pub(super) fn overloaded(waiting: usize, imbalance: Option<f64>) -> String {
    let (entries, ratio) = (entries(waiting), ratio(imbalance));
    format!("the busiest queue has {ratio}; {entries} will move on pauses")
}

pub(super) fn even(imbalance: Option<f64>) -> String {
    format!("the busiest queue has {}", ratio(imbalance))
}

pub(super) fn lost(frames: u64) -> String {
    format!(
        "{frames} frames came faster than they could be read; no entry moves while that happens"
    )
}

pub(super) fn moved(moves: &[Moved], dry: bool) -> String {
    let named = moves.iter().take(NAMED).map(|one| {
        let forced = if one.forced { " without a pause" } else { "" };
        format!("{} from queue {} to {}{forced}", one.entry, one.from, one.to)
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    if moves.len() > NAMED {
        let _infallible = write!(text, ", and {} more", moves.len() - NAMED);
    }
    format!("{}{}: {text}", if dry { "would move " } else { "" }, entries(moves.len()))
}

pub(super) fn busy(busy: &[Busy], pause: Duration) -> String {
    let pause = humantime::format_duration(pause);
    let named = busy.iter().take(NAMED).map(|one| one.entry.to_string()).collect::<Vec<_>>();
    let more = if busy.len() > NAMED { ", ..." } else { "" };
    let frames = busy.first().map_or(0, |one| one.packets);
    format!(
        "{} had no pause of {pause}: {}{more} (the first had {frames} frames in the last window); others move in their \
         place",
        entries(busy.len()),
        named.join(", ")
    )
}

pub(super) fn returned(paused: usize, left: usize) -> String {
    let text = format!("{} returned on pauses", entries(paused));
    if left == 0 { text } else { format!("{text}; {left} did not pause, and return now") }
}

pub(super) fn end(rebalancer: &Rebalancer, keeps: bool) -> String {
    let totals = rebalancer.totals();
    let mut text = format!(
        "{} moves, {} of them without a pause; {} of {} frames could have been overtaken",
        totals.moves, totals.forced, totals.could_overtake, totals.frames
    );
    if let (true, Some(path)) = (keeps, rebalancer.journal()) {
        let _infallible = write!(text, "; the table stays, journal {}", path.display());
    }
    text
}

/// Metrics in the text format of Prometheus.
pub(super) fn metrics(interface: &str, counted: &Counted) -> String {
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, about: &str, value: String| {
        let name = format!("flowyard_rebalance_{name}");
        let _infallible = writeln!(
            text,
            "# HELP {name} {about}\n# TYPE {name} {kind}\n{name}{{interface=\"{interface}\"}} {value}"
        );
    };
    for (name, about, value) in [
        ("windows", "Windows in which load was measured.", counted.windows),
        ("frames", "Received frames that were seen.", counted.frames),
        ("lost_frames", "Frames that came faster than they could be read.", counted.lost),
        ("moves", "Moves of entries of the indirection table.", counted.moves),
        ("forced_moves", "Moves without a pause.", counted.forced),
        ("table_writes", "Times that the table was written.", counted.writes),
        ("busy_entries", "Times that an entry did not pause, and stayed.", counted.busy),
        (
            "could_overtake_frames",
            "Frames that could have overtaken, or could have been overtaken.",
            counted.could_overtake,
        ),
    ] {
        put(&format!("{name}_total"), "counter", about, value.to_string());
    }
    let about = "Entries that are not in their first queue.";
    put("displaced_entries", "gauge", about, counted.displaced.to_string());
    for (name, about, value) in [
        ("imbalance", "Load of the busiest queue over the mean.", counted.imbalance),
        (
            "imbalance_of_first_table",
            "Load of the busiest queue over the mean, if no entry had moved.",
            counted.imbalance_of_first,
        ),
    ] {
        if let Some(value) = value {
            put(name, "gauge", about, format!("{value:.4}"));
        }
    }
    text
}
