//! A table or figure of a paper: its numbers, ours beside them, the deviation and why.
//!
//! `figures/*.toml` holds one file for each: where it is in which paper, the numbers that the paper
//! prints, the tolerance, and why ours differ. Ours are not in the files: a run computes them. A row is
//! *measured* on this machine, a *prediction*, or *fitted*: a constant of the profile was chosen so that
//! the row comes out, and it predicts nothing.

use std::collections::BTreeMap;

use flowyard_report::{Cell, Column, Plot, Table, Tone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// What our number of a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// By a model, from costs that were come by without this row.
    #[default]
    Prediction,
    /// By a model of which a constant was fitted to this row.
    Fitted,
    /// On this machine, in this run.
    Measured,
    /// By the cycle-level model of the adapter, of which nothing is fitted.
    Simulated,
}

impl Kind {
    /// The word in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prediction => "prediction",
            Self::Fitted => "fitted",
            Self::Measured => "measured",
            Self::Simulated => "simulated",
        }
    }
}

/// How the paper's number is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// As it is.
    #[default]
    Equal,
    /// "Never above".
    Below,
    /// "At least".
    Above,
}

/// A row of a figure's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// What it is; ours has the same name.
    pub name: String,
    /// The paper's number.
    pub paper: f64,
    /// How to read it.
    #[serde(default)]
    pub bound: Bound,
    /// What ours is.
    #[serde(default)]
    pub kind: Kind,
    /// The tolerance of this row, if it has its own.
    pub tolerance: Option<f64>,
}

fn paper() -> String {
    "paper".to_owned()
}

/// A figure's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The name on the command line.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Which paper.
    pub paper: String,
    /// Where in it.
    pub place: String,
    /// The command that makes it.
    pub command: String,
    /// The unit of its numbers.
    pub unit: String,
    /// The deviation, as a share, that calls for a reason.
    pub tolerance: f64,
    /// Whose numbers stand beside ours: "paper" or "measured".
    #[serde(default = "paper")]
    pub against: String,
    /// Why ours differ, and what to know.
    #[serde(default)]
    pub why: Vec<String>,
    /// The paper's numbers.
    #[serde(default, rename = "row")]
    pub rows: Vec<Printed>,
}

/// Why a figure cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A file of figures/ is no such file.
    #[error("figures/{file}.toml: {source}")]
    File {
        /// Its name.
        file: &'static str,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
    /// The paper has a row that nothing was computed for.
    #[error("figures/{file}.toml: nothing was computed for the row '{row}'")]
    Row {
        /// The file.
        file: String,
        /// The row.
        row: String,
    },
    /// The model.
    #[error("{0}")]
    Model(String),
}

/// What a run computed for a figure.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Numbers by name, in the order of the table.
    pub values: Vec<(String, f64, Kind)>,
    /// Drawings.
    pub plots: Vec<Plot>,
    /// What to know of this run.
    pub notes: Vec<String>,
}

impl Made {
    /// A prediction.
    pub fn push(&mut self, name: impl Into<String>, value: f64) {
        self.values.push((name.into(), value, Kind::Prediction));
    }

    /// A number of another kind.
    pub fn push_as(&mut self, kind: Kind, name: impl Into<String>, value: f64) {
        self.values.push((name.into(), value, kind));
    }
}

/// A row: the paper's number and ours.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// The paper's number, if it prints one.
    pub paper: Option<f64>,
    /// How to read it.
    pub bound: Bound,
    /// Ours.
    pub ours: f64,
    /// What ours is.
    pub kind: Kind,
    /// Ours over the paper's, less one. Of a bound that is kept: nothing.
    pub deviation: Option<f64>,
    /// Whether the deviation is within the tolerance; `None` without a paper's number.
    pub within: Option<bool>,
}

impl Row {
    /// A row with its deviation.
    #[must_use]
    pub fn new(
        name: String,
        paper: Option<(f64, Bound)>,
        ours: f64,
        kind: Kind,
        tolerance: f64,
    ) -> Self {
        let bound = paper.map_or(Bound::Equal, |(_, bound)| bound);
        let kept = paper.is_some_and(|(paper, bound)| match bound {
            Bound::Equal => false,
            Bound::Below => ours <= paper,
            Bound::Above => ours >= paper,
        });
        let deviation =
            paper.filter(|(paper, _)| *paper != 0.0).map(|(paper, _)| ours / paper - 1.0);
        let deviation = deviation.filter(|_| !kept);
        let within = paper.map(|(paper, _)| match deviation {
            Some(deviation) => deviation.abs() <= tolerance,
            None => kept || ours == paper,
        });
        Self { name, paper: paper.map(|(paper, _)| paper), bound, ours, kind, deviation, within }
    }
}

