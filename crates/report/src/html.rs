//! A [`Page`] as one self-contained HTML file: no script, no network, light, dark and print.
//!
//! Everything is escaped by `maud`, and control characters are replaced before that.

use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::file::WriteError;
use crate::page::{Block, Card, Page, Section};
use crate::plot::{HALF, Plot, WIDE};
use crate::table::{Cell, Column, Content, Table, Tone};
use crate::text::clean;
use crate::theme;

/// Writes `page` to `path` completely or not at all.
///
/// # Errors
/// [`WriteError`]; an existing file at `path` is then unchanged.
pub fn write(path: &Path, page: &Page) -> Result<(), WriteError> {
    crate::file::write(path, "page", page.to_html().as_bytes())
}

const fn tone_class(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some("good"),
        Tone::Warn => Some("warn"),
        Tone::Bad => Some("bad"),
        Tone::Strong => Some("strong"),
        Tone::Dim => Some("dim"),
    }
}

/// Plain text with `` `code` `` formatted as code; an unpaired backquote is printed.
fn prose(text: &str) -> Markup {
    let text = clean(text);
    let parts: Vec<&str> = text.split('`').collect();
    let is_code = |i: usize| i % 2 == 1 && i + 1 < parts.len();
    html! {
        @for (i, part) in parts.iter().enumerate() {
            @if is_code(i) { code { (part) } }
            @else if i % 2 == 1 { "`" (part) }
            @else { (part) }
        }
    }
}

fn spark(values: &[f64]) -> Markup {
    const MOST: usize = 96;
    let top = values.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
    let count = values.len().min(MOST);
    let each = if count > 24 { 3 } else { 6 };
    let largest = |i: usize| {
        let part = &values[i * values.len() / count..(i + 1) * values.len() / count];
        part.iter().copied().fold(f64::NAN, f64::max)
    };
    html! {
        svg class="spark" width=(count * each) height="18" role="img" aria-label={ (values.len()) " values" } {
            @for i in 0..count {
                @let value = largest(i);
                @if !value.is_nan() {
                    @let part = if value > 0.0 && top > 0.0 { (value / top).min(1.0) } else { 0.0 };
                    @let tall = (part * 17.0).round().max(1.0);
                    rect x=(i * each) y=(18.0 - tall) width=(each - 1) height=(tall) {}
                }
            }
        }
    }
}

/// Tiles of 9 by 14 pixels in steps of lightness, which are readable in grey, each with a text.
fn heat(tiles: &[(f64, String)]) -> Markup {
    const STEP: usize = 9;
    html! {
        svg class="heat" width=(tiles.len() * STEP) height="14" role="img" aria-label={ (tiles.len()) " tiles" } {
            @for (i, (value, text)) in tiles.iter().enumerate() {
                @let class = if value.is_nan() { Some("never") } else { None };
                @let dark = if *value > 0.0 { 0.08 + 0.92 * value.min(1.0) } else { 0.08 };
                rect class=[class] x=(i * STEP) y="0" width=(STEP - 1) height="14" fill-opacity=(format!("{dark:.2}")) {
                    title { (clean(text)) }
                }
            }
        }
    }
}

fn cell(cell: &Cell, column: &Column) -> Markup {
    let right = column.is_number.then_some("n");
    html! {
        @match &cell.content {
            Content::Text(text) => td class=[join(right, tone_class(cell.tone))] { (clean(text)) },
            Content::Spark(values) => td { (spark(values)) },
            Content::Heat(tiles) => td { (heat(tiles)) },
            Content::Bar { share, label } => {
                @let percent = if *share > 0.0 { share.min(1.0) * 100.0 } else { 0.0 };
                td class=[join(Some("barcell"), tone_class(cell.tone))] {
                    div class="meter" aria-hidden="true" { i style={ "width:" (format!("{percent:.1}")) "%" } {} }
                    span { (clean(label)) }
                }
            },
        }
    }
}

fn join(a: Option<&str>, b: Option<&str>) -> Option<String> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some([a, b].into_iter().flatten().collect::<Vec<_>>().join(" ")),
    }
}

fn row(cells: &[Cell], columns: &[Column]) -> Markup {
    let empty = Cell::default();
    html! {
        tr {
            @for (i, column) in columns.iter().enumerate() {
                (cell(cells.get(i).unwrap_or(&empty), column))
            }
        }
    }
}

/// The most columns of a table that fit a narrow page, such as that of a phone.
const NARROW: usize = 3;

/// A hint, which only narrow pages show.
fn swipe() -> Markup {
    html! { p class="swipe" aria-hidden="true" { "Wider than this page: scroll sideways →" } }
}

