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
//! the two are matched by name. No other place states a paper's number or a tolerance. Every number has a
//! [`Kind`]; a row counts when its agreement is evidence.
//!
//! Invariants: a row of the file that the run did not compute is an error; a row's `within` says whether
//! our value is in its `accepted` range, and is absent exactly when that range is; a row with a fitted
//! input never counts.
//! Thread-safety: values only.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plot::Plot;

mod accept;
mod interval;
mod provenance;
mod sensitivity;
mod show;
#[cfg(test)]
mod tests;

pub use interval::{Between, End, Interval};
pub use provenance::{Conditions, Erratum, How, Input, Kind, Spread};
pub use sensitivity::{Change, Effect, FACTORS, Rows, Sensitivity};

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
    /// `fitted` marks a row that a constant was fitted to; without it, the run says how it got its number.
    pub kind: Option<Kind>,
    /// The accepted deviation of this row, as a share, if it is less than that of the exhibit.
    pub tolerance: Option<f64>,
    /// The share of the paper's number that ours should be; by default that of the exhibit.
    pub scale: Option<f64>,
    /// The accepted values, lowest and highest; replaces tolerance and scale, and accepts no more than they do.
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
    /// Errors of the paper, or of another source, that this figure depends on.
    #[serde(default, rename = "erratum")]
    pub errata: Vec<Erratum>,
    /// The row whose sensitivity to each input is drawn; by default the first with a number in the paper.
    pub result: Option<String>,
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

/// What a number is compared with, if that is not in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// The number.
    pub value: f64,
    /// Where it comes from.
    pub kind: Kind,
    /// Its rounds, if it was measured.
    pub spread: Option<Spread>,
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
    /// The names of the inputs that it was computed from.
    pub inputs: Vec<String>,
    /// The rounds of our number, if it was measured.
    pub spread: Option<Spread>,
    /// What it is compared with, if that is not in the file: a measurement of the same run, or a number
    /// that follows from the paper's.
    pub beside: Option<Beside>,
}

/// What a run computed for an exhibit.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// How the next numbers are obtained.
    pub kind: Kind,
    /// The inputs of the next numbers, by [`Made::using`].
    used: Vec<String>,
    /// All inputs, in the order of their first use.
    pub inputs: Vec<Input>,
    /// The numbers, in the order of the table.
    pub values: Vec<Value>,
    /// Drawings.
    pub plots: Vec<Plot>,
    /// Remarks about this run.
    pub notes: Vec<String>,
    /// The machine, if something was measured.
    pub conditions: Option<Conditions>,
}

impl Made {
    /// An empty result whose numbers are of `kind`.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// The next numbers are of `kind` and are computed from `inputs`.
    pub fn using(&mut self, kind: Kind, inputs: impl IntoIterator<Item = Input>) {
        (self.kind, self.used) = (kind, Vec::new());
        for input in inputs {
            self.used.push(input.name.clone());
            if self.inputs.iter().all(|known| known.name != input.name) {
                self.inputs.push(input);
            }
        }
    }

    fn add(&mut self, name: String, ours: f64, beside: Option<Beside>) {
        let (kind, inputs) = (self.kind, self.used.clone());
        self.values.push(Value { name, ours, kind, inputs, spread: None, beside });
    }

    /// Adds a number.
    pub fn push(&mut self, name: impl Into<String>, ours: f64) {
        self.add(name.into(), ours, None);
    }

    /// Adds a number of kind `kind`, whatever the next ones are.
    pub fn push_as(&mut self, kind: Kind, name: impl Into<String>, ours: f64) {
        self.add(name.into(), ours, None);
        if let Some(value) = self.values.last_mut() {
            value.kind = kind;
        }
    }

    /// Adds a number and what it is compared with, which is computed from numbers of the paper.
    pub fn push_beside(
        &mut self,
        name: impl Into<String>,
        beside: impl Into<Option<f64>>,
        ours: f64,
    ) {
        let of = |value| Beside { value, kind: Kind::Arithmetic, spread: None };
        self.add(name.into(), ours, beside.into().map(of));
    }

    /// Adds a number and the measurement that it is compared with.
    pub fn push_against(
        &mut self,
        name: impl Into<String>,
        measured: Option<(f64, Option<Spread>)>,
        ours: f64,
    ) {
        let of = |(value, spread)| Beside { value, kind: Kind::Measured, spread };
        self.add(name.into(), ours, measured.map(of));
    }

