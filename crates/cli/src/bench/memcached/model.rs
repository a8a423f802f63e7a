//! What the model predicts, beside the measured curves and walls: as text, tables and plots.

use flowyard_bench::memcached::{Curve, Model, Predicted, PredictedPoint, Results};
use flowyard_report::exhibit::Between;
use flowyard_report::{Axis, Cell, Column, Plot, Section, Table, Tone, Unit, num};

use super::spread;
use crate::output::style;

/// A value with its range.
fn ranged(value: f64, between: Between, unit: Unit) -> String {
    let Between { low, high } = between;
    if low == high {
        return unit.show(value);
    }
    format!("{} ({} to {})", unit.show(value), unit.show(low), unit.show(high))
}

/// A wall; where it was not found, a higher one is possible.
fn wall(shown: String, is_found: bool) -> String {
    if is_found { shown } else { format!("at least {shown}") }
}

/// Each prediction with the measured curve of its way.
fn pairs<'a>(
    results: &'a Results,
    model: &'a Model,
) -> impl Iterator<Item = (&'a Predicted, &'a Curve)> {
    model
        .ways
        .iter()
        .filter_map(|own| Some((own, results.ways.iter().find(|curve| curve.way == own.way)?)))
}

/// A sentence for each way: whether the walls agree.
fn verdicts(results: &Results, model: &Model) -> Vec<String> {
    let told = |(own, curve): (&Predicted, &Curve)| {
        let verdict = if own.overlaps {
            "overlaps what the model predicts"
        } else {
            "does NOT overlap what the model predicts"
        };
        let measured = wall(spread(curve.wall_rps, Unit::Count), curve.wall_found);
        let predicted = ranged(own.wall_rps, own.wall_between, Unit::Count);
        let predicted = wall(predicted, own.wall_found);
        let name = own.way.name();
        format!("{name}: the measured wall, {measured}, {verdict}, {predicted}.")
    };
    let mut all: Vec<String> = pairs(results, model).map(told).collect();
    let not = model.not_modelled.iter().map(|way| format!("{}: not modelled.", way.name()));
    all.extend(not);
    all
}

fn about(model: &Model) -> String {
    let mut about = format!(
        "Predicted by the model of an open loop from the costs of {}, none of which was determined from a measurement of this \
         command: medians of {} runs, with the range of the results when all costs are at the lower ends of their \
         intervals, at the medians, and at the upper ends. Walls are rates that were offered, so a difference of less than \
         a step of the rates does not show. memcached's own work was measured with 500,000 keys. The model has no other \
         programs.",
        model.profile, model.runs
    );
    if let Some(warning) = &model.warning {
        about += &format!(" {warning}");
    }
    about
}

pub(super) fn text(results: &Results, model: &Model) -> String {
    let mut text = format!("\n{}\n", table(results, model).to_text(&style()));
    for verdict in verdicts(results, model) {
        text += &format!("{verdict}\n");
    }
    text + &format!("\n{}\n", about(model))
}

/// Measured and predicted values by way and rate.
fn table(results: &Results, model: &Model) -> Table {
    let mut table = Table::new("The model beside the measurement")
        .column(Column::text("way"))
        .column(Column::number("offered").unit("1/s"))
        .column(Column::number("mean").unit("measured"))
        .column(Column::number("mean").unit("predicted"))
        .column(Column::number("p99").unit("measured"))
        .column(Column::number("p99").unit("predicted"))
        .column(Column::number("answered").unit("measured"))
        .column(Column::number("answered").unit("predicted"))
        .column(Column::number("local").unit("measured"))
        .column(Column::number("local").unit("predicted"))
        .column(Column::number("CPU per request").unit("measured"))
        .column(Column::number("CPU per request").unit("predicted"));
    for (own, curve) in pairs(results, model) {
        let mut rates: Vec<f64> = own.points.iter().map(|point| point.offered_rps).collect();
        rates.extend(curve.points.iter().map(|point| point.offered_rps));
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        for rate in rates {
            let measured = curve.points.iter().find(|point| point.offered_rps == rate);
            let predicted = own.points.iter().find(|point| point.offered_rps == rate);
            let none = || "-".to_owned();
            let was = |of: &dyn Fn(&flowyard_bench::memcached::Point) -> String| {
                measured.map_or_else(none, of)
            };
            let is = |of: &dyn Fn(&PredictedPoint) -> String| predicted.map_or_else(none, of);
            let row = [
                num::exact(rate as u64),
                was(&|point| spread(point.mean_ns, Unit::Nanos)),
                is(&|point| ranged(point.mean_ns, point.mean_between, Unit::Nanos)),
                was(&|point| spread(point.p99_ns, Unit::Nanos)),
                is(&|point| ranged(point.p99_ns, point.p99_between, Unit::Nanos)),
                was(&|point| Unit::Count.show(point.answered_rps.median)),
                is(&|point| Unit::Count.show(point.answered_rps)),
                was(&|point| Unit::Share.show(point.local_share.median)),
                is(&|point| Unit::Share.show(point.local_share)),
                was(&|point| Unit::Nanos.show(point.cost.all_ns.median)),
                is(&|point| Unit::Nanos.show(point.cost_ns)),
            ];
            let name = Cell::new(own.way.name()).tone(Tone::Strong);
            table.push(std::iter::once(name).chain(row.map(Cell::new)).collect::<Vec<_>>());
        }
    }
    table
}

/// A latency of one way, measured, predicted, and predicted at both ends of the costs.
fn plot(
    (own, curve): (&Predicted, &Curve),
    what: &str,
    measured: fn(&flowyard_bench::memcached::Point) -> f64,
    predicted: fn(&PredictedPoint) -> (f64, Between),
) -> Plot {
    let x = Axis::linear("offered requests per second", Unit::Count);
    let y = Axis::log("latency", Unit::Nanos);
    let line = |of: &dyn Fn((f64, Between)) -> f64| {
        let points = own.points.iter().map(|point| (point.offered_rps, of(predicted(point))));
        points.collect::<Vec<_>>()
    };
    let points = curve.points.iter().map(|point| (point.offered_rps, measured(point)));
    Plot::new(format!("{}: {what}", own.way.name()), x, y)
        .line("measured", points.collect::<Vec<_>>())
        .line("predicted", line(&|(value, _)| value))
        .line("predicted, lower end", line(&|(_, between)| between.low))
        .line("predicted, upper end", line(&|(_, between)| between.high))
}

pub(super) fn section(results: &Results, model: &Model) -> Section {
    let plots = pairs(results, model).flat_map(|pair| {
        let mean = plot(
            pair,
            "mean",
            |point| point.mean_ns.median,
            |point| (point.mean_ns, point.mean_between),
        );
        let p99 = plot(
            pair,
            "99th percentile",
            |point| point.p99_ns.median,
            |point| (point.p99_ns, point.p99_between),
        );
        [mean, p99]
    });
    let section = Section::new("The model").plots(plots.collect::<Vec<_>>());
    let section = section.table(table(results, model));
    verdicts(results, model).into_iter().fold(section, Section::note).note(about(model))
}
