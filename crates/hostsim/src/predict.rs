//! Predictions for a machine that the user describes, by the models that compute the figures.
//!
//! ```text
//!  costs (a profile, built-in defaults, values of the user) ─┐
//!                                                            ├─> Case ──> model server or pipeline ──> Prediction
//!  settings (adapter, queues, threads, connections, ...) ────┘     └── one input changed ──> the rows again
//! ```
//!
//! Every cost and every setting is an [`Input`] that states how it was obtained.
//!
//! Invariants: equal cases give equal predictions; an input of a [`Prediction`] can be changed by [`Case::times`].
//! Thread-safety: a prediction is computed on one thread; cases share nothing.

use flowyard_report::exhibit::{Between, End, How, Input, Rows};
use schemars::JsonSchema;
use serde::Serialize;

use crate::profile::ProfileError;
use crate::server::SetupError;

mod costs;
mod server;
mod settings;
#[cfg(test)]
mod tests;
mod yard;

pub use costs::Costs;
pub use server::{Interrupts, Server, WAYS};
pub use settings::Settings;
pub use yard::Yard;

/// Latencies of a point in microseconds, from the time when a request is due until its answer is at the client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Latency {
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// The position: the load that is offered a second, or the number of cores.
    pub at: f64,
    /// The load that is offered a second; absent if the source offers as much as is taken.
    pub offered: Option<f64>,
    /// Requests answered, or frames forwarded, a second.
    pub rate: f64,
    /// The share of the frames that arrived and were lost because a receive ring was full, 0 to 1. Lost requests are
    /// sent again.
    pub lost_share: f64,
    /// The latency; absent if the model has none.
    pub latency: Option<Latency>,
    /// The busy share of the busiest core, 0 to 1.
    pub busiest_share: f64,
    /// The rate with the measured costs at the ends of their intervals; absent if no cost has one.
    pub rate_between: Option<Between>,
    /// The mean latency in microseconds in the same way; absent if the model has none.
    pub mean_us_between: Option<Between>,
}

/// Predicted results along one axis.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Curve {
    /// What the positions are.
    pub axis: String,
    /// The points, by ascending position.
    pub points: Vec<Point>,
}

/// A number that the model predicts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Predicted {
    /// What it is, with its unit.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its value with the measured costs at the ends of their intervals; absent if no cost has one.
    pub between: Option<Between>,
}

impl Predicted {
    /// Rows without ranges.
    fn of(rows: Rows) -> Vec<Self> {
        rows.into_iter().map(|(name, value)| Self { name, value, between: None }).collect()
    }
}

/// What a model predicts for a case.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// The model: server or yard.
    pub model: String,
    /// What is predicted, in words.
    pub title: String,
    /// Settings that are no numbers, such as the adapter.
    pub choices: Vec<Choice>,
    /// Costs and settings that the model read.
    pub inputs: Vec<Input>,
    /// The numbers; the first one is the result whose sensitivity is drawn.
    pub rows: Vec<Predicted>,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Remarks.
    pub notes: Vec<String>,
}

impl Prediction {
    /// The rows by name.
    #[must_use]
    pub fn values(&self) -> Rows {
        self.rows.iter().map(|row| (row.name.clone(), row.value)).collect()
    }
}

/// A setting that is no number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// How it was obtained.
    pub how: How,
    /// Its source.
    pub source: String,
}

/// Why nothing can be predicted.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// A cost is missing.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The model refused its setup.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A setting is out of range.
    #[error("{name}: {why}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// There is no such cost.
    #[error("there is no cost '{name}'; the model reads {known}")]
    Cost {
        /// The name.
        name: String,
        /// The names of all.
        known: String,
    },
    /// No load keeps the latency below the limit.
    #[error(
        "at {rate:.0} requests/s the mean latency is {latency_us:.1} us, which is already above the limit of {limit_us:.1} us"
    )]
    Limit {
        /// The lowest load that was tried.
        rate: f64,
        /// Its mean latency.
        latency_us: f64,
        /// The limit.
        limit_us: f64,
    },
    /// A frame or request was lost without being counted.
    #[error("the counters of a run do not balance; this is a defect of flowyard")]
    Unbalanced,
}

