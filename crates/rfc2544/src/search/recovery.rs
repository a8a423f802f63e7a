//! System recovery (RFC 2544 section 26.5) and reset (RFC 6201).
//!
//! Recovery: 110 % of the throughput (or the line rate) for 60 s, then half of that. The result is
//! the time from the change of load to the last lost frame. (The standard prints the difference
//! with the opposite sign.) Reset: the device is reset 15 s into a trial at the throughput
//! (half-way, if that is earlier). The result is the outage, computed from lost frames (lost /
//! rate) and from time stamps (last frame before to first frame after). The two should agree.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Retry, Search};
use crate::line::Load;
use crate::trial::{SECOND, Shape, Trial, TrialResult};

/// Repetitions of one trial.
#[derive(Clone, Debug)]
struct Repeated {
    trial: Trial,
    left: u32,
    retry: Retry,
    /// Whether the tester sent less than the load in a trial that counts.
    tester_limit: bool,
}

impl Repeated {
    fn new(trial: Trial, repeats: u32) -> Self {
        Self { trial, left: repeats, retry: Retry::default(), tester_limit: false }
    }

    fn next(&self) -> Option<Trial> {
        (self.left > 0).then_some(self.trial)
    }

    fn accepts(&mut self, result: &TrialResult) -> bool {
        let accepts = self.left > 0 && self.retry.accepts(result);
        self.left -= u32::from(accepts);
        self.tester_limit |= accepts && result.fault().is_some();
        accepts
    }

    const fn time(&self) -> Nanos {
        self.left as u64 * self.trial.duration
    }
}

/// The test of recovery from overload.
#[derive(Clone, Debug)]
pub struct Recovery {
    trials: Repeated,
    switch: Nanos,
    times: Vec<Nanos>,
}

impl Recovery {
    /// A test of a device with the given throughput, on a line with maximum load `max`: overload
    /// for `overload` (60 s in the standard), then half that load for the same time, `repeats`
    /// times.
    #[must_use]
    pub fn new(max: Load, throughput: Load, overload: Nanos, repeats: u32) -> Self {
        let more = throughput.part(110, 100);
        let load = if more.interval_ps < max.interval_ps { max } else { more };
        let step = Shape::Step { at: overload, then: load.part(1, 2) };
        let trial = Trial::new(load, 2 * overload).shape(step);
        Self { trials: Repeated::new(trial, repeats), switch: overload, times: Vec::new() }
    }

    /// Whether the tester could not send the overload: the device recovered from a smaller one.
    #[must_use]
    pub const fn tester_limit(&self) -> bool {
        self.trials.tester_limit
    }
}

impl Search for Recovery {
    type Answer = Vec<Nanos>;

    fn next_trial(&mut self) -> Option<Trial> {
        self.trials.next()
    }

    fn record(&mut self, result: &TrialResult) {
        if self.trials.accepts(result) {
            // Loss during the overload itself does not count.
            let last = result.losses.last.unwrap_or_default();
            self.times.push(last.saturating_sub(self.switch));
        }
    }

    /// For each trial, nanoseconds from the reduction of the load to the last lost frame.
    fn answer(&self) -> Vec<Nanos> {
        self.times.clone()
    }

    fn left(&self) -> Nanos {
        self.trials.time()
    }
}

/// The outage caused by a reset.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ResetTime {
    /// Frame-based: lost frames divided by the offered rate.
    pub by_frames_ns: Nanos,
    /// Time-based: from the last frame before to the first frame after the outage.
    pub by_time_ns: Nanos,
    /// Number of lost frames.
    pub lost: u64,
    /// Whether the tester sent less than the load, so that `by_frames_ns` is a lower bound.
    #[serde(default)]
    pub tester_limit: bool,
}

/// The reset test.
#[derive(Clone, Debug)]
pub struct Reset {
    trials: Repeated,
    senders: u64,
    times: Vec<ResetTime>,
}

impl Reset {
    /// A test at `load`: the reset happens 15 s into a trial of `duration` (at least 4 s), or
    /// half-way if that is earlier; `repeats` times; `senders` ports send.
    #[must_use]
    pub fn new(load: Load, duration: Nanos, repeats: u32, senders: u8) -> Self {
        let duration = duration.max(4 * SECOND);
        let shape = Shape::Reset { at: (duration / 2).min(15 * SECOND) };
        let trial = Trial::new(load, duration).shape(shape);
        let trials = Repeated::new(trial, repeats);
        Self { trials, senders: u64::from(senders.max(1)), times: Vec::new() }
    }
}

impl Search for Reset {
    type Answer = Vec<ResetTime>;

    fn next_trial(&mut self) -> Option<Trial> {
        self.trials.next()
    }

    fn record(&mut self, result: &TrialResult) {
        if self.trials.accepts(result) {
            let lost = result.counts.lost();
            let (before, after) = result.losses.silence.unwrap_or_default();
            self.times.push(ResetTime {
                by_frames_ns: self.trials.trial.load.start_ns(lost / self.senders),
                by_time_ns: after - before,
                lost,
                tester_limit: result.fault().is_some(),
            });
        }
    }

    fn answer(&self) -> Vec<ResetTime> {
        self.times.clone()
    }

    fn left(&self) -> Nanos {
        self.trials.time()
    }
}
