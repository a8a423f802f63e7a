//! The HTML page: a summary, then each figure with its plots and numbers.

use std::collections::BTreeSet;

use flowyard_hostsim::{How, Profile};
use flowyard_report::exhibit::{Exhibit, Kind, Row};
use flowyard_report::{Card, Cell, Column, Page, Section, Table, Tone};

use crate::output;

/// Counts the rows of the kinds that `is` selects, in figures compared `against` a paper or a measurement:
/// those compared, and those within their tolerance.
fn score(figures: &[Exhibit], against: &str, is: impl Fn(Kind) -> bool) -> (usize, usize) {
    let figures = figures.iter().filter(|figure| figure.against == against);
    let rows = figures.flat_map(|figure| &figure.rows).filter(|row| is(row.kind));
    let within = rows.filter_map(|row| row.within);
    (within.clone().count(), within.filter(|within| *within).count())
}

/// The number of papers that the figures are from.
fn papers(figures: &[Exhibit]) -> usize {
    let papers: BTreeSet<&str> = figures.iter().map(|figure| &*figure.paper).collect();
    papers.len()
}

/// One row per figure.
pub(super) fn summary(figures: &[Exhibit]) -> Table {
    let mut table = Table::new("Summary")
        .column(Column::text("figure"))
        .column(Column::number("rows"))
        .column(Column::number("compared").unit("rows"))
        .column(Column::number("within tolerance").unit("rows"))
        .column(Column::number("tolerance"))
        .column(Column::number("largest deviation").unit("of compared rows"));
    for figure in figures {
        let (of, within) = figure.score();
        let predicted = figure.rows.iter().filter(|row| row.kind.is_evidence());
        let most = predicted
            .filter_map(|row| row.deviation)
            .max_by(|a, b| a.abs().total_cmp(&b.abs()))
            .map_or_else(
                || "-".to_owned(),
                |most| format!("{:+.0} %", (100.0 * most).round() + 0.0),
            );
        let tone = if within == of { Tone::Good } else { Tone::Warn };
        // A figure without numbers in the paper is not compared.
        let compared = |text: String| if of == 0 { "-".to_owned() } else { text };
        table.push([
            Cell::new(figure.name.clone()),
            Cell::new(figure.rows.len().to_string()),
            Cell::new(compared(of.to_string())),
            Cell::new(compared(within.to_string())).tone(if of == 0 { Tone::Plain } else { tone }),
            Cell::new(compared(format!("{:.0} %", 100.0 * figure.tolerance))),
            Cell::new(most),
        ]);
    }
    table.note("Rows that are fitted or given are not compared: their agreement says nothing about the model.")
}

/// Maximum number of rows to print in full beside a plot.
const FEW: usize = 14;

/// The figure's rows. If there is a plot and many rows, only those compared with a number are shown; the
/// complete table is folded.
fn numbers(section: Section, figure: &Exhibit) -> Section {
    let is_compared = |row: &Row| row.paper.is_some();
    if figure.plots.is_empty() || figure.rows.len() <= FEW {
        return section.table(figure.numbers());
    }
    let (of, within) = figure.score();
    let all = format!("All {} rows", figure.rows.len());
    match of {
        0 => section.folded(all, figure.numbers()),
        // Many of the paper's numbers, too: they are in the plot.
        of if of > FEW => {
            section.folded(format!("{all}: {within} of {of} within tolerance"), figure.numbers())
        }
        _ => section.table(figure.some(is_compared)).folded(all, figure.numbers()),
    }
}

pub(super) fn page(figures: &[Exhibit], here: Option<&Profile>) -> Page {
    let line = output::command_line();
    let mut page = Page::new("Published tables and figures compared with flowyard")
        .subtitle("Each table and figure has the paper's numbers, the numbers of this run, the deviation and its reason. A prediction comes from a model whose costs were obtained without that row. A fitted row was used to choose a cost, or follows from such a row; a given row is an input. Their agreement is not evidence, so they do not count as compared.")
        .command(line)
        .card(Card::new("Tables and figures", figures.len().to_string()))
        .card(Card::new("Papers", papers(figures).to_string()));
    for (name, (of, within)) in [
        ("Model against measurement", score(figures, "measured", |_| true)),
        ("Model against paper", score(figures, "paper", |kind| kind == Kind::Prediction)),
        ("Cycle simulation against paper", score(figures, "paper", |kind| kind == Kind::Simulated)),
    ] {
        if of > 0 {
            let card = Card::new(name, format!("{within} of {of}"));
            page = page.card(card.detail("rows within tolerance"));
        }
    }
    page = page.section(Section::new("Summary").table(summary(figures).titled("")));
    for figure in figures {
        let mut section = Section::new(figure.title.clone()).label(figure.name.clone());
        let (first, rest) = match figure.plots.as_slice() {
            [one] => (Some(one), &[][..]),
            several => (None, several),
        };
        section = section.text(format!("{}; {}. `{}`", figure.paper, figure.place, figure.command));
        if let Some(plot) = first {
            section = section.plot(plot.clone());
        }
        if !rest.is_empty() {
            section = section.plots(rest.to_vec());
        }
        page = page.section(numbers(section, figure).list(figure.remarks()));
    }
    let profiles = Profile::names().filter_map(|name| Profile::named(name).ok());
    let mut costs = Section::new("Costs used by the models");
    for profile in here.cloned().into_iter().chain(profiles) {
        costs = costs.table(crate::calibrate::table(&profile));
        let fitted = profile.constants.values().filter(|c| c.how == How::Fitted).count();
        costs = costs.note(format!(
            "{}: {fitted} of {} constants were fitted",
            profile.name,
            profile.constants.len()
        ));
    }
    page.section(costs)
}
