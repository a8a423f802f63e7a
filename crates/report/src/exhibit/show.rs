//! An [`Exhibit`] as a table and as CSV.

use super::{Bound, Exhibit, Row};
use crate::table::{Cell, Column, Table, Tone};

impl Exhibit {
    /// The rows as a table with a title, the source, and the notes.
    #[must_use]
    pub fn table(&self) -> Table {
        let source = format!("{}; {}", self.paper, self.place);
        let table = self.numbers().titled(self.title.clone()).note(source);
        self.remarks().into_iter().fold(table, Table::note)
    }

    /// The notes, then the rows that are known not to be met, by reason.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in &self.rows {
            let Some(reason) = &row.not_met else { continue };
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, rows)) => rows.push(&row.name),
                None => reasons.push((reason, vec![&row.name])),
            }
        }
        let not_met = reasons.into_iter().map(|(reason, rows)| {
            format!("Outside the accepted range: {}. {reason}", rows.join("; "))
        });
        self.notes.iter().cloned().chain(not_met).collect()
    }

    /// All rows as a table.
    #[must_use]
    pub fn numbers(&self) -> Table {
        self.some(|_| true)
    }

    /// The rows that `wanted` selects, as a table. If none of them has a number to compare with, the
    /// table has no columns for one.
    #[must_use]
    pub fn some(&self, wanted: impl Fn(&Row) -> bool) -> Table {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| wanted(row)).collect();
        let is_compared = rows.iter().any(|row| row.paper.is_some());
        let mut table = Table::new("").column(Column::text(""));
        if is_compared {
            table = table.column(Column::number(self.against.clone()).unit(self.unit.clone()));
        }
        table = table.column(Column::number("ours").unit(self.unit.clone()));
        if is_compared {
            table = table.column(Column::number("deviation"));
        }
        table = table.column(Column::text("ours is"));
        for row in rows {
            let mut cells = vec![Cell::new(row.name.clone())];
            if is_compared {
                cells.push(Cell::new(row.beside()));
            }
            cells.push(Cell::new(decimal(row.ours)));
            if is_compared {
                cells.push(row.verdict());
            }
            cells.push(Cell::new(row.kind.name()).tone(Tone::Dim));
            table.push(cells);
        }
        table
    }

    /// The rows as CSV: place, name, paper, ours, deviation.
    #[must_use]
    pub fn csv(&self) -> String {
        let some = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.6}"));
        let mut text = String::from("exhibit,name,paper,ours,deviation\n");
        for row in &self.rows {
            let name = row.name.replace('"', "\"\"");
            let (paper, deviation) = (some(row.paper), some(row.deviation));
            text += &format!("{},\"{name}\",{paper},{:.6},{deviation}\n", self.place, row.ours);
        }
        text
    }
}

impl Row {
    /// The number beside ours, as it is printed.
    fn beside(&self) -> String {
        match (self.paper, self.bound) {
            (None, _) => "-".to_owned(),
            (Some(paper), Bound::Equal) => decimal(paper),
            (Some(paper), Bound::Below) => format!("≤ {}", decimal(paper)),
            (Some(paper), Bound::Above) => format!("≥ {}", decimal(paper)),
        }
    }

    /// The deviation, coloured by whether our number is in the accepted range.
    fn verdict(&self) -> Cell {
        let text = match (self.deviation, self.paper) {
            // Adding 0.0 turns -0.0 into 0.0.
            (Some(deviation), _) => format!("{:+.1} %", (1000.0 * deviation).round() / 10.0 + 0.0),
            (None, Some(_)) => "within the limit".to_owned(),
            (None, None) => "-".to_owned(),
        };
        let tone = match self.within {
            Some(true) => Tone::Good,
            Some(false) => Tone::Warn,
            None => Tone::Plain,
        };
        Cell::new(text).tone(tone)
    }
}

/// A number with four significant digits or more.
fn decimal(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1000.0 => crate::num::exact(v.round() as u64),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