fn table(table: &Table) -> Markup {
    let columns = table.all_columns();
    html! {
        figure {
            @if columns.len() > NARROW { (swipe()) }
            div class="scroll" tabindex="0" {
                table {
                    @if !table.title.is_empty() { caption { (prose(&table.title)) } }
                    thead {
                        tr {
                            @for column in &columns {
                                th scope="col" class=[column.is_number.then_some("n")] {
                                    (clean(&column.name))
                                    @if !column.unit.is_empty() { span class="unit" { (clean(&column.unit)) } }
                                }
                            }
                        }
                    }
                    tbody {
                        @for cells in &table.rows { (row(cells, &columns)) }
                        @if table.is_empty() {
                            tr { td class="dim" colspan=(columns.len().max(1)) { "no rows" } }
                        }
                    }
                    @if !table.total.is_empty() { tfoot { (row(&table.total, &columns)) } }
                }
            }
            @for note in &table.notes { p class="note" { (prose(note)) } }
        }
    }
}

fn plot(plot: &Plot, width: f64) -> Markup {
    html! {
        figure {
            @if width > HALF { (swipe()) }
            div class="scroll" { (plot.draw(width, false)) }
            @if !plot.note.is_empty() { figcaption { (prose(&plot.note)) } }
        }
    }
}

fn block(block: &Block) -> Markup {
    html! {
        @match block {
            Block::Text(text) => p { (prose(text)) },
            Block::Note(text) => p class="note" { (prose(text)) },
            Block::Code(lines) => pre class="command" { @for line in lines { (clean(line)) "\n" } },
            Block::List(items) => ul { @for item in items { li { (prose(item)) } } },
            Block::Table(t) => (table(t)),
            Block::Folded(summary, t) => details { summary { (prose(summary)) } (table(t)) },
            Block::Plot(p) => (plot(p, WIDE)),
            Block::Pair(plots) => div class="pair" { @for p in plots { (plot(p, HALF)) } },
            Block::Definitions(terms) => dl {
                @for (term, text) in terms { dt { (prose(term)) } dd { (prose(text)) } }
            },
        }
    }
}

fn section(i: usize, section: &Section) -> Markup {
    html! {
        section id={ "s" (i + 1) } {
            h2 { (prose(&section.title)) }
            @for part in &section.blocks { (block(part)) }
        }
    }
}

fn card(card: &Card) -> Markup {
    html! {
        div class="card" {
            div class="name" { (clean(&card.name)) }
            div class=[join(Some("figure"), tone_class(card.tone))] { (clean(&card.figure)) }
            @if !card.detail.is_empty() { div class="detail" { (clean(&card.detail)) } }
        }
    }
}

impl Page {
    /// The page as one HTML document, ending with a newline.
    #[must_use]
    pub fn to_html(&self) -> String {
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="generator" content={ "flowyard " (env!("CARGO_PKG_VERSION")) };
                    title { (clean(&self.title)) }
                    style { (PreEscaped(theme::page_css())) }
                }
                body {
                    svg class="fy-plot defs" aria-hidden="true" { (theme::hatches()) }
                    main {
                        header {
                            h1 { (clean(&self.title)) }
                            @if !self.subtitle.is_empty() { p class="subtitle" { (prose(&self.subtitle)) } }
                            @if !self.command.is_empty() { div class="command" { (clean(&self.command)) } }
                            @if !self.time.is_empty() { p class="time" { (clean(&self.time)) } }
                        }
                        @if self.sections.len() > 3 {
                            nav aria-label="Sections" {
                                @for (i, s) in self.sections.iter().enumerate() {
                                    @let label = if s.label.is_empty() { &s.title } else { &s.label };
                                    a href={ "#s" (i + 1) } { (clean(label)) }
                                }
                            }
                        }
                        @if !self.cards.is_empty() {
                            div class="cards" { @for c in &self.cards { (card(c)) } }
                        }
                        @for (i, s) in self.sections.iter().enumerate() { (section(i, s)) }
                        footer {
                            @if !self.footnotes.is_empty() {
                                ol { @for note in &self.footnotes { li { (prose(note)) } } }
                            }
                            "Made by flowyard " (env!("CARGO_PKG_VERSION")) "."
                        }
                    }
                }
            }
        };
        let mut out = markup.into_string();
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_set_in_pairs_of_backquotes() {
        assert_eq!(prose("a `b<` c").into_string(), "a <code>b&lt;</code> c");
        assert_eq!(prose("a ` b").into_string(), "a ` b");
        assert_eq!(prose("`x` y ` z").into_string(), "<code>x</code> y ` z");
    }
}