/// What a prediction is made of.
#[derive(Clone, Debug)]
pub struct Case {
    /// The costs.
    pub costs: Costs,
    /// The numbers of the setup.
    pub settings: Settings,
    /// The model.
    pub model: Model,
}

/// A model and its settings that are no numbers.
#[derive(Clone, Debug)]
pub enum Model {
    /// A server of requests, such as memcached, behind an adapter.
    Server(Server),
    /// The engine with ports in memory.
    Yard(Yard),
}

impl Case {
    /// All inputs: settings, then costs.
    #[must_use]
    pub fn inputs(&self) -> Vec<Input> {
        self.settings.inputs().chain(self.costs.inputs()).cloned().collect()
    }

    /// This case with one input multiplied by `factor`. Settings that count something stay whole numbers.
    #[must_use]
    pub fn times(&self, input: &str, factor: f64) -> Self {
        let mut changed = self.clone();
        changed.costs.times(input, factor);
        changed.settings.times(input, factor);
        changed
    }

    /// The prediction.
    ///
    /// # Errors
    /// When a cost is missing, or the model refuses its setup.
    pub fn predict(&self) -> Result<Prediction, PredictError> {
        let mut made = match &self.model {
            Model::Server(server) => server.predict(self)?,
            Model::Yard(yard) => yard.predict(self)?,
        };
        if !self.costs.have_intervals() {
            return Ok(made);
        }
        let [low, high] = End::BOTH.map(|end| {
            let case = self.at(end);
            Ok::<_, PredictError>((case.rows_beside(&made)?, case.curves_beside(&made)?))
        });
        let [(low, low_curves), (high, high_curves)] = [low?, high?];
        for (row, (low, high)) in made.rows.iter_mut().zip(low.iter().zip(&high)) {
            row.between = Some(Between::of([row.value, low.1, high.1]));
        }
        let ends = low_curves.iter().zip(&high_curves);
        for (curve, (low, high)) in made.curves.iter_mut().zip(ends) {
            let ends = low.points.iter().zip(&high.points);
            for (point, (low, high)) in curve.points.iter_mut().zip(ends) {
                point.rate_between = Some(Between::of([point.rate, low.rate, high.rate]));
                let means = [&*point, low, high].map(|point| Some(point.latency?.mean_us));
                if let [Some(own), Some(low), Some(high)] = means {
                    point.mean_us_between = Some(Between::of([own, low, high]));
                }
            }
        }
        made.notes.push(
            "The ranges beside the results are those with all measured costs at the lower ends of their intervals, and with all at the upper ends.".to_owned(),
        );
        Ok(made)
    }

    /// This case with all measured costs at one end of their intervals.
    fn at(&self, end: End) -> Self {
        let mut changed = self.clone();
        changed.costs.set_to(end);
        changed
    }

    /// The curves of `prediction` for this case, at the positions of `prediction`.
    fn curves_beside(&self, prediction: &Prediction) -> Result<Vec<Curve>, PredictError> {
        let first = prediction.rows.first().map_or(0.0, |row| row.value);
        match &self.model {
            Model::Server(server) => server.curves(self, first),
            Model::Yard(yard) => yard.curves(self, first),
        }
    }

    /// The rows of `prediction` for this case, which differs from the predicted one in its inputs. Latencies are
    /// those at the loads of `prediction`.
    ///
    /// # Errors
    /// As [`Case::predict`].
    pub fn rows_beside(&self, prediction: &Prediction) -> Result<Rows, PredictError> {
        match &self.model {
            Model::Server(server) => server.rows_beside(self, prediction),
            Model::Yard(yard) => yard.rows(self),
        }
    }
}
