//! Devices given by a formula, for tests of searches.

use flowyard_frame::Nanos;
use flowyard_testkit::Rng;

use crate::latency::Latency;
use crate::line::Load;
use crate::search::Search;
use crate::trial::{Counts, Losses, SECOND, Shape, Timing, Trial, TrialResult};

/// The result of `trial` with `lost` lost frames.
pub(crate) fn result(trial: &Trial, lost: u64) -> TrialResult {
    let sent = trial.frames();
    let good = sent - lost.min(sent);
    TrialResult {
        trial: *trial,
        counts: Counts { intended: sent, sent, good, received: good, ..Counts::default() },
        ports: Vec::new(),
        latency: Latency { count: good, ..Latency::default() },
        tagged: trial.tagged_frames().map(|_| Some(1000)).collect(),
        losses: Losses::default(),
        timing: Timing::default(),
        repeated_frames: 0,
        stopped_at: None,
        drops: Vec::new(),
    }
}

/// A device that forwards `capacity_pps` and buffers `buffer` frames.
pub(crate) fn buffered(trial: &Trial, capacity_pps: f64, buffer: f64) -> TrialResult {
    let seconds = trial.duration as f64 / SECOND as f64;
    let excess = (trial.load.pps() - capacity_pps).max(0.0) * seconds - buffer;
    result(trial, excess.max(0.0).ceil() as u64)
}

/// A device whose loss ratio is a function of the load, with seeded noise.
pub(crate) fn curve(
    trial: &Trial,
    loss: impl Fn(f64) -> f64,
    noise: f64,
    rng: &mut Rng,
) -> TrialResult {
    let ratio = loss(trial.load.pps()) * (1.0 + noise * (rng.unit() - 0.5));
    result(trial, (ratio.clamp(0.0, 1.0) * trial.frames() as f64).round() as u64)
}

/// Runs a search to its end; returns the number of trials and their total duration.
pub(crate) fn run<S: Search>(
    search: &mut S,
    mut device: impl FnMut(&Trial) -> TrialResult,
) -> (u32, Nanos) {
    let (mut trials, mut time) = (0, 0);
    while let Some(trial) = search.next_trial() {
        assert!(trials < 10_000, "the search does not end: {trial:?}");
        assert_eq!(search.next_trial(), Some(trial), "next_trial must be idempotent");
        assert!(matches!(trial.shape, Shape::Even) || trial.duration > 0);
        search.record(&device(&trial));
        (trials, time) = (trials + 1, time + trial.duration);
    }
    assert_eq!(search.left(), 0);
    (trials, time)
}

/// A load in frames per second.
pub(crate) fn pps(pps: f64) -> Load {
    Load::from_pps(pps)
}
