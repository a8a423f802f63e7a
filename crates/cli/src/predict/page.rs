//! A prediction as tables and as an HTML page.

use flowyard_hostsim::predict::{Curve, Point, Prediction};
use flowyard_report::exhibit::{Between, How, Input, Sensitivity};
use flowyard_report::{Axis, Card, Cell, Column, Page, Plot, Section, Table, Tone, Unit, num};

use crate::output::{self, style};

/// Maximum number of inputs in the table of the terminal's sensitivity; the page and JSON have all.
const FEW: usize = 12;

/// The tables for a terminal.
pub(super) fn text(prediction: &Prediction, effects: Option<&Sensitivity>) -> String {
    let style = style();
    let mut text = rows(prediction).to_text(&style);
    for curve in &prediction.curves {
        text += &format!("\n{}", table(curve).to_text(&style));
    }
    if let Some(effects) = effects {
        let mut first = effects.clone();
        first.effects.truncate(FEW);
        text += &format!("\n{}", first.table().to_text(&style));
    }
    text + "\n" + &inputs(prediction).to_text(&style)
}

/// A number with four significant digits, or all that are before the point. Whole numbers stay whole.
fn number(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "-".to_owned(),
        v if v >= 1000.0 || v.fract() == 0.0 => num::exact(value.round() as u64),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn range(between: Between) -> String {
    format!("{} to {}", number(between.low), number(between.high))
}

fn rows(prediction: &Prediction) -> Table {
    let mut table = Table::new(prediction.title.clone())
        .column(Column::text("result"))
        .column(Column::number("predicted"));
    let has_between = prediction.rows.iter().any(|row| row.between.is_some());
    if has_between {
        table = table.column(Column::text("by intervals of costs"));
    }
    for row in &prediction.rows {
        let mut cells = vec![Cell::new(row.name.clone()), Cell::new(number(row.value))];
        if has_between {
            cells.push(Cell::new(row.between.map_or_else(|| "-".to_owned(), range)));
        }
        table.push(cells);
    }
    let notes = prediction.notes.iter().cloned().chain([provenance(prediction)]);
    notes.fold(table, Table::note)
}

/// How many inputs were obtained in each way.
fn provenance(prediction: &Prediction) -> String {
    let all = [How::Measured, How::Given, How::Published, How::Assumed, How::Fitted];
    let count = |how| {
        let numbers = prediction.inputs.iter().filter(|input| input.how == how).count();
        numbers + prediction.choices.iter().filter(|choice| choice.how == how).count()
    };
    let words = all.iter().map(|how| (count(*how), how.name())).filter(|(count, _)| *count > 0);
    let words: Vec<String> = words.map(|(count, name)| format!("{count} {name}")).collect();
    format!("Inputs: {}.", words.join(", "))
}

fn table(curve: &Curve) -> Table {
    let has_load = curve.points.iter().any(|point| point.offered == Some(point.at));
    let has_latency = curve.points.iter().any(|point| point.latency.is_some());
    let mut table = Table::new("").column(Column::number(curve.axis.clone()));
    table = table.column(Column::number(if has_latency { "answered/s" } else { "frames/s" }));
    if has_load {
        table = table.column(Column::number("lost").unit("of frames"));
    }
    let has_between = curve.points.iter().any(|point| point.rate_between.is_some());
    if has_latency {
        for name in ["mean", "median", "99 %"] {
            table = table.column(Column::number(name).unit("us"));
        }
    }
    table = table.column(Column::number("busiest").unit("core"));
    if has_between {
        let name = if has_latency { "mean, us" } else { "frames/s" };
        table = table.column(Column::text(format!("{name}, by intervals of costs")));
    }
    for point in &curve.points {
        let mut cells = vec![Cell::new(number_of(point.at)), Cell::new(number(point.rate))];
        if has_load {
            cells.push(Cell::new(percent(point.lost_share)));
        }
        if let Some(latency) = point.latency {
            let all = [latency.mean_us, latency.p50_us, latency.p99_us];
            cells.extend(all.map(|us| Cell::new(format!("{us:.1}"))));
        }
        cells.push(Cell::new(percent(point.busiest_share)));
        if has_between {
            let between = point.mean_us_between.or(point.rate_between);
            cells.push(Cell::new(between.map_or_else(|| "-".to_owned(), range)));
        }
        table.push(cells);
    }
    table
}

/// A position: a whole number.
fn number_of(at: f64) -> String {
    num::exact(at.round() as u64)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn tone(how: How) -> Tone {
    match how {
        How::Fitted => Tone::Warn,
        How::Measured | How::Given => Tone::Good,
        How::Published | How::Assumed => Tone::Dim,
    }
}

/// All inputs, with how each was obtained.
fn inputs(prediction: &Prediction) -> Table {
    let mut table = Table::new("Inputs")
        .column(Column::text("input"))
        .column(Column::number("value"))
        .column(Column::text("interval"))
        .column(Column::text("obtained"))
        .column(Column::text("source"));
    for choice in &prediction.choices {
        table.push([
            Cell::new(format!("setup.{}", choice.name)),
            Cell::new(choice.value.clone()),
            Cell::new("-"),
            Cell::new(choice.how.name()).tone(tone(choice.how)),
            Cell::new(choice.source.clone()),
        ]);
    }
    for Input { name, value, how, source, interval } in &prediction.inputs {
        let ends = interval.map(|interval| Between { low: interval.low, high: interval.high });
        table.push([
            Cell::new(name.clone()),
            Cell::new(number(*value)),
            Cell::new(ends.map_or_else(|| "-".to_owned(), range)),
            Cell::new(how.name()).tone(tone(*how)),
            Cell::new(source.clone()),
        ]);
    }
    table
}

/// Takes an end of a range.
type EndOf = fn(Between) -> f64;

/// The ends of a range: the name of its line, and the value.
const ENDS: [(&str, EndOf); 2] =
    [("lower end", |between| between.low), ("upper end", |between| between.high)];

/// The plots of a curve: rates, and latencies if the model has them.
fn plots(curve: &Curve) -> Vec<Plot> {
    let is_load = curve.points.iter().any(|point| point.offered == Some(point.at));
    // Millions a second on both axes, so that the line of equality is a diagonal.
    let unit = if is_load { 1e6 } else { 1.0 };
    let name = if is_load { format!("{}, millions", curve.axis) } else { curve.axis.clone() };
    let axis = || Axis::linear(name.clone(), Unit::Plain(""));
    let points = |of: &dyn Fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
        curve.points.iter().filter_map(|point| Some((point.at / unit, of(point)?))).collect()
    };
    let rates = Axis::linear("millions/s", Unit::Plain(""));
    let mut rate = Plot::new(if is_load { "Served" } else { "By number of cores" }, axis(), rates)
        .line("served", points(&|point| Some(point.rate / 1e6)));
    for (name, end) in ENDS {
        let line = points(&|point| point.rate_between.map(|between| end(between) / 1e6));
        rate = if line.is_empty() { rate } else { rate.line(format!("served, {name}"), line) };
    }
    if is_load {
        rate = rate.line("offered", points(&|point| Some(point.at / 1e6)));
    }
    let mut plots = vec![rate];
    let latency = |of: fn(&flowyard_hostsim::predict::Latency) -> f64| {
        points(&|point| point.latency.as_ref().map(of))
    };
    let mean = latency(|latency| latency.mean_us);
    if !mean.is_empty() {
        let us = Axis::log("microseconds", Unit::Plain(""));
        let mut plot = Plot::new("Latency", axis(), us)
            .line("mean", mean)
            .line("99th percentile", latency(|latency| latency.p99_us));
        for (name, end) in ENDS {
            let line = points(&|point| point.mean_us_between.map(end));
            plot = if line.is_empty() { plot } else { plot.line(format!("mean, {name}"), line) };
        }
        plots.push(plot);
    }
    if is_load {
        let share = Axis::linear("share", Unit::Share);
        let lost = points(&|point| Some(point.lost_share));
        let busy = points(&|point| Some(point.busiest_share));
        plots.push(
            Plot::new("Frames lost, and the busiest core", axis(), share)
                .line("frames lost", lost)
                .line("busiest core is busy", busy),
        );
    }
    plots
}

/// The page: key figures, curves, bars, and every number.
pub(super) fn page(prediction: &Prediction, effects: Option<&Sensitivity>) -> Page {
    let mut page = Page::new("Prediction").subtitle(prediction.title.clone());
    page = page.command(output::command_line());
    for row in &prediction.rows {
        let card = Card::new(row.name.clone(), number(row.value));
        page = page
            .card(row.between.into_iter().fold(card, |card, between| card.detail(range(between))));
    }
    let mut curves = Section::new("Curves");
    for curve in &prediction.curves {
        curves = curves.plots(plots(curve));
    }
    for curve in &prediction.curves {
        curves = curves.folded(format!("Numbers by {}", curve.axis), table(curve));
    }
    page = page.section(curves);
    if let Some(effects) = effects {
        let section = Section::new("Which input moves the result most").text("Each input is multiplied by 0.5 and by 2, alone, and the model runs again. A bar is the change of the result.");
        let section = section.plot(effects.plot());
        page = page.section(section.folded("All inputs", effects.table()));
    }
    let notes = prediction.notes.iter().cloned().chain([provenance(prediction)]);
    page.section(
        Section::new("Inputs and where they come from")
            .list(notes.collect::<Vec<_>>())
            .table(inputs(prediction).titled("")),
    )
}
