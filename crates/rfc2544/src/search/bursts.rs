//! Bursts (RFC 2544 section 21): frames come 16, 64, 256 or 1024 at a time at the line's rate; the least
//! interval from burst to burst without loss.
//!
//! That is the throughput's search over another shape of the same load: n frames each interval are
//! a load of n / interval.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use super::Search;
use super::throughput::{self, Config, Throughput};
use crate::line::Load;
use crate::trial::{Shape, Trial, TrialResult};

/// Frames of a burst that the standard wants.
pub const SIZES: [u64; 4] = [16, 64, 256, 1024];

/// What was found for one size of bursts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Frames of a burst.
    pub frames: u64,
    /// From the start of a burst to the start of the next, in nanoseconds; none if even the longest
    /// that was tried lost frames.
    pub interval_ns: Option<f64>,
    /// The search behind it.
    pub search: throughput::Answer,
}

/// The search.
#[derive(Clone, Debug)]
pub struct Bursts {
    frames: u64,
    line: Load,
    inner: Throughput,
}

impl Bursts {
    /// Bursts of `frames` frames at the line's rate, which is the greatest of `config`.
    #[must_use]
    pub const fn new(frames: u64, config: Config) -> Self {
        Self { frames, line: config.max, inner: Throughput::new(config) }
    }
}

impl Search for Bursts {
    type Answer = Answer;

    fn next_trial(&mut self) -> Option<Trial> {
        let shape = Shape::Bursts { frames: self.frames, line: self.line };
        self.inner.next_trial().map(|trial| trial.shape(shape))
    }

    fn told(&mut self, result: &TrialResult) {
        self.inner.told(result);
    }

    fn answer(&self) -> Answer {
        let search = self.inner.answer();
        let interval = |load: Load| load.interval_ps as f64 * self.frames as f64 / 1000.0;
        Answer { frames: self.frames, interval_ns: search.load.map(interval), search }
    }

    fn left(&self) -> Nanos {
        self.inner.left()
    }
}
