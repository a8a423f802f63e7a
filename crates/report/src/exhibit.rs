//! An exhibit: a table or figure of a paper, with the paper's numbers, ours, the deviation and the reason.
//!
//! ```text
//!   figures/NAME.toml ── Spec::parse ──> Spec ─┐
//!                                              ├─ Spec::with ──> Exhibit ──> text, HTML, CSV, JSON
//!   a run ──────────────────────────────> Made ┘
//! ```
//!
//! A [`Spec`] states, in one file for each exhibit, where the exhibit is in which paper, the numbers that
//! the paper prints, and which values of ours are accepted. A [`Made`] holds what a run computed. Rows of
//! the two are matched by name. No other place states a paper's number or a tolerance.
//!
//! Invariants: a row of the file that the run did not compute is an error; a row's `within` says whether
//! our value is in its `accepted` range, and is absent exactly when that range is.
//! Thread-safety: values only.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plot::Plot;

mod show;
#[cfg(test)]
mod tests;

/// How our number of a row was obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// By a model whose constants do not depend on this row.
    #[default]
    Prediction,
    /// By a model with a constant that was fitted to this row, so agreement is not evidence.
    Fitted,
    /// Measured on this machine in this run.
    Measured,
    /// By the cycle-level model of the adapter, which has no fitted constant.
    Simulated,
    /// An input of the run, so agreement says nothing.
    Given,
}

impl Kind {
    /// Whether agreement with the paper is evidence for the model.
    #[must_use]
    pub const fn is_evidence(self) -> bool {
        !matches!(self, Self::Fitted | Self::Given)
    }

    /// The word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prediction => "prediction",
            Self::Fitted => "fitted",
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Given => "given",
        }
    }
}

/// Whether the paper's number is a value or a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// A value.
    #[default]
    Equal,
    /// An upper limit: "never above".
    Below,
    /// A lower limit: "at least".
    Above,
}

/// The values of ours that are accepted, both ends included; an absent end is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Range {
    /// The lowest accepted value.
    pub from: Option<f64>,
    /// The highest accepted value.
    pub to: Option<f64>,
}

impl Range {
    fn contains(self, value: f64) -> bool {
        self.from.is_none_or(|from| value >= from) && self.to.is_none_or(|to| value <= to)
    }
}

/// What an exhibit's file says about one row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The row's name, the same as in the run.
    pub name: String,
    /// The number that the paper prints, if it prints one.
    pub paper: Option<f64>,
    /// Whether that is a value or a limit.
    #[serde(default)]
    pub bound: Bound,
    /// `fitted` marks a row that a constant was fitted to; otherwise the run says how it got its number.
    #[serde(default)]
    pub kind: Kind,
    /// The accepted deviation of this row, as a share; by default that of the exhibit.
    pub tolerance: Option<f64>,
    /// The share of the paper's number that ours should be; by default that of the exhibit.
    pub scale: Option<f64>,
    /// The accepted values, lowest and highest; replaces tolerance and scale.
    pub accept: Option<[f64; 2]>,
    /// The reason why our number is known to be outside the accepted range.
    pub not_met: Option<String>,
}

fn paper() -> String {
    "paper".to_owned()
}

const fn whole() -> f64 {
    1.0
}

/// An exhibit's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The name on the command line.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The paper.
    pub paper: String,
    /// The place in the paper.
    pub place: String,
    /// The command that computes it.
    pub command: String,
    /// The unit of its numbers.
    pub unit: String,
    /// The deviation from the paper's number, as a share, that is accepted without a reason.
    pub tolerance: f64,
    /// The share of the paper's numbers that ours should be, where the paper contradicts itself.
    #[serde(default = "whole")]
    pub scale: f64,
    /// What our numbers are compared with: "paper" or "measured".
    #[serde(default = "paper")]
    pub against: String,
    /// Reasons for deviations, and remarks.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The rows that have a number in the paper or a range of their own.
    #[serde(default, rename = "row")]
    pub rows: Vec<Expected>,
}

/// Why an exhibit cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExhibitError {
    /// The file of an exhibit cannot be read.
    #[error("figures/{name}.toml: {what}")]
    File {
        /// The exhibit.
        name: String,
        /// The parser's message.
        what: String,
    },
    /// The file has a row that the run did not compute.
    #[error("figures/{name}.toml: the run computed no row '{row}'")]
    Row {
        /// The exhibit.
        name: String,
        /// The row.
        row: String,
    },
}

/// One computed number.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The row's name.
    pub name: String,
    /// The number.
    pub ours: f64,
    /// How it was obtained.
    pub kind: Kind,
    /// What it is compared with, if that is not in the file: a measurement of the same run, or a number
    /// of the paper that depends on the configuration.
    pub beside: Option<f64>,
}

/// What a run computed for an exhibit.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// How [`Made::push`] and [`Made::push_beside`] obtain their numbers.
    pub kind: Kind,
    /// The numbers, in the order of the table.
    pub values: Vec<Value>,
    /// Drawings.
    pub plots: Vec<Plot>,
    /// Remarks about this run.
    pub notes: Vec<String>,
}

impl Made {
    /// An empty result whose numbers are of `kind`.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Adds a number.
    pub fn push(&mut self, name: impl Into<String>, ours: f64) {
        self.values.push(Value { name: name.into(), ours, kind: self.kind, beside: None });
    }

