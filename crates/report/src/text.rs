//! Tables, bars and sparklines as text for a terminal, a log or a mail.
//!
//! ```text
//! policy   frames  load per queue  locality
//! ──────  ───────  ──────────────  ────────────────────
//! rss     1.23 M   ▅▇▄█▅▆▇▅        ███▏         25.1 %
//! ```
//!
//! Columns are separated by two spaces, and there is one thin line under the headings. A table that is too
//! wide wraps its text columns at spaces; if its numbers alone are too wide, every row becomes a block of
//! `heading  value` lines. Numbers are never cut. Control characters in the data (a capture may contain
//! any bytes) never reach the terminal.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::table::{Cell, Column, Content, Table, Tone};

/// How text may be written; the caller knows where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// The columns of the terminal; `None` is no limit.
    pub width: Option<usize>,
    /// Whether bold and colour (ANSI SGR) may be used, which only a terminal understands.
    pub colour: bool,
    /// Whether only ASCII may be used.
    pub ascii: bool,
}

impl Style {
    /// No limit, no colour, Unicode: for files and pipes.
    #[must_use]
    pub const fn plain() -> Self {
        Self { width: None, colour: false, ascii: false }
    }

    /// For a terminal of `width` columns, with colour.
    #[must_use]
    pub const fn terminal(width: usize) -> Self {
        Self { width: Some(width), colour: true, ascii: false }
    }

    pub(crate) fn paint(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => "",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "1;31",
            Tone::Strong => "1",
            Tone::Dim => "2",
        };
        if !self.colour || code.is_empty() || text.trim().is_empty() {
            return text.to_string();
        }
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// `text` without control characters, and in ASCII if the style requires it.
    pub(crate) fn clean(&self, text: &str) -> String {
        let text = clean(text);
        if !self.ascii || text.is_ascii() {
            return text;
        }
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                c if c.is_ascii() => out.push(c),
                'µ' | 'μ' => out.push('u'),
                '–' | '—' | '−' | '─' => out.push('-'),
                '×' => out.push('x'),
                '·' | '•' => out.push('*'),
                '…' => out.push_str("..."),
                '≤' => out.push_str("<="),
                '≥' => out.push_str(">="),
                '→' => out.push_str("->"),
                '‘' | '’' => out.push('\''),
                '“' | '”' => out.push('"'),
                '\u{a0}' | '\u{202f}' => out.push(' '),
                _ => out.push('?'),
            }
        }
        out
    }
}