    /// Adds a measured number with its rounds.
    pub fn push_measured(&mut self, name: impl Into<String>, ours: f64, spread: Option<Spread>) {
        let (name, kind) = (name.into(), Kind::Measured);
        self.values.push(Value { name, ours, kind, inputs: Vec::new(), spread, beside: None });
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
    /// Where that number comes from; absent if there is none.
    pub reference: Option<Kind>,
    /// Whether that number is a value or a limit.
    pub bound: Bound,
    /// Our number.
    pub ours: f64,
    /// Our number with the measured inputs at the ends of their intervals; absent if no input has one.
    pub between: Option<Between>,
    /// How our number was obtained.
    pub kind: Kind,
    /// The inputs that our number was computed from, by their names in the exhibit's list.
    pub inputs: Vec<String>,
    /// Those of the inputs that were fitted.
    pub fitted_inputs: Vec<String>,
    /// The rounds of the measured number of this row, ours or the one that ours is compared with.
    pub spread: Option<Spread>,
    /// Our number divided by the paper's, minus one; absent if a limit is kept.
    pub deviation: Option<f64>,
    /// The values of ours that are accepted; absent if there is nothing to compare with.
    pub accepted: Option<Range>,
    /// Whether our number is in the accepted range; absent if there is none.
    pub within: Option<bool>,
    /// Whether the row counts: it can be compared, it is measured or predicted, and none of its inputs was
    /// fitted.
    pub counts: bool,
    /// The reason why our number is known to be outside the accepted range.
    pub not_met: Option<String>,
}

/// How many rows count, and how many of them agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Score {
    /// Rows that count.
    pub counted: usize,
    /// Those of them that are in their accepted range.
    pub agree: usize,
}

impl Score {
    /// The score of `rows`.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        rows.into_iter().filter(|row| row.counts).fold(Self::default(), |score, row| Self {
            counted: score.counted + 1,
            agree: score.agree + usize::from(row.within == Some(true)),
        })
    }
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
    /// How many of the rows count and agree.
    pub score: Score,
    /// The inputs of the models, in the order of their first use.
    pub inputs: Vec<Input>,
    /// The machine and what else it did, if something was measured.
    pub conditions: Option<Conditions>,
    /// Reasons for deviations, and remarks.
    pub notes: Vec<String>,
    /// Errors of the paper, or of another source, with the evidence.
    pub errata: Vec<Erratum>,
    /// The row whose sensitivity to each input is drawn.
    #[serde(skip)]
    pub result: Option<String>,
    /// Drawings.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

impl Spec {
    /// Reads the file of the exhibit `name`.
    ///
    /// # Errors
    /// When the text is not such a file, or a row accepts more than the exhibit's tolerance.
    pub fn parse(name: &str, text: &str) -> Result<Self, ExhibitError> {
        let wrong = |what: String| ExhibitError::File { name: name.to_owned(), what };
        let spec: Self =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        match spec.rows.iter().find(|row| spec.is_laxer(row)) {
            Some(row) => Err(wrong(format!(
                "row '{}' accepts more than the tolerance of its table; a row may accept less, and not more",
                row.name
            ))),
            None => Ok(spec),
        }
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
            rows.push(self.row(value, row, &made.inputs));
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
            score: Score::of(&rows),
            rows,
            inputs: made.inputs,
            conditions: made.conditions,
            errata: self.errata,
            result: self.result,
            notes: self.notes.into_iter().chain(made.notes).collect(),
            plots: made.plots,
        })
    }

    fn row(&self, value: Value, expected: Option<&Expected>, inputs: &[Input]) -> Row {
        let Value { name, ours, kind, inputs: used, spread, beside } = value;
        let printed = expected.and_then(|row| row.paper);
        let paper = printed.or(beside.map(|beside| beside.value));
        let reference = if printed.is_some() { Some(Kind::Copied) } else { beside.map(|b| b.kind) };
        let bound = expected.map_or(Bound::Equal, |row| row.bound);
        let is_kept = paper.is_some_and(|paper| match bound {
            Bound::Equal => false,
            Bound::Below => ours <= paper,
            Bound::Above => ours >= paper,
        });
        let deviation = paper.filter(|paper| *paper != 0.0 && !is_kept);
        let accepted = self.accepted(paper, bound, expected);
        let kind = expected.and_then(|row| row.kind).unwrap_or(kind);
        let is_fitted = |name: &&String| {
            inputs.iter().any(|input| input.name == **name && input.how == How::Fitted)
        };
        let fitted_inputs: Vec<String> = used.iter().filter(is_fitted).cloned().collect();
        Row {
            name,
            paper,
            reference,
            bound,
            ours,
            between: None,
            kind,
            counts: accepted.is_some() && kind.counts() && fitted_inputs.is_empty(),
            inputs: used,
            fitted_inputs,
            spread: spread.or(beside.and_then(|beside| beside.spread)),
            deviation: deviation.map(|paper| ours / paper - 1.0),
            accepted,
            within: accepted.map(|range| range.contains(ours)),
            not_met: expected.and_then(|row| row.not_met.clone()),
        }
    }
}

impl Exhibit {
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
