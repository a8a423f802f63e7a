//! A [`Page`] as text for the terminal: the same report, with plots as sketches.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use crate::page::{Block, Page};
use crate::table::Tone;
use crate::text::{Style, wrap};

/// The largest width of running text on any terminal, because long lines are hard to read.
const PROSE: usize = 100;

impl Page {
    /// The page as text, ending with a newline.
    #[must_use]
    pub fn to_text(&self, style: &Style) -> String {
        let mut out = String::new();
        put(&mut out, style, &self.title, "", "", Tone::Strong);
        put(&mut out, style, &self.subtitle, "", "", Tone::Plain);
        put(&mut out, style, &self.command, "", "", Tone::Dim);
        put(&mut out, style, &self.time, "", "", Tone::Dim);
        self.put_cards(&mut out, style);
        for section in &self.sections {
            out.push('\n');
            put(&mut out, style, &section.title, "", "", Tone::Strong);
            let rule = if style.ascii { "=" } else { "━" };
            let width = style.clean(&section.title).width().min(style.width.unwrap_or(PROSE));
            let _ = writeln!(out, "{}", style.paint(&rule.repeat(width), Tone::Dim));
            for block in &section.blocks {
                put_block(&mut out, style, block);
            }
        }
        for (i, note) in self.footnotes.iter().enumerate() {
            if i == 0 {
                out.push('\n');
            }
            put(&mut out, style, note, &format!("{}. ", i + 1), "   ", Tone::Dim);
        }
        out
    }

    /// Writes [`Page::to_text`] to `out`.
    ///
    /// # Errors
    /// The errors of `out`, such as a closed pipe.
    pub fn write_text(&self, out: &mut impl std::io::Write, style: &Style) -> std::io::Result<()> {
        out.write_all(self.to_text(style).as_bytes())
    }

    fn put_cards(&self, out: &mut String, style: &Style) {
        let names: Vec<String> = self.cards.iter().map(|c| style.clean(&c.name)).collect();
        let width = names.iter().map(|n| n.width()).max().unwrap_or(0);
        for (i, (card, name)) in self.cards.iter().zip(&names).enumerate() {
            if i == 0 {
                out.push('\n');
            }
            let space = " ".repeat(width - name.width());
            let tone = if card.tone == Tone::Plain { Tone::Strong } else { card.tone };
            let figure = style.paint(&style.clean(&card.figure), tone);
            let _ = write!(out, "{}{space}  {figure}", style.paint(name, Tone::Dim));
            if !card.detail.is_empty() {
                let _ = write!(out, "  {}", style.paint(&style.clean(&card.detail), Tone::Dim));
            }
            out.push('\n');
        }
    }
}

/// `text` in lines that fit the style, and that are not too long to read on a terminal: `first` stands before
/// the first line, `rest` (of at most the same width) before the others. It ends with a newline.
#[must_use]
pub fn paragraph(text: &str, first: &str, rest: &str, style: &Style) -> String {
    let space = style.width.map_or(usize::MAX, |width| width.min(PROSE));
    let mut out = String::new();
    for (i, line) in
        wrap(&style.clean(text), space.saturating_sub(first.width())).iter().enumerate()
    {
        let _ = writeln!(out, "{}{line}", if i == 0 { first } else { rest });
    }
    out
}

/// Writes `text` wrapped, `first` before its first line and `rest` before the others.
fn put(out: &mut String, style: &Style, text: &str, first: &str, rest: &str, tone: Tone) {
    if text.is_empty() {
        return;
    }
    let space = style.width.unwrap_or(PROSE).min(PROSE).saturating_sub(first.width());
    for (i, line) in wrap(&style.clean(text), space).iter().enumerate() {
        let lead = if i == 0 { first } else { rest };
        let _ = writeln!(out, "{lead}{}", style.paint(line, tone));
    }
}

fn put_block(out: &mut String, style: &Style, block: &Block) {
    out.push('\n');
    match block {
        Block::Text(text) => put(out, style, text, "", "", Tone::Plain),
        Block::Note(text) => put(out, style, text, "", "", Tone::Dim),
        Block::List(items) => {
            for item in items {
                put(out, style, item, "- ", "  ", Tone::Plain);
            }
        }
        // Not wrapped, so that it can be copied.
        Block::Code(lines) => {
            for line in lines {
                let _ = writeln!(out, "    {}", style.clean(line));
            }
        }
        Block::Table(table) | Block::Folded(_, table) => out.push_str(&table.to_text(style)),
        Block::Plot(plot) => out.push_str(&plot.to_text(style)),
        Block::Pair(plots) => {
            for (i, plot) in plots.iter().enumerate() {
                if i > 0 {
                    out.push('\n');
                }
                out.push_str(&plot.to_text(style));
            }
        }
        Block::Definitions(terms) => {
            for (term, text) in terms {
                put(out, style, term, "", "", Tone::Strong);
                put(out, style, text, "  ", "  ", Tone::Plain);
            }
        }
    }
}
