//! System recovery (RFC 2544 section 26.5) and reset (RFC 6201).
//!
//! Recovery: 110 % of the throughput (or the line's rate) for 60 s, then half of that; the time from
//! there to the last lost frame. (The standard prints the difference the other way round.)
//! Reset: the device is reset 15 s into a trial at the throughput (halfway, if that is sooner); the time
//! without it, by frames (lost / rate) and by time (last frame before to first frame after). The two
//! should agree.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use super::{Patience, Search};
use crate::line::Load;
use crate::trial::{SECOND, Shape, Trial, TrialResult};

/// Repetitions of one trial.
#[derive(Clone, Debug)]
struct Repeated {
    trial: Trial,
    left: u32,
    patience: Patience,
}

impl Repeated {
    fn next(&self) -> Option<Trial> {
        (self.left > 0).then_some(self.trial)
    }

    fn accepts(&mut self, result: &TrialResult) -> bool {
        let accepts = self.left > 0 && self.patience.accepts(result);
        self.left -= u32::from(accepts);
        accepts
    }

    const fn time(&self) -> Nanos {
        self.left as u64 * self.trial.duration
    }
}

/// Recovery from overload.
#[derive(Clone, Debug)]
pub struct Recovery {
    trials: Repeated,
    switch: Nanos,
    times: Vec<Nanos>,
}

impl Recovery {
    /// Of a device with `throughput` on a line of `max`: overload for `overload` (60 s), then half
    /// for as long again, `repeats` times.
    #[must_use]
    pub fn new(max: Load, throughput: Load, overload: Nanos, repeats: u32) -> Self {
        let more = throughput.part(110, 100);
        let load = if more.interval_ps < max.interval_ps { max } else { more };
        let step = Shape::Step { at: overload, then: load.part(1, 2) };
        let trial = Trial::new(load, 2 * overload).shape(step);
        let trials = Repeated { trial, left: repeats, patience: Patience::default() };
        Self { trials, switch: overload, times: Vec::new() }
    }
}

impl Search for Recovery {
    type Answer = Vec<Nanos>;

    fn next_trial(&mut self) -> Option<Trial> {
        self.trials.next()
    }

    fn told(&mut self, result: &TrialResult) {
        if self.trials.accepts(result) {
            // Losses of the overload itself are not what is asked for.
            let last = result.losses.last.unwrap_or_default();
            self.times.push(last.saturating_sub(self.switch));
        }
    }

    /// Nanoseconds from the drop of the load to the last lost frame, of each trial.
    fn answer(&self) -> Vec<Nanos> {
        self.times.clone()
    }

    fn left(&self) -> Nanos {
        self.trials.time()
    }
}

/// What a reset took.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResetTime {
    /// Lost frames at the offered rate.
    pub by_frames_ns: Nanos,
    /// From the last frame before to the first after.
    pub by_time_ns: Nanos,
    /// Frames lost.
    pub lost: u64,
}

/// Reset.
#[derive(Clone, Debug)]
pub struct Reset {
    trials: Repeated,
    senders: u64,
    times: Vec<ResetTime>,
}

impl Reset {
    /// At `load`, the reset 15 s into a trial of `duration`, or halfway, if that is sooner; `repeats`
    /// times; `senders` ports send. Of less than 4 s the trial is not.
    #[must_use]
    pub fn new(load: Load, duration: Nanos, repeats: u32, senders: u8) -> Self {
        let duration = duration.max(4 * SECOND);
        let shape = Shape::Reset { at: (duration / 2).min(15 * SECOND) };
        let trial = Trial::new(load, duration).shape(shape);
        let trials = Repeated { trial, left: repeats, patience: Patience::default() };
        Self { trials, senders: u64::from(senders.max(1)), times: Vec::new() }
    }
}

impl Search for Reset {
    type Answer = Vec<ResetTime>;

    fn next_trial(&mut self) -> Option<Trial> {
        self.trials.next()
    }

    fn told(&mut self, result: &TrialResult) {
        if self.trials.accepts(result) {
            let lost = result.counts.lost();
            let (before, after) = result.losses.silence.unwrap_or_default();
            self.times.push(ResetTime {
                by_frames_ns: self.trials.trial.load.start_ns(lost / self.senders),
                by_time_ns: after - before,
                lost,
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
