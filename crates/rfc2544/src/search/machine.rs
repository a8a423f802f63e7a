//! What all searches have in common: the trait, and the repetition of invalid trials.

use flowyard_frame::Nanos;

use crate::trial::{Trial, TrialResult};

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
    pub(crate) const fn new() -> Self {
        Self { tries: 0 }
    }

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