    /// Adds a number and what it is compared with.
    pub fn push_beside(
        &mut self,
        name: impl Into<String>,
        beside: impl Into<Option<f64>>,
        ours: f64,
    ) {
        let beside = beside.into();
        self.values.push(Value { name: name.into(), ours, kind: self.kind, beside });
    }

    /// Adds a remark.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// A row: the paper's number and ours.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// What the numbers are of.
    pub name: String,
    /// The number that ours is compared with, if there is one.
    pub paper: Option<f64>,
    /// Whether that number is a value or a limit.
    pub bound: Bound,
    /// Our number.
    pub ours: f64,
    /// How our number was obtained.
    pub kind: Kind,
    /// Our number divided by the paper's, minus one; absent if a limit is kept.
    pub deviation: Option<f64>,
    /// The values of ours that are accepted; absent if there is nothing to compare with.
    pub accepted: Option<Range>,
    /// Whether our number is in the accepted range; absent if there is none.
    pub within: Option<bool>,
    /// The reason why our number is known to be outside the accepted range.
    pub not_met: Option<String>,
}

/// An exhibit with the numbers of both sides.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Exhibit {
    /// The name on the command line.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The paper.
    pub paper: String,
    /// The place in the paper.
    pub place: String,
    /// The command that computes it.
    pub command: String,
    /// The unit of its numbers.
    pub unit: String,
    /// The deviation, as a share, that is accepted without a reason, where a row has no range of its own.
    pub tolerance: f64,
    /// What our numbers are compared with: "paper" or "measured".
    pub against: String,
    /// The rows.
    pub rows: Vec<Row>,
    /// Reasons for deviations, and remarks.
    pub notes: Vec<String>,
    /// Drawings.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

impl Spec {
    /// Reads the file of the exhibit `name`.
    ///
    /// # Errors
    /// When the text is not such a file.
    pub fn parse(name: &str, text: &str) -> Result<Self, ExhibitError> {
        toml::from_str(text).map_err(|error| ExhibitError::File {
            name: name.to_owned(),
            what: error.to_string().trim_end().to_owned(),
        })
    }

    /// Puts what a run computed beside the paper's numbers.
    ///
    /// # Errors
    /// When the file has a row that the run did not compute.
    pub fn with(self, made: Made) -> Result<Exhibit, ExhibitError> {
        let mut expected: BTreeMap<&str, &Expected> =
            self.rows.iter().map(|row| (row.name.as_str(), row)).collect();
        let mut rows = Vec::with_capacity(made.values.len());
        for value in made.values {
            let row = expected.remove(value.name.as_str());
            rows.push(self.row(value, row));
        }
        if let Some((row, _)) = expected.first_key_value() {
            return Err(ExhibitError::Row { name: self.name.clone(), row: (*row).to_owned() });
        }
        Ok(Exhibit {
            name: self.name,
            title: self.title,
            paper: self.paper,
            place: self.place,
            command: self.command,
            unit: self.unit,
            tolerance: self.tolerance,
            against: self.against,
            rows,
            notes: self.notes.into_iter().chain(made.notes).collect(),
            plots: made.plots,
        })
    }

    fn row(&self, value: Value, expected: Option<&Expected>) -> Row {
        let Value { name, ours, kind, beside } = value;
        let paper = expected.and_then(|row| row.paper).or(beside);
        let bound = expected.map_or(Bound::Equal, |row| row.bound);
        let is_kept = paper.is_some_and(|paper| match bound {
            Bound::Equal => false,
            Bound::Below => ours <= paper,
            Bound::Above => ours >= paper,
        });
        let deviation = paper.filter(|paper| *paper != 0.0 && !is_kept);
        let accepted = self.accepted(paper, bound, expected);
        Row {
            name,
            paper,
            bound,
            ours,
            kind: match expected {
                Some(row) if row.kind == Kind::Fitted => Kind::Fitted,
                _ => kind,
            },
            deviation: deviation.map(|paper| ours / paper - 1.0),
            accepted,
            within: accepted.map(|range| range.contains(ours)),
            not_met: expected.and_then(|row| row.not_met.clone()),
        }
    }

    fn accepted(
        &self,
        paper: Option<f64>,
        bound: Bound,
        expected: Option<&Expected>,
    ) -> Option<Range> {
        if let Some([from, to]) = expected.and_then(|row| row.accept) {
            return Some(Range { from: Some(from), to: Some(to) });
        }
        let tolerance = expected.and_then(|row| row.tolerance).unwrap_or(self.tolerance);
        let center = paper? * expected.and_then(|row| row.scale).unwrap_or(self.scale);
        let slack = center.abs() * tolerance;
        let (from, to) = (Some(center - slack), Some(center + slack));
        Some(match bound {
            Bound::Equal => Range { from, to },
            Bound::Below => Range { from: None, to },
            Bound::Above => Range { from, to: None },
        })
    }
}

impl Exhibit {
    /// How many rows whose agreement is evidence have an accepted range, and how many of those are within it.
    #[must_use]
    pub fn score(&self) -> (usize, usize) {
        let rows = self.rows.iter().filter(|row| row.kind.is_evidence());
        let of = rows.filter_map(|row| row.within);
        (of.clone().count(), of.filter(|within| *within).count())
    }

    /// The row of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The rows that contradict the file: outside their range without a reason, or within it although the
    /// file has a reason why not.
    pub fn unexpected(&self) -> impl Iterator<Item = &Row> {
        self.rows
            .iter()
            .filter(|row| row.within.is_some_and(|within| within == row.not_met.is_some()))
    }
}
