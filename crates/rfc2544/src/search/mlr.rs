//! MLRsearch (draft-ietf-bmwg-mlrsearch-15, RFC 9971 when published): several search goals at once.
//! Each goal has a loss ratio, a duration sum, and an exceed ratio: the share of the trial time
//! that may exceed the loss ratio.
//!
//! ```text
//!  trials at a load ── classify, per goal ──> lower bound | upper bound | undecided
//!  loads ── bisect between relevant bounds ──> until the goal width is reached
//! ```
//!
//! All goals share all trials. A goal is searched with short trials first; each stage starts from
//! the bounds of the previous stage. RFC 2544's throughput is the goal {60 s, 60 s, 0, 0}.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Retry, Search};
use crate::line::Load;
use crate::trial::{SECOND, Trial, TrialResult};

mod classify;

pub use classify::{Class, Stats, classify, conditional_throughput};

/// A search goal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Goal {
    /// The name in reports.
    pub name: String,
    /// Goal final trial duration: trials of at least this duration are full-length trials.
    pub final_trial: Nanos,
    /// Goal duration sum: the trial time needed to classify a load.
    pub duration_sum: Nanos,
    /// Goal loss ratio: the maximum ratio of lost frames; below 1.
    pub loss_ratio: f64,
    /// Goal exceed ratio: the share of the trial time that may exceed the loss ratio; below 1.
    pub exceed_ratio: f64,
    /// Goal initial trial duration: trials of the first stage.
    pub initial_trial: Nanos,
    /// Goal width: maximum distance of the final bounds, in parts per million of the upper bound.
    pub width_ppm: u64,
}

impl Goal {
    /// A goal with these attributes, a first stage of 1 s and a width of 0.5 %.
    #[must_use]
    pub fn new(
        name: &str,
        final_trial: Nanos,
        duration_sum: Nanos,
        loss: f64,
        exceed: f64,
    ) -> Self {
        Self {
            name: name.into(),
            final_trial,
            duration_sum,
            loss_ratio: loss,
            exceed_ratio: exceed,
            initial_trial: SECOND.min(final_trial),
            width_ppm: 5000,
        }
    }

    /// The goal equivalent to RFC 2544's throughput (unconditionally compliant).
    #[must_use]
    pub fn rfc2544() -> Self {
        Self::new("RFC2544", 60 * SECOND, 60 * SECOND, 0.0, 0.0)
    }

    /// The two goals of CSIT: NDR and PDR.
    #[must_use]
    pub fn csit() -> Vec<Self> {
        let goal = |name, loss| Self::new(name, SECOND, 21 * SECOND, loss, 0.5);
        vec![goal("NDR", 0.0), goal("PDR", 0.005)]
    }
}

/// The result for a goal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// The complete goal, needed to interpret the result.
    pub goal: Goal,
    /// The relevant lower bound.
    pub lower: Option<Load>,
    /// The relevant upper bound.
    pub upper: Option<Load>,
    /// Conditional throughput at the lower bound, in frames per second per port.
    pub throughput_pps: Option<f64>,
    /// Why the result is irregular; a regular result has both bounds within the goal width.
    pub irregular: Option<String>,
    /// Whether the tester could not generate the load `upper`: the device forwards at least `lower`.
    #[serde(default)]
    pub tester_limit: bool,
}

/// The search.
#[derive(Clone, Debug)]
pub struct MlrSearch {
    goals: Vec<Goal>,
    min: Load,
    max: Load,
    /// Loads with trials, in ascending order of interval: the highest load first.
    loads: Vec<(Load, Stats)>,
    /// The loads of `loads` that the tester did not reach in some trial.
    unreached: Vec<Load>,
    asked: Option<Trial>,
    trials: u32,
    limit: u32,
    retry: Retry,
    done: bool,
}

impl MlrSearch {
    /// A search between two loads for all `goals`. After `limit` trials it stops, and unfinished
    /// goals are reported as irregular.
    #[must_use]
    pub fn new(goals: Vec<Goal>, min: Load, max: Load, limit: u32) -> Self {
        Self {
            goals,
            min,
            max,
            loads: Vec::new(),
            unreached: Vec::new(),
            asked: None,
            trials: 0,
            limit,
            retry: Retry::default(),
            done: false,
        }
    }

    /// The stages of a goal: trial durations from the initial to the final one, each four times the
    /// previous; earlier stages need only one trial at a load.
    fn stages(goal: &Goal) -> Vec<Goal> {
        let mut stages = Vec::new();
        let mut trial = goal.initial_trial.max(1).min(goal.final_trial);
        while trial < goal.final_trial {
            stages.push(Goal {
                final_trial: trial,
                duration_sum: trial,
                exceed_ratio: goal.exceed_ratio,
                width_ppm: goal.width_ppm * 4,
                ..goal.clone()
            });
            trial = trial.saturating_mul(4);
        }
        if goal.duration_sum > goal.final_trial {
            stages.push(Goal {
                duration_sum: goal.final_trial,
                width_ppm: goal.width_ppm * 2,
                ..goal.clone()
            });
        }
        stages.push(goal.clone());
        stages
    }

    /// The relevant bounds: the lowest upper bound, and the highest lower bound below it.
    fn bounds(&self, goal: &Goal) -> (Option<Load>, Option<Load>) {
        let class = |stats: &Stats| classify(stats, goal);
        let uppers = self.loads.iter().filter(|(_, stats)| class(stats) == Class::UpperBound);
        let upper = uppers.map(|(load, _)| *load).max();
        let below = |load: Load| upper.is_none_or(|upper| load.interval_ps > upper.interval_ps);
        let lowers = self.loads.iter().filter(|(_, stats)| class(stats) == Class::LowerBound);
        (lowers.map(|(load, _)| *load).filter(|load| below(*load)).min(), upper)
    }

