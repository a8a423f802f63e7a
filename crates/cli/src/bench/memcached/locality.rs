//! What the yard's learner `atr` saves, as a table.

use flowyard_bench::memcached::{LocalityPoint, Results, Way};
use flowyard_report::{Cell, Column, Table, Tone, Unit, num};

use super::spread;

pub(super) const ABOUT: &str = "What the learner atr saves of a request, compared with the same yard by hash in the same round, \
    at the rates that held in every round of both. Predicted from the costs of this machine: the stack and the read on the CPU \
    of the thread instead of another one, while the thread is awake, and with the interrupt for a thread that sleeps on an idle CPU.";

/// The table; `None` if no yard was measured both ways.
pub(super) fn table(results: &Results) -> Option<Table> {
    let mut table = Table::new("Locality: what atr saves of a request")
        .column(Column::text("way"))
        .column(Column::number("offered").unit("1/s"))
        .column(Column::number("more local"))
        .column(Column::number("CPU time").unit("server side"))
        .column(Column::number("share").unit("of it"))
        .column(Column::number("predicted").unit("awake, idle"))
        .column(Column::number("mean latency"));
    let mut is_empty = true;
    for locality in &results.locality {
        for point in &locality.points {
            is_empty = false;
            table.push(row(locality.by_atr, point));
        }
    }
    (!is_empty).then_some(table)
}

fn row(way: Way, point: &LocalityPoint) -> Vec<Cell> {
    let predicted = point
        .predicted_cpu_saved_ns
        .map_or_else(|| "-".to_owned(), |ends| ends.map(|ns| Unit::Nanos.show(ns)).join(", "));
    let row = [
        num::exact(point.offered_rps as u64),
        Unit::Share.show(point.local_share),
        spread(point.cpu_saved_ns, Unit::Nanos),
        Unit::Share.show(point.cpu_saved_share),
        predicted,
        spread(point.latency_saved_ns, Unit::Nanos),
    ];
    let name = Cell::new(way.name()).tone(Tone::Strong);
    std::iter::once(name).chain(row.map(Cell::new)).collect()
}
