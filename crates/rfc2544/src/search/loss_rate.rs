//! Frame loss rate (RFC 2544 section 26.3): loss at 100 %, 90 %, 80 % ... of the line rate, until
//! two consecutive trials have no loss. A trial whose load the tester did not reach does not count
//! as one without loss.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Retry, Search};
use crate::line::Load;
use crate::trial::{Counts, Trial, TrialResult};

/// One step of the load.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Load in percent of the line rate.
    pub percent: u64,
    /// The load.
    pub load: Load,
    /// The trial's frame counters.
    pub counts: Counts,
}

/// The search.
#[derive(Clone, Debug)]
pub struct LossRate {
    max: Load,
    step: u64,
    duration: Nanos,
    steps: Vec<Step>,
    retry: Retry,
}

impl LossRate {
    /// A search on a line with maximum load `max`, in steps of `percent` (at most 10, as the
    /// standard requires), with trials of `duration`.
    #[must_use]
    pub fn new(max: Load, percent: u64, duration: Nanos) -> Self {
        let step = percent.clamp(1, 10);
        Self { max, step, duration, steps: Vec::new(), retry: Retry::default() }
    }

    fn percent(&self) -> Option<u64> {
        let clean = |step: &Step| step.counts.lost() == 0 && step.counts.fault().is_none();
        let two = matches!(self.steps.as_slice(), [.., a, b] if clean(a) && clean(b));
        let next = 100_u64.checked_sub(self.step * self.steps.len() as u64)?;
        (!two && next > 0).then_some(next)
    }
}

impl Search for LossRate {
    type Answer = Vec<Step>;

    fn next_trial(&mut self) -> Option<Trial> {
        let percent = self.percent()?;
        Some(Trial::new(self.max.part(percent, 100), self.duration))
    }

    fn record(&mut self, result: &TrialResult) {
        if !self.retry.accepts(result) {
            return;
        }
        if let Some(percent) = self.percent() {
            let load = self.max.part(percent, 100);
            self.steps.push(Step { percent, load, counts: result.counts });
        }
    }

    fn answer(&self) -> Vec<Step> {
        self.steps.clone()
    }

    fn left(&self) -> Nanos {
        self.percent().map_or(0, |percent| percent / self.step * self.duration)
    }
}
