//! The HTML page: a summary, then each figure with its plots and numbers.

use std::collections::BTreeSet;

use flowyard_hostsim::{How, Profile};
use flowyard_report::exhibit::{Exhibit, Row, Score, Sensitivity};
use flowyard_report::{Card, Cell, Column, Page, Section, Table, Tone, num};

use crate::output;

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
        .column(Column::number("count").unit("rows"))
        .column(Column::number("agree").unit("rows"))
        .column(Column::number("tolerance"))
        .column(Column::number("largest deviation").unit("of rows that count"))
        .column(Column::text("where the rows come from"));
    for figure in figures {
        let Score { counted, agree } = figure.score;
        let most = figure.rows.iter().filter(|row| row.counts).filter_map(|row| row.deviation);
        let most = most.max_by(|a, b| a.abs().total_cmp(&b.abs())).map_or_else(
            || "-".to_owned(),
            |most| format!("{:+.0} %", (100.0 * most).round() + 0.0),
        );
        let tone = match counted {
            0 => Tone::Plain,
            _ if agree == counted => Tone::Good,
            _ => Tone::Warn,
        };
        let some = |text: String| if counted == 0 { "-".to_owned() } else { text };
        table.push([
            Cell::new(figure.name.clone()),
            Cell::new(figure.rows.len().to_string()),
            Cell::new(some(counted.to_string())),
            Cell::new(some(agree.to_string())).tone(tone),
            Cell::new(some(format!("{:.0} %", 100.0 * figure.tolerance))),
            Cell::new(most),
            Cell::new(figure.provenance()).tone(Tone::Dim),
        ]);
    }
    let rows = || figures.iter().flat_map(|figure| &figure.rows);
    let Score { counted, agree } = Score::of(rows());
    table.note(format!(
        "{agree} of the {counted} rows that count agree, of {} rows. A row counts if it is measured or predicted, has a number to be compared with, and none of its inputs was fitted. Rows that are computed, arithmetic, assumed, fitted or copied never count.",
        rows().count()
    ))
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
    let Score { counted, agree } = figure.score;
    let of = figure.rows.iter().filter(|row| is_compared(row)).count();
    let all = format!("All {} rows", figure.rows.len());
    match of {
        0 => section.folded(all, figure.numbers()),
        // Many of the paper's numbers, too: they are in the plot.
        of if of > FEW => section
            .folded(format!("{all}: {agree} of the {counted} that count agree"), figure.numbers()),
        _ => section.table(figure.some(is_compared)).folded(all, figure.numbers()),
    }
}

pub(super) fn page(
    figures: &[Exhibit],
    effects: &[Sensitivity],
    here: Option<&Profile>,
    given: &[Profile],
) -> Page {
    let line = output::command_line();
    let mut page = Page::new("Published tables and figures compared with flowyard")
        .subtitle("Each table and figure has the paper's numbers, the numbers of this run, the deviation and its reason. Every number says where it comes from: measured here, predicted by a model from named inputs, computed by the component itself, arithmetic, assumed, fitted, or copied from the paper. Agreement counts only for measured and predicted rows without a fitted input.")
        .command(line)
        .card(Card::new("Tables and figures", figures.len().to_string()))
        .card(Card::new("Papers", papers(figures).to_string()));
    let score = |against: &str, is_simulated: bool| {
        let of = figures.iter().filter(|figure| figure.against == against);
        let of = of.filter(|figure| figure.name.starts_with("nic-") == is_simulated);
        Score::of(of.flat_map(|figure| &figure.rows))
    };
    for (name, Score { counted, agree }) in [
        ("Rows that count", Score::of(figures.iter().flat_map(|figure| &figure.rows))),
        ("Model against measurement", score("measured", false)),
        ("Model against paper", score("paper", false)),
        ("Cycle simulation against paper", score("paper", true)),
    ] {
        let card = Card::new(name, format!("{agree} of {counted}"));
        page = page.card(card.detail("rows that count and agree"));
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
        let mut section = numbers(section, figure).list(figure.remarks());
        for effect in effects.iter().filter(|effect| effect.figure == figure.name) {
            section =
                section.plot(effect.plot()).folded("Sensitivity to every input", effect.table());
        }
        page = page.section(if figure.inputs.is_empty() {
            section
        } else {
            let inputs = num::count(figure.inputs.len() as u64, "input", "inputs");
            section.folded(format!("{inputs} of the model"), figure.input_table())
        });
    }
    let built_in = Profile::names().filter(|name| given.iter().all(|given| given.name != *name));
    let profiles = built_in.filter_map(|name| Profile::named(name).ok());
    let profiles = given.iter().cloned().chain(profiles);
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
