//! Load classification by the draft's code (appendix "Load Classification Code"), with its
//! arithmetic rewritten. The draft's worked example contradicts the code for one goal; the code is
//! followed.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Goal;

/// The classification of a load for a goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Meets the goal, whatever the results of further trials.
    LowerBound,
    /// Misses the goal, whatever the results of further trials.
    UpperBound,
    /// Needs more trials.
    Undecided,
}

/// Duration and loss ratio of the trials at one load.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stats {
    trials: Vec<(Nanos, f64)>,
}

impl Stats {
    /// Adds a trial.
    pub fn add(&mut self, duration: Nanos, loss_ratio: f64) {
        self.trials.push((duration, loss_ratio));
    }

    /// Whether any trial was a full-length trial.
    #[must_use]
    pub fn has_full(&self, goal: &Goal) -> bool {
        self.trials.iter().any(|(duration, _)| *duration >= goal.final_trial)
    }

    /// Whether no trial lost more than `ratio`.
    #[must_use]
    pub fn all_good(&self, ratio: f64) -> bool {
        self.trials.iter().all(|(_, loss)| *loss <= ratio)
    }

    /// Total duration in seconds of the trials with the given length and quality.
    fn sum(&self, goal: &Goal, is_full: bool, is_good: bool) -> f64 {
        let fits = |(duration, loss): &&(Nanos, f64)| {
            (*duration >= goal.final_trial) == is_full && (*loss <= goal.loss_ratio) == is_good
        };
        self.trials.iter().filter(fits).map(|(duration, _)| *duration as f64 / 1e9).sum()
    }
}

/// Time above the loss ratio, and the whole time that counts, in seconds.
fn sums(stats: &Stats, goal: &Goal) -> (f64, f64) {
    // Short trials count only against a load; good short trials compensate for bad ones.
    let made_up = stats.sum(goal, false, true) * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let short = (stats.sum(goal, false, false) - made_up).max(0.0);
    let excess = stats.sum(goal, true, false) + short;
    (excess, excess + stats.sum(goal, true, true))
}

/// Classifies a load with these trials for `goal`.
#[must_use]
pub fn classify(stats: &Stats, goal: &Goal) -> Class {
    let (excess, whole) = sums(stats, goal);
    let wanted = goal.duration_sum as f64 / 1e9;
    let (all, missing) = (whole.max(wanted), (wanted - whole).max(0.0));
    let best = excess / all;
    let worst = (excess + missing) / all;
    if worst <= goal.exceed_ratio {
        Class::LowerBound
    } else if best > goal.exceed_ratio {
        Class::UpperBound
    } else {
        Class::Undecided
    }
}

/// The conditional throughput: the forwarding rate at the goal's quantile of full-length trials, at
/// a load of `pps`.
#[must_use]
pub fn conditional_throughput(pps: f64, stats: &Stats, goal: &Goal) -> f64 {
    let mut full: Vec<_> =
        stats.trials.iter().filter(|(duration, _)| *duration >= goal.final_trial).collect();
    full.sort_by(|a, b| a.1.total_cmp(&b.1));
    let sum: f64 = full.iter().map(|(duration, _)| *duration as f64 / 1e9).sum();
    let mut left = sum.max(goal.duration_sum as f64 / 1e9) * (1.0 - goal.exceed_ratio);
    let mut loss = 1.0; // missing trials might have lost everything
    for (duration, ratio) in full {
        left -= *duration as f64 / 1e9;
        loss = *ratio;
        if left <= 1e-9 {
            return pps * (1.0 - loss);
        }
    }
    if left > 1e-9 { 0.0 } else { pps * (1.0 - loss) }
}
