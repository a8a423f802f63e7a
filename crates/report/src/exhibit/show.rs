//! An [`Exhibit`] as a table and as CSV.

use super::{Between, Bound, Exhibit, How, Interval, Kind, Row, Spread};
use crate::table::{Cell, Column, Table, Tone};

impl Exhibit {
    /// The rows as a table with a title, the source, and the notes.
    #[must_use]
    pub fn table(&self) -> Table {
        let source = format!("{}; {}", self.paper, self.place);
        let table = self.numbers().titled(self.title.clone()).note(source);
        self.remarks().into_iter().fold(table, Table::note)
    }

    /// The machine, the notes, the rows that are known not to be met by reason, the errors of the paper, and
    /// the inputs that were fitted.
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
        let machine = self.conditions.iter().map(super::Conditions::sentence);
        let not_met = reasons.into_iter().map(|(reason, rows)| {
            format!("Outside the accepted range: {}. {reason}", rows.join("; "))
        });
        let errata = self.errata.iter().map(|erratum| {
            format!("Error in the source: {} Evidence: {}", erratum.says, erratum.evidence)
        });
        let notes = self.notes.iter().cloned();
        machine.chain(notes).chain(not_met).chain(errata).chain(self.fitted()).collect()
    }

    /// One sentence about the inputs: how many there are, and which were fitted to what.
    fn fitted(&self) -> Option<String> {
        let inputs = crate::num::count(self.inputs.len() as u64, "input", "inputs");
        let fitted = self.inputs.iter().filter(|input| input.how == How::Fitted);
        let fitted: Vec<String> =
            fitted.map(|input| format!("{} to {}", input.name, input.source)).collect();
        if self.inputs.is_empty() {
            return None;
        }
        Some(if fitted.is_empty() {
            format!("{inputs}, none of them fitted.")
        } else {
            let rows = self.rows.iter().filter(|row| !row.fitted_inputs.is_empty()).count();
            let rows = crate::num::count(rows as u64, "row has", "rows have");
            format!(
                "{inputs}. {rows} a fitted input and cannot count. Fitted: {}.",
                fitted.join("; ")
            )
        })
    }

    /// The inputs as a table.
    #[must_use]
    pub fn input_table(&self) -> Table {
        let mut table = Table::new("Inputs")
            .column(Column::text("input"))
            .column(Column::number("value"))
            .column(Column::text("interval"))
            .column(Column::text("obtained"))
            .column(Column::text("source; for fitted inputs, the rows that they were fitted to"));
        for input in &self.inputs {
            table.push([
                Cell::new(input.name.clone()),
                Cell::new(decimal(input.value)),
                Cell::new(input.interval.map_or_else(|| "-".to_owned(), ends)),
                Cell::new(input.how.name()).tone(Tone::Dim),
                Cell::new(input.source.clone()),
            ]);
        }
        table
    }

    /// The number of rows of each kind, as in `3 predicted, 1 fitted`, and those with fitted inputs.
    #[must_use]
    pub fn provenance(&self) -> String {
        let of = |kind: Kind| self.rows.iter().filter(|row| row.kind == kind).count();
        let mut parts: Vec<String> = Kind::ALL
            .into_iter()
            .filter(|kind| of(*kind) > 0)
            .map(|kind| format!("{} {}", of(kind), kind.name()))
            .collect();
        let from = |row: &&Row| row.kind == Kind::Predicted && !row.fitted_inputs.is_empty();
        let from = self.rows.iter().filter(from).count();
        if from > 0 {
            parts.push(format!("{from} of the predicted from fitted inputs"));
        }
        if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
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
        let has_between = rows.iter().any(|row| row.between.is_some());
        let has_rounds = rows.iter().any(|row| row.spread.is_some());
        let mut table = Table::new("").column(Column::text(""));
        if is_compared {
            table = table.column(Column::number(self.against.clone()).unit(self.unit.clone()));
        }
        table = table.column(Column::number("ours").unit(self.unit.clone()));
        if has_between {
            table = table.column(Column::text("by intervals of costs"));
        }
        if is_compared {
            table = table.column(Column::number("deviation"));
        }
        if has_rounds {
            table = table.column(Column::text("measured: least to most, rounds"));
        }
        table = table.column(Column::text("ours is"));
        for row in rows {
            let mut cells = vec![Cell::new(row.name.clone())];
            if is_compared {
                cells.push(Cell::new(row.beside()));
            }
            cells.push(Cell::new(decimal(row.ours)));
            if has_between {
                let words = |b: Between| format!("{} to {}", decimal(b.low), decimal(b.high));
                cells.push(Cell::new(row.between.map_or_else(|| "-".to_owned(), words)));
            }
            if is_compared {
                cells.push(row.verdict());
            }
            if has_rounds {
                cells.push(Cell::new(row.spread.map_or_else(|| "-".to_owned(), rounds)));
            }
            cells.push(Cell::new(row.origin()).tone(Tone::Dim));
            table.push(cells);
        }
        table
    }

    /// The rows as CSV: place, name, paper, ours, deviation, where ours comes from, whether the row counts.
    #[must_use]
    pub fn csv(&self) -> String {
        let some = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.6}"));
        let mut text = String::from("exhibit,name,paper,ours,deviation,kind,counts\n");
        for row in &self.rows {
            let name = row.name.replace('"', "\"\"");
            let (paper, deviation) = (some(row.paper), some(row.deviation));
            let (kind, counts) = (row.kind.name(), row.counts);
            text += &format!(
                "{},\"{name}\",{paper},{:.6},{deviation},{kind},{counts}\n",
                self.place, row.ours
            );
        }
        text
    }
}

/// An interval, for tables.
fn ends(interval: Interval) -> String {
    format!("{} to {}", decimal(interval.low), decimal(interval.high))
}

/// The rounds of a measurement, for tables.
fn rounds(spread: Spread) -> String {
    format!("{} to {}, {}", decimal(spread.least), decimal(spread.most), spread.rounds)
}

impl Row {
    /// Where our number comes from, for tables.
    fn origin(&self) -> String {
        let kind = self.kind.name();
        if self.kind == Kind::Fitted || self.fitted_inputs.is_empty() {
            return kind.to_owned();
        }
        // Without the profile's name, which the list of inputs has.
        let short = |name: &String| name.rsplit_once('.').map_or(name.clone(), |(_, s)| s.into());
        let inputs: Vec<String> = self.fitted_inputs.iter().map(short).collect();
        format!("{kind} from fitted {}", inputs.join(", "))
    }

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