/// A figure with both sides' numbers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Figure {
    /// The name on the command line.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Which paper.
    pub paper: String,
    /// Where in it.
    pub place: String,
    /// The command that makes it.
    pub command: String,
    /// The unit of its numbers.
    pub unit: String,
    /// The deviation that calls for a reason.
    pub tolerance: f64,
    /// Whose numbers stand beside ours.
    pub against: String,
    /// All numbers.
    pub rows: Vec<Row>,
    /// Why ours differ, and what to know.
    pub why: Vec<String>,
    /// Drawings.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

impl File {
    /// Reads a figure's file.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(file: &'static str, text: &str) -> Result<Self, FigureError> {
        toml::from_str(text).map_err(|source| FigureError::File { file, source: Box::new(source) })
    }

    /// Puts what a run computed beside the paper's numbers.
    ///
    /// # Errors
    /// When the paper has a row that was not computed.
    pub fn with(self, made: Made) -> Result<Figure, FigureError> {
        let mut printed: BTreeMap<&str, &Printed> =
            self.rows.iter().map(|row| (row.name.as_str(), row)).collect();
        let mut rows = Vec::new();
        for (name, ours, kind) in made.values {
            let paper = printed.remove(name.as_str());
            let kind = match paper {
                Some(row) if row.kind == Kind::Fitted => Kind::Fitted,
                _ => kind,
            };
            let tolerance = paper.and_then(|row| row.tolerance).unwrap_or(self.tolerance);
            let paper = paper.map(|row| (row.paper, row.bound));
            rows.push(Row::new(name, paper, ours, kind, tolerance));
        }
        if let Some((row, _)) = printed.first_key_value() {
            return Err(FigureError::Row { file: self.name.clone(), row: (*row).to_owned() });
        }
        Ok(self.filled(rows, made.plots, made.notes))
    }

    /// The file's words with rows that have the other side's numbers already.
    #[must_use]
    pub fn filled(self, rows: Vec<Row>, plots: Vec<Plot>, notes: Vec<String>) -> Figure {
        let why = self.why.into_iter().chain(notes).collect();
        Figure {
            name: self.name,
            title: self.title,
            paper: self.paper,
            place: self.place,
            command: self.command,
            unit: self.unit,
            tolerance: self.tolerance,
            against: self.against,
            rows,
            why,
            plots,
        }
    }
}

impl Figure {
    /// Rows with a paper's number, and how many of them are within the tolerance.
    #[must_use]
    pub fn score(&self) -> (usize, usize) {
        let of = self.rows.iter().filter_map(|row| row.within);
        (of.clone().count(), of.filter(|within| *within).count())
    }

    /// The row of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// As a table with its source and reasons.
    #[must_use]
    pub fn table(&self) -> Table {
        let head = format!("{}, {}", self.paper, self.place);
        let table = self.numbers().titled(self.title.clone()).note(head);
        self.why.iter().fold(table, |table, why| table.note(why.clone()))
    }

    /// The rows as a table.
    #[must_use]
    pub fn numbers(&self) -> Table {
        self.some(|_| true)
    }

    /// The rows that `wanted` picks, as a table; without a number to compare with among them, it has no
    /// columns for one.
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
                cells.push(row.told());
            }
            cells.push(Cell::new(row.kind.name()).tone(Tone::Dim));
            table.push(cells);
        }
        table
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

    /// The deviation, in the colour of whether it is within the tolerance.
    fn told(&self) -> Cell {
        let text = match (self.deviation, self.paper) {
            // Without "-0.0".
            (Some(deviation), _) => format!("{:+.1} %", (1000.0 * deviation).round() / 10.0 + 0.0),
            (None, Some(_)) => "kept".to_owned(),
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

fn decimal(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1000.0 => flowyard_report::num::exact(v.round() as u64),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
