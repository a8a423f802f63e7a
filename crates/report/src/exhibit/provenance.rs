//! Where a number comes from, and whether its agreement with a paper is evidence.
//!
//! ```text
//!  a measurement ─> measured, with a Spread ────────────────┐
//!  a model ──────> predicted, with its Inputs ──────────────┤  none of its inputs is fitted ──> counts
//!                  (arithmetic, assumed, fitted) ───────────┤
//!  a component ──> computed                                 ├─> does not count
//!  the paper ────> copied ──────────────────────────────────┘
//! ```
//!
//! Invariant: [`Kind::counts`] is the only place that decides which kinds count. Thread-safety: values only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Interval;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Measured on this machine in this run.
    Measured,
    /// Predicted by a model whose result could have been another one; the row names the inputs.
    #[default]
    Predicted,
    /// Computed by the component that does this in flowyard, from inputs that are not in question.
    Computed,
    /// A formula of other numbers alone: if these are right, so is the result.
    Arithmetic,
    /// Decided by an assumption whose direction or size was put in.
    Assumed,
    /// From a model with a constant that was chosen so that this row agrees.
    Fitted,
    /// Copied from the paper.
    Copied,
}

impl Kind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Measured,
        Self::Predicted,
        Self::Computed,
        Self::Arithmetic,
        Self::Assumed,
        Self::Fitted,
        Self::Copied,
    ];

    /// Whether agreement is evidence, if no input of the number was fitted.
    #[must_use]
    pub const fn counts(self) -> bool {
        matches!(self, Self::Measured | Self::Predicted)
    }

    /// The word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Predicted => "predicted",
            Self::Computed => "computed",
            Self::Arithmetic => "arithmetic",
            Self::Assumed => "assumed",
            Self::Fitted => "fitted",
            Self::Copied => "copied",
        }
    }
}

/// How an input of a model was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// On this machine, by `flowyard calibrate` or in the run itself.
    Measured,
    /// Given by the user, on the command line.
    Given,
    /// From a datasheet, a driver or a paper.
    Published,
    /// A plausible value; its source gives the reason.
    Assumed,
    /// Chosen so that the rows named in its source agree.
    Fitted,
}

impl How {
    /// The word for files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Given => "given",
            Self::Published => "published",
            Self::Assumed => "assumed",
            Self::Fitted => "fitted",
        }
    }
}

/// An input of a model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Input {
    /// The profile and the constant, as in `kth.map_ns`.
    pub name: String,
    /// The value, in the unit with which the name ends.
    pub value: f64,
    /// How it was obtained.
    pub how: How,
    /// Its source; for a fitted input, the rows that it was fitted to.
    pub source: String,
    /// The interval of the value, which is a median, if it was measured repeatedly.
    pub interval: Option<Interval>,
}

/// The rounds of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// The number of rounds.
    pub rounds: usize,
    /// The smallest value of a round.
    pub least: f64,
    /// The median of the rounds.
    pub median: f64,
    /// The largest value of a round.
    pub most: f64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let (middle, odd) = (sorted.len() / 2, sorted.len() % 2 == 1);
        let median =
            if odd { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { rounds: sorted.len(), least, median, most })
    }
}

/// The machine of a measurement and what else it did meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Conditions {
    /// The processor's name.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The load averages of 1, 5 and 15 minutes at the start, and more, as in `/proc/loadavg`.
    pub load: String,
    /// The share of all processor time that the hypervisor took during the measurement, 0 to 1.
    pub stolen_share: f64,
    /// Rounds measured; 0 if the figure does not measure in rounds.
    pub rounds: usize,
    /// Rounds in which other programs and guests used no more than 5 % of the processors.
    pub quiet_rounds: usize,
    /// The largest share of the processors that other programs and guests used in a round, 0 to 1.
    pub others_share: f64,
}

impl Conditions {
    /// One sentence for tables and pages.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { processor, processors, kernel, load, rounds, quiet_rounds, .. } = self;
        let mut text = format!(
            "Measured on {processor}, {processors} processors, Linux {kernel}; load average {load} at the start; the hypervisor took {:.1} % of the time",
            100.0 * self.stolen_share
        );
        if *rounds > 0 {
            text += &format!(
                "; {rounds} rounds, {quiet_rounds} of them quiet, and other programs used at most {:.0} % in one",
                100.0 * self.others_share
            );
        }
        text + "."
    }
}

/// An error of the paper, or of another source of the figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Erratum {
    /// What the source says.
    pub says: String,
    /// What holds instead, with the evidence.
    pub evidence: String,
}
