//! Searches: pure state machines that ask for trials and are told results.
//!
//! ```text
//!  while let Some(trial) = search.next_trial() { search.told(&measure(&trial)?); }
//!  search.answer()
//! ```
//!
//! Nothing here knows time, devices or files. A search that is told the same results asks for the
//! same trials: that makes a run resumable, and repeatable.
//!
//! What the tester itself did wrong is not the device's loss: a result with a fault is measured
//! again, up to [`RETRIES`] times, and then the search ends with an answer that says so.

use flowyard_frame::Nanos;

use crate::trial::{Trial, TrialResult};

pub mod back_to_back;
pub mod bursts;
pub mod latency;
pub mod learning;
pub mod loss_rate;
pub mod mlr;
pub mod recovery;
pub mod throughput;

pub use back_to_back::BackToBack;
pub use bursts::Bursts;
pub use latency::{Delay, Rfc2544Latency, Rfc8219Latency};
pub use learning::{Caching, LearningRate};
pub use loss_rate::LossRate;
pub use mlr::{Goal, MlrSearch};
pub use recovery::{Recovery, Reset};
pub use throughput::Throughput;

/// How often a trial is made again when the tester was at fault.
pub const RETRIES: u32 = 3;

/// A search.
pub trait Search {
    /// What it finds.
    type Answer;

    /// The trial it wants next; none when it has its answer.
    fn next_trial(&mut self) -> Option<Trial>;

    /// What came of that trial.
    fn told(&mut self, result: &TrialResult);

    /// What it found so far.
    fn answer(&self) -> Self::Answer;

    /// Time that its remaining trials take, without what is around each; an estimate.
    fn left(&self) -> Nanos;
}

/// Trials that have to be made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Patience {
    tries: u32,
}

impl Patience {
    /// Whether `result` is to be used: false, to be measured again.
    pub(crate) fn accepts(&mut self, result: &TrialResult) -> bool {
        // A load that the tester missed by a tenth is beyond it: it would miss it again.
        let counts = &result.counts;
        let is_beyond = counts.sent < counts.intended - counts.intended / 10;
        if result.fault().is_none() || is_beyond || self.tries == RETRIES {
            self.tries = 0;
            return true;
        }
        self.tries += 1;
        false
    }
}

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
pub(crate) mod tests;