/// `text` without the characters that could control a terminal, break XML or reverse the line.
pub(crate) fn clean(text: &str) -> String {
    let is_bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    let replace = |c: char| match c {
        '\n' | '\t' | '\r' => ' ',
        c if is_bad(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(replace).collect()
}

/// A bar of `width` columns of which `share` is filled (0 to 1, clamped; not-a-number is empty). A share above
/// zero is always visible.
///
/// ```
/// use flowyard_report::text::bar;
/// assert_eq!(bar(0.5, 4, false), "██  ");
/// assert_eq!(bar(0.5, 4, true), "##..");
/// ```
#[must_use]
pub fn bar(share: f64, width: usize, ascii: bool) -> String {
    let share = if share > 0.0 { share.min(1.0) } else { 0.0 };
    let eighths = (share * width as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let (full, part) = (eighths / 8, eighths % 8);
    let mut out = String::new();
    if ascii {
        let full = if eighths > 0 { ((eighths + 4) / 8).max(1).min(width) } else { 0 };
        out.extend(std::iter::repeat_n('#', full));
        out.extend(std::iter::repeat_n('.', width - full));
        return out;
    }
    let full = full.min(width);
    out.extend(std::iter::repeat_n('█', full));
    if full < width {
        out.push([' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'][part]);
        out.extend(std::iter::repeat_n(' ', width - full - 1));
    }
    out
}

/// One character for each value, from 0 to the largest. If there are more than `width` values, each character
/// shows the largest of several. Zero is the lowest mark, not-a-number is a space.
///
/// ```
/// use flowyard_report::text::spark;
/// assert_eq!(spark(&[0.0, 4.0, 8.0], 40, false), "▁▅█");
/// assert_eq!(spark(&[0.0, 4.0, 8.0], 40, true), "_=#");
/// ```
#[must_use]
pub fn spark(values: &[f64], width: usize, ascii: bool) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let marks = if ascii { ASCII } else { BLOCKS };
    let top = values.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
    let count = values.len().min(width);
    let mut out = String::new();
    for i in 0..count {
        let part = &values[i * values.len() / count..(i + 1) * values.len() / count];
        let value = part.iter().copied().fold(f64::NAN, f64::max);
        out.push(match value {
            v if v.is_nan() => ' ',
            v if v <= 0.0 => marks[0],
            f64::INFINITY => marks[7],
            v => marks[((v / top * 7.0).round() as usize).clamp(1, 7)],
        });
    }
    out
}

/// One character for each tile, fuller for larger values; a space for not-a-number.
fn heat(tiles: &[(f64, String)], ascii: bool) -> String {
    const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
    const ASCII: [char; 5] = ['.', ':', '-', '+', '#'];
    let marks = if ascii { ASCII } else { SHADES };
    let mark = |value: f64| match value {
        v if v.is_nan() => ' ',
        v => marks[((v.clamp(0.0, 1.0) * 4.0).ceil() as usize).min(4)],
    };
    tiles.iter().map(|&(value, _)| mark(value)).collect()
}

const BAR_WIDTH: usize = 12;
const SPARK_WIDTH: usize = 48;
const GAP: &str = "  ";
/// The smallest width to which a text column is reduced.
const NARROWEST: usize = 8;

fn cell_text(cell: &Cell, style: &Style) -> String {
    match &cell.content {
        Content::Text(text) => style.clean(text),
        Content::Spark(values) => spark(values, SPARK_WIDTH, style.ascii),
        Content::Heat(tiles) => heat(tiles, style.ascii),
        Content::Bar { share, label } => {
            // Labels are numbers, right-aligned in the width of "100.0 %".
            format!("{} {:>7}", bar(*share, BAR_WIDTH, style.ascii), style.clean(label))
        }
    }
}

fn pad(text: &str, width: usize, right: bool) -> String {
    let space = " ".repeat(width.saturating_sub(text.width()));
    if right { format!("{space}{text}") } else { format!("{text}{space}") }
}

/// `text` in lines of at most `width` columns, broken at spaces where possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let size = word.width();
        let last = lines.len() - 1;
        if used > 0 && used + 1 + size <= width {
            lines[last].push(' ');
            lines[last].push_str(word);
            used += 1 + size;
            continue;
        }
        if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let size = c.width().unwrap_or(0);
            if used + size > width && used > 0 {
                lines.push(String::new());
                used = 0;
            }
            let last = lines.len() - 1;
            lines[last].push(c);
            used += size;
        }
    }
    lines
}

struct Grid {
    columns: Vec<Column>,
    units: bool,
    rows: Vec<Vec<(String, Tone)>>,
    total: Vec<(String, Tone)>,
    widths: Vec<usize>,
    /// Whether the cells of a column may be broken into lines.
    wraps: Vec<bool>,
}

