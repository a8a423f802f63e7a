//! Bursts (RFC 2544 section 21): frames are sent in bursts of 16, 64, 256 or 1024 at line rate. The
//! search finds the shortest interval between bursts without loss.
//!
//! It is the throughput search with another distribution of the same load: n frames per interval
//! are a load of n / interval.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::Search;
use super::throughput::{self, Config, Throughput};
use crate::line::Load;
use crate::trial::{Shape, Trial, TrialResult};

/// Burst sizes of the standard, in frames.
pub const SIZES: [u64; 4] = [16, 64, 256, 1024];

/// The result for one burst size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// Frames per burst.
    pub frames: u64,
    /// Nanoseconds from the start of a burst to the start of the next; `None` if even the longest
    /// interval tried lost frames.
    pub interval_ns: Option<f64>,
    /// The answer of the underlying throughput search.
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
    /// A search with bursts of `frames` frames at line rate, which is `config.max`.
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

    fn record(&mut self, result: &TrialResult) {
        self.inner.record(result);
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
