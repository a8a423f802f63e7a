//! MLRsearch (draft-ietf-bmwg-mlrsearch-15, RFC 9971 when published): several goals at once, each
//! with a loss ratio, a sum of trial durations, and a share of them that may exceed the ratio.
//!
//! ```text
//!  trials at a load ── classify, per goal ──> lower bound | upper bound | undecided
//!  loads ── bisect between relevant bounds ──> until as narrow as the goal says
//! ```
//!
//! All goals share all trials. A goal is searched with short trials first; each stage starts from
//! the bounds that the one before found. RFC 2544's throughput is the goal {60 s, 60 s, 0, 0}.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use super::{Patience, Search};
use crate::line::Load;
use crate::trial::{SECOND, Trial, TrialResult};

mod classify;

pub use classify::{Class, Stats, classify, conditional_throughput};

/// What is looked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Goal {
    /// Its name in reports.
    pub name: String,
    /// Trials as long as this count in full.
    pub final_trial: Nanos,
    /// How much trial time a load needs to be decided.
    pub duration_sum: Nanos,
    /// Loss above this share of frames is too much; below 1.
    pub loss_ratio: f64,
    /// This share of the trial time may have too much loss; below 1.
    pub exceed_ratio: f64,
    /// Trials of the first stage.
    pub initial_trial: Nanos,
    /// The answer's bounds are this close, in parts of a million of the upper.
    pub width_ppm: u64,
}

impl Goal {
    /// Of these attributes, with a first stage of 1 s and a width of 0.5 %.
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

    /// RFC 2544, unconditionally.
    #[must_use]
    pub fn rfc2544() -> Self {
        Self::new("RFC2544", 60 * SECOND, 60 * SECOND, 0.0, 0.0)
    }

    /// The two goals of CSIT.
    #[must_use]
    pub fn csit() -> Vec<Self> {
        let goal = |name, loss| Self::new(name, SECOND, 21 * SECOND, loss, 0.5);
        vec![goal("NDR", 0.0), goal("PDR", 0.005)]
    }
}

/// What was found for a goal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The goal, all of it: a result means nothing without.
    pub goal: Goal,
    /// The relevant lower bound.
    pub lower: Option<Load>,
    /// The relevant upper bound.
    pub upper: Option<Load>,
    /// Conditional throughput at the lower bound, in frames a second for each port.
    pub throughput_pps: Option<f64>,
    /// Why the result is irregular; a regular one has both bounds, close enough.
    pub irregular: Option<String>,
}

/// The search.
#[derive(Clone, Debug)]
pub struct MlrSearch {
    goals: Vec<Goal>,
    min: Load,
    max: Load,
    /// Loads that had trials, ascending by interval: the fastest first.
    loads: Vec<(Load, Stats)>,
    asked: Option<Trial>,
    trials: u32,
    limit: u32,
    patience: Patience,
    done: bool,
}

impl MlrSearch {
    /// Between two loads, for all `goals`; after `limit` trials it gives up and says so.
    #[must_use]
    pub fn new(goals: Vec<Goal>, min: Load, max: Load, limit: u32) -> Self {
        Self {
            goals,
            min,
            max,
            loads: Vec::new(),
            asked: None,
            trials: 0,
            limit,
            patience: Patience::default(),
            done: false,
        }
    }

    /// The goal's stages: trial durations from the first to the final one, each four times longer;
    /// earlier stages need only one trial at a load.
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

    /// The relevant bounds: the slowest upper bound, and the fastest lower bound below it.
    fn bounds(&self, goal: &Goal) -> (Option<Load>, Option<Load>) {
        let class = |stats: &Stats| classify(stats, goal);
        let uppers = self.loads.iter().filter(|(_, stats)| class(stats) == Class::UpperBound);
        let upper = uppers.map(|(load, _)| *load).max();
        let below = |load: Load| upper.is_none_or(|upper| load.interval_ps > upper.interval_ps);
        let lowers = self.loads.iter().filter(|(_, stats)| class(stats) == Class::LowerBound);
        (lowers.map(|(load, _)| *load).filter(|load| below(*load)).min(), upper)
    }

    /// The load that a stage wants a trial at; none when it is done.
    fn want(&self, goal: &Goal) -> Option<Load> {
        // A load that was begun is brought to an end first: the fastest that may still matter.
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
                // What the stage before found is the best guess.
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

    /// The fastest load below `upper` whose trials so far are all good enough.
    fn hint(&self, goal: &Goal, upper: Load) -> Option<Load> {
        let good = |stats: &Stats| stats.all_good(goal.loss_ratio);
        let below = self.loads.iter().filter(|(load, _)| load.interval_ps > upper.interval_ps);
        below.filter(|(_, stats)| good(stats)).map(|(load, _)| *load).min()
    }

    fn plan(&self) -> Option<Trial> {
        // Loose goals first: their bounds are a start for the strict ones.
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

    /// What was found for one goal.
    fn found(&self, goal: &Goal) -> Found {
        let (lower, upper) = self.bounds(goal);
        let at = |load: Load| self.loads.iter().find(|(l, _)| *l == load).map(|(_, stats)| stats);
        let throughput_pps = lower
            .and_then(|load| at(load).map(|stats| conditional_throughput(load.pps(), stats, goal)));
        let irregular = match (lower, upper) {
            (None, _) if self.done => {
                Some("no lower bound: even the least load loses too much".to_owned())
            }
            (Some(lower), None) if lower == self.max => {
                Some("no upper bound: the greatest load is a lower bound".to_owned())
            }
            _ if !self.done || self.trials >= self.limit => {
                Some(format!("unfinished after {} trials: bounds are too far apart", self.trials))
            }
            _ => None,
        };
        Found { goal: goal.clone(), lower, upper, throughput_pps, irregular }
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

    fn told(&mut self, result: &TrialResult) {
        self.trials += 1;
        if !self.patience.accepts(result) {
            return;
        }
        let Some(trial) = self.asked.take() else { return };
        // What the tester did not send is lost, too: the draft recommends it.
        let counts = &result.counts;
        let lost = counts.intended.saturating_sub(counts.good);
        let ratio = lost as f64 / counts.intended.max(1) as f64;
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
