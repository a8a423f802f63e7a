//! Searches: pure state machines that return the next trial and accept its result.
//!
//! ```text
//!  while let Some(trial) = search.next_trial() { search.record(&measure(&trial)?); }
//!  search.answer()
//! ```
//!
//! A search uses no clock, device or file. Given the same results it returns the same trials, so a
//! run is resumable and repeatable.
//!
//! A fault of the tester is not loss of the device: a trial with a fault is repeated up to
//! [`RETRIES`] times; then the search uses the result and marks its answer.

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

/// How often a trial is repeated after a fault of the tester.
pub const RETRIES: u32 = 3;

/// A search.
pub trait Search {
    /// The result of the search.
    type Answer;

    /// The next trial; `None` when the search has finished.
    fn next_trial(&mut self) -> Option<Trial>;

    /// Records the result of the trial that [`Search::next_trial`] returned.
    fn record(&mut self, result: &TrialResult);

    /// The answer so far.
    fn answer(&self) -> Self::Answer;

    /// Estimated duration of the remaining trials, without the waits around each trial.
    fn left(&self) -> Nanos;
}

/// Decides whether a trial with a fault of the tester is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Retry {
    tries: u32,
}

impl Retry {
    /// Whether to use `result`; false means that the trial is to be repeated.
    pub(crate) fn accepts(&mut self, result: &TrialResult) -> bool {
        // The tester cannot generate a load that it missed by a tenth; do not repeat the trial.
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