impl Grid {
    fn new(table: &Table, style: &Style) -> Self {
        let mut columns = table.all_columns();
        for column in &mut columns {
            column.name = style.clean(&column.name);
            column.unit = style.clean(&column.unit);
        }
        let written = |row: &Vec<Cell>| -> Vec<(String, Tone)> {
            row.iter().map(|cell| (cell_text(cell, style), cell.tone)).collect()
        };
        let rows: Vec<_> = table.rows.iter().map(written).collect();
        let total = written(&table.total);
        let mut widths: Vec<usize> =
            columns.iter().map(|c| c.name.width().max(c.unit.width())).collect();
        for row in rows.iter().chain([&total]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.0.width());
            }
        }
        let is_text = |i: usize| {
            table
                .rows
                .iter()
                .filter_map(|row| row.get(i))
                .all(|c| matches!(c.content, Content::Text(_)))
        };
        let wraps = columns.iter().enumerate().map(|(i, c)| !c.is_number && is_text(i)).collect();
        let units = columns.iter().any(|c| !c.unit.is_empty());
        Self { columns, units, rows, total, widths, wraps }
    }

    fn width(&self) -> usize {
        self.widths.iter().sum::<usize>() + GAP.len() * self.widths.len().saturating_sub(1)
    }

    /// Narrows the widest text columns until the table fits; returns false if it cannot fit.
    fn squeeze(&mut self, limit: usize) -> bool {
        while self.width() > limit {
            let over = self.width() - limit;
            let widest = (0..self.widths.len())
                .filter(|&i| self.wraps[i] && self.widths[i] > NARROWEST)
                .max_by_key(|&i| self.widths[i]);
            let Some(widest) = widest else { return false };
            // Down to the width of the next widest, so that two wide columns are narrowed equally.
            let second = (0..self.widths.len())
                .filter(|&i| i != widest && self.wraps[i])
                .map(|i| self.widths[i])
                .max()
                .unwrap_or(0);
            let step = (self.widths[widest] - second.clamp(NARROWEST, self.widths[widest])).max(1);
            self.widths[widest] -= step.min(over);
        }
        true
    }

    fn line(&self, out: &mut String, cells: &[(String, Tone)], style: &Style) {
        let wrapped: Vec<Vec<String>> = (0..self.widths.len())
            .map(|i| {
                let text = cells.get(i).map_or("", |c| c.0.as_str());
                if text.width() > self.widths[i] {
                    wrap(text, self.widths[i])
                } else {
                    vec![text.to_string()]
                }
            })
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
        for k in 0..height {
            let mut line = String::new();
            let mut gap = String::new();
            for (i, lines) in wrapped.iter().enumerate() {
                let tone = cells.get(i).map_or(Tone::Plain, |c| c.1);
                let text = lines.get(k).map_or("", String::as_str);
                // Spaces are written before the next text, so that no line ends with spaces.
                let padded = pad(text, self.widths[i], self.columns[i].is_number);
                let start = padded.trim_start();
                gap.push_str(&padded[..padded.len() - start.len()]);
                let word = start.trim_end();
                if !word.is_empty() {
                    line.push_str(&gap);
                    line.push_str(&style.paint(word, tone));
                    gap.clear();
                    gap.push_str(&start[word.len()..]);
                }
                gap.push_str(GAP);
            }
            let _ = writeln!(out, "{line}");
        }
    }

    fn rule(&self, out: &mut String, style: &Style) {
        let dash = if style.ascii { "-" } else { "─" };
        let dashes: Vec<String> = self.widths.iter().map(|&w| dash.repeat(w)).collect();
        let _ = writeln!(out, "{}", style.paint(dashes.join(GAP).trim_end(), Tone::Dim));
    }

    fn write(&self, out: &mut String, style: &Style) {
        let heads: Vec<_> = self.columns.iter().map(|c| (c.name.clone(), Tone::Strong)).collect();
        self.line(out, &heads, style);
        if self.units {
            let units: Vec<_> = self.columns.iter().map(|c| (c.unit.clone(), Tone::Dim)).collect();
            self.line(out, &units, style);
        }
        self.rule(out, style);
        for row in &self.rows {
            self.line(out, row, style);
        }
        if !self.total.is_empty() {
            self.rule(out, style);
            self.line(out, &self.total, style);
        }
    }

    /// One block of `heading  value` lines for each row, for terminals that are too narrow for the columns.
    fn write_blocks(&self, out: &mut String, style: &Style) {
        let heads: Vec<String> = self
            .columns
            .iter()
            .map(|c| match (c.name.is_empty(), c.unit.is_empty()) {
                (_, true) => c.name.clone(),
                (true, false) => c.unit.clone(),
                (false, false) => format!("{} ({})", c.name, c.unit),
            })
            .collect();
        let width = heads.iter().map(|h| h.width()).max().unwrap_or(0);
        let rows = self.rows.iter().chain((!self.total.is_empty()).then_some(&self.total));
        for (i, row) in rows.enumerate() {
            if i > 0 {
                out.push('\n');
            }
            for (head, (text, tone)) in heads.iter().zip(row) {
                let head = style.paint(&pad(head, width, false), Tone::Dim);
                let line = format!("{head}{GAP}{}", style.paint(text, *tone));
                let _ = writeln!(out, "{}", line.trim_end());
            }
        }
    }
}

impl Table {
    /// The table as text, ending with a newline; see the head of the module for its form.
    #[must_use]
    pub fn to_text(&self, style: &Style) -> String {
        let mut out = String::new();
        if !self.title.is_empty() {
            let title = style.clean(&self.title);
            let _ = writeln!(out, "{}\n", style.paint(&title, Tone::Strong));
        }
        let mut grid = Grid::new(self, style);
        if style.width.is_none_or(|limit| grid.squeeze(limit)) {
            grid.write(&mut out, style);
        } else {
            Grid::new(self, style).write_blocks(&mut out, style);
        }
        if self.rows.is_empty() {
            let _ = writeln!(out, "{}", style.paint("(no rows)", Tone::Dim));
        }
        for note in &self.notes {
            for line in wrap(&style.clean(note), style.width.unwrap_or(usize::MAX)) {
                let _ = writeln!(out, "{}", style.paint(&line, Tone::Dim));
            }
        }
        out
    }

    /// Writes [`Table::to_text`] to `out`.
    ///
    /// # Errors
    /// The errors of `out`, such as a closed pipe.
    pub fn write_text(&self, out: &mut impl std::io::Write, style: &Style) -> std::io::Result<()> {
        out.write_all(self.to_text(style).as_bytes())
    }
}
