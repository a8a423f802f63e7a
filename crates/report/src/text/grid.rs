//! A table as text: columns, or if they do not fit, groups of columns or blocks of lines.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::{GAP, NARROWEST, Style, cell_text, pad, wrap};
use crate::table::{Cell, Column, Content, Table, Tone};

#[derive(Clone)]
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

    /// Breaks headings that are wider than what is below them at their spaces, the widest first, until the
    /// table fits.
    fn squeeze_heads(&mut self, limit: usize) {
        let word = |text: &str| text.split(' ').map(UnicodeWidthStr::width).max().unwrap_or(0);
        let body = |i: usize| {
            let rows = self.rows.iter().chain([&self.total]);
            rows.filter_map(|row| row.get(i)).map(|cell| cell.0.width()).max().unwrap_or(0)
        };
        let heads = self.columns.iter().enumerate();
        let least: Vec<usize> =
            heads.map(|(i, c)| body(i).max(word(&c.name)).max(word(&c.unit))).collect();
        while self.width() > limit {
            let spare = |i: usize| self.widths[i].saturating_sub(least[i]);
            let Some(widest) = (0..self.widths.len()).max_by_key(|&i| spare(i)) else { return };
            if spare(widest) == 0 {
                return;
            }
            self.widths[widest] -= 1;
        }
    }

    /// Narrows headings and then the widest text columns until the table fits; returns false if it cannot fit.
    fn squeeze(&mut self, limit: usize) -> bool {
        self.squeeze_heads(limit);
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

    /// Only these columns.
    fn only(&self, columns: &[usize]) -> Self {
        fn pick<T: Clone + Default>(all: &[T], columns: &[usize]) -> Vec<T> {
            columns.iter().map(|&i| all.get(i).cloned().unwrap_or_default()).collect()
        }
        let total = if self.total.is_empty() { Vec::new() } else { pick(&self.total, columns) };
        Self {
            columns: columns.iter().map(|&i| self.columns[i].clone()).collect(),
            units: self.units,
            rows: self.rows.iter().map(|row| pick(row, columns)).collect(),
            total,
            widths: pick(&self.widths, columns),
            wraps: pick(&self.wraps, columns),
        }
    }

    /// Several narrower tables, each with the first column and as many others as fit. A column without a name
    /// stays with the one before it. `None` if not even one column fits beside the first.
    fn groups(&self, limit: usize) -> Option<Vec<Self>> {
        let fitting = |columns: &[usize]| {
            let mut grid = self.only(columns);
            grid.squeeze(limit).then_some(grid)
        };
        let mut groups: Vec<Self> = Vec::new();
        let mut columns = vec![0];
        let mut next = 1;
        while next < self.columns.len() {
            let unnamed = |i: &usize| self.columns[*i].name.is_empty();
            let end = (next + 1..self.columns.len()).find(|i| !unnamed(i));
            let end = end.unwrap_or(self.columns.len());
            let began = columns.len() > 1;
            columns.extend(next..end);
            match fitting(&columns) {
                Some(grid) if began => *groups.last_mut()? = grid,
                Some(grid) => groups.push(grid),
                None if began => {
                    columns.truncate(1);
                    continue; // this column begins the next group
                }
                None => return None,
            }
            next = end;
        }
        Some(groups).filter(|groups| !groups.is_empty())
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
        let mut name = "";
        let heads: Vec<String> = self
            .columns
            .iter()
            .map(|c| {
                // A column without a name continues the one before it.
                name = if c.name.is_empty() { name } else { &c.name };
                match (name.is_empty(), c.unit.is_empty()) {
                    (_, true) => name.to_owned(),
                    (true, false) => c.unit.clone(),
                    (false, false) => format!("{name} ({})", c.unit),
                }
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
    /// Whether the table fits the width of the style.
    #[must_use]
    pub fn fits(&self, style: &Style) -> bool {
        style.width.is_none_or(|limit| Grid::new(self, style).squeeze(limit))
    }

    /// The table as text, ending with a newline; see the head of the module for its form.
    #[must_use]
    pub fn to_text(&self, style: &Style) -> String {
        let mut out = String::new();
        if !self.title.is_empty() {
            let title = style.clean(&self.title);
            let _ = writeln!(out, "{}\n", style.paint(&title, Tone::Strong));
        }
        let whole = Grid::new(self, style);
        let mut grid = whole.clone();
        match style.width {
            Some(limit) if !grid.squeeze(limit) => match whole.groups(limit) {
                // A single row is easier to read as a block.
                Some(groups) if self.rows.len() > 1 => {
                    for (i, group) in groups.iter().enumerate() {
                        out.push_str(if i == 0 { "" } else { "\n" });
                        group.write(&mut out, style);
                    }
                }
                _ => whole.write_blocks(&mut out, style),
            },
            _ => grid.write(&mut out, style),
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