    /// The load at which a stage needs a trial; `None` when the stage is done.
    fn want(&self, goal: &Goal) -> Option<Load> {
        // Finish an undecided load first: the highest one that may still change the bounds.
        let (lower, upper) = self.bounds(goal);
        let between = |load: Load| {
            upper.is_none_or(|upper| load.interval_ps > upper.interval_ps)
                && lower.is_none_or(|lower| load.interval_ps < lower.interval_ps)
        };
        let begun = self.loads.iter().find(|(load, stats)| {
            between(*load) && classify(stats, goal) == Class::Undecided && stats.has_full(goal)
        });
        if let Some((load, _)) = begun {
            return Some(*load);
        }
        match (lower, upper) {
            (_, None) => (lower != Some(self.max)).then_some(self.max),
            (None, Some(upper)) if upper.interval_ps >= self.min.interval_ps => None,
            (None, Some(upper)) => {
                // The result of the previous stage is the best estimate.
                let guess = self.hint(goal, upper);
                let doubled = upper.interval_ps.saturating_mul(2).min(self.min.interval_ps);
                Some(guess.unwrap_or(Load { interval_ps: doubled }))
            }
            (Some(lower), Some(upper)) => {
                let width = u128::from(lower.interval_ps - upper.interval_ps) * 1_000_000;
                if width <= u128::from(lower.interval_ps) * u128::from(goal.width_ppm)
                    || lower.interval_ps - upper.interval_ps < 2
                {
                    return None;
                }
                let middle = lower.interval_ps.midpoint(upper.interval_ps);
                Some(Load { interval_ps: middle })
            }
        }
    }

    /// The highest load below `upper` whose trials so far all meet the loss ratio.
    fn hint(&self, goal: &Goal, upper: Load) -> Option<Load> {
        let good = |stats: &Stats| stats.all_good(goal.loss_ratio);
        let below = self.loads.iter().filter(|(load, _)| load.interval_ps > upper.interval_ps);
        below.filter(|(_, stats)| good(stats)).map(|(load, _)| *load).min()
    }

    fn plan(&self) -> Option<Trial> {
        // Goals with a higher loss ratio first: their bounds help the stricter goals.
        let mut order: Vec<_> = self.goals.iter().collect();
        order.sort_by(|a, b| b.loss_ratio.total_cmp(&a.loss_ratio));
        for goal in order {
            for stage in Self::stages(goal) {
                if let Some(load) = self.want(&stage) {
                    return Some(Trial::new(load, stage.final_trial));
                }
            }
        }
        None
    }

    /// The result for one goal.
    fn found(&self, goal: &Goal) -> Found {
        let (lower, upper) = self.bounds(goal);
        let at = |load: Load| self.loads.iter().find(|(l, _)| *l == load).map(|(_, stats)| stats);
        let throughput_pps = lower
            .and_then(|load| at(load).map(|stats| conditional_throughput(load.pps(), stats, goal)));
        let tester_limit = upper.is_some_and(|upper| self.unreached.contains(&upper));
        let irregular = match (lower, upper) {
            (Some(_), Some(_)) if self.done && tester_limit => {
                Some("at least the lower bound: the tester could not send the upper one".to_owned())
            }
            (None, _) if self.done && tester_limit => {
                Some("no lower bound: the tester could not send the lowest load tried".to_owned())
            }
            (None, _) if self.done => {
                Some("no lower bound: even the lowest load loses too many frames".to_owned())
            }
            (Some(lower), None) if lower == self.max => Some(
                "no upper bound: the highest load is a lower bound; a faster line may show one"
                    .to_owned(),
            ),
            _ if !self.done || self.trials >= self.limit => {
                Some(format!("unfinished after {} trials: bounds are too far apart", self.trials))
            }
            _ => None,
        };
        Found { goal: goal.clone(), lower, upper, throughput_pps, irregular, tester_limit }
    }
}

impl Search for MlrSearch {
    type Answer = Vec<Found>;

    fn next_trial(&mut self) -> Option<Trial> {
        if self.asked.is_none() && !self.done {
            self.asked = if self.trials < self.limit { self.plan() } else { None };
            self.done = self.asked.is_none();
        }
        self.asked
    }

    fn record(&mut self, result: &TrialResult) {
        self.trials += 1;
        if !self.retry.accepts(result) {
            return;
        }
        let Some(trial) = self.asked.take() else { return };
        // Frames that the tester did not send count as lost, as the draft recommends.
        let counts = &result.counts;
        let lost = counts.intended.saturating_sub(counts.good);
        let ratio = lost as f64 / counts.intended.max(1) as f64;
        if result.fault().is_some() && !self.unreached.contains(&trial.load) {
            self.unreached.push(trial.load);
        }
        let at = self.loads.binary_search_by_key(&trial.load, |(load, _)| *load);
        let at = at.unwrap_or_else(|at| {
            self.loads.insert(at, (trial.load, Stats::default()));
            at
        });
        self.loads[at].1.add(trial.duration, ratio);
    }

    fn answer(&self) -> Vec<Found> {
        self.goals.iter().map(|goal| self.found(goal)).collect()
    }

    fn left(&self) -> Nanos {
        if self.done {
            return 0;
        }
        let left = |goal: &Goal| {
            let ppm = match self.bounds(goal) {
                (Some(lower), Some(upper)) => {
                    (lower.interval_ps - upper.interval_ps) as f64 * 1e6 / lower.interval_ps as f64
                }
                _ => 1e6,
            };
            let steps = (ppm / goal.width_ppm.max(1) as f64).log2().max(0.0);
            (steps * goal.duration_sum as f64) as Nanos
        };
        self.goals.iter().map(left).sum()
    }
}
