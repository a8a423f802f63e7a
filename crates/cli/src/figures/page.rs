//! The page: a summary, then each figure with its drawings and numbers.

use flowyard_hostsim::figure::{Figure, Kind};
use flowyard_hostsim::{How, Profile};
use flowyard_report::{Card, Cell, Column, Page, Section, Table, Tone};

/// Rows with a number to compare, of these kinds; and how many are within their tolerance.
fn score(figures: &[Figure], is: impl Fn(Kind) -> bool) -> (usize, usize) {
    let rows = figures.iter().flat_map(|figure| &figure.rows).filter(|row| is(row.kind));
    let within = rows.filter_map(|row| row.within);
    (within.clone().count(), within.filter(|within| *within).count())
}

/// One line a figure.
pub(super) fn summary(figures: &[Figure]) -> Table {
    let mut table = Table::new("Summary")
        .column(Column::text("figure"))
        .column(Column::number("rows"))
        .column(Column::number("compared"))
        .column(Column::number("within"))
        .column(Column::number("tolerance"))
        .column(Column::number("largest deviation of a prediction"));
    for figure in figures {
        let (of, within) = figure.score();
        let predicted = figure.rows.iter().filter(|row| row.kind != Kind::Fitted);
        let most = predicted
            .filter_map(|row| row.deviation)
            .max_by(|a, b| a.abs().total_cmp(&b.abs()))
            .map_or_else(|| "-".to_owned(), |deviation| format!("{:+.0} %", 100.0 * deviation));
        let tone = if within == of { Tone::Good } else { Tone::Warn };
        table.push([
            Cell::new(figure.name.clone()),
            Cell::new(figure.rows.len().to_string()),
            Cell::new(of.to_string()),
            Cell::new(within.to_string()).tone(tone),
            Cell::new(format!("{:.0} %", 100.0 * figure.tolerance)),
            Cell::new(most),
        ]);
    }
    table
}

pub(super) fn page(figures: &[Figure], here: Option<&Profile>) -> Page {
    let line = std::env::args().collect::<Vec<_>>().join(" ");
    let card = |name: &str, (of, within): (usize, usize)| {
        Card::new(name, format!("{within} of {of}")).detail("within their tolerance")
    };
    let mut page = Page::new("Five papers, and flowyard beside them")
        .subtitle("Each table and figure: the paper's numbers, ours from this run, the deviation and why. A prediction is a model's, from costs that were come by without the row; a fitted row says nothing.")
        .command(line)
        .card(Card::new("Tables and figures", figures.len().to_string()))
        .card(card("Predictions", score(figures, |kind| kind == Kind::Prediction)))
        .card(card("Simulated by cycle", score(figures, |kind| kind == Kind::Simulated)))
        .card(card("Fitted", score(figures, |kind| kind == Kind::Fitted)).detail("by design"))
        .section(Section::new("Summary").table(summary(figures).titled("")));
    for figure in figures {
        let mut section = Section::new(figure.title.clone());
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
        section = section.table(figure.numbers()).list(figure.why.clone());
        page = page.section(section);
    }
    let profiles = Profile::names().filter_map(|name| Profile::named(name).ok());
    let mut costs = Section::new("What the models know");
    for profile in here.cloned().into_iter().chain(profiles) {
        costs = costs.table(crate::calibrate::table(&profile));
        let fitted = profile.constants.values().filter(|c| c.how == How::Fitted).count();
        costs = costs.note(format!(
            "{}: {fitted} of {} constants fitted",
            profile.name,
            profile.constants.len()
        ));
    }
    page.section(costs)
}
