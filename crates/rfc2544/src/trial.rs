//! A trial: one run at one load, and its result in whole frames.
//!
//! ```text
//!  learning frames ─ 2 s ─ |<------ duration: frames leave ------>| residue 2 s | rest 5 s
//!                                                                 counters are read here ^
//! ```
//!
//! (RFC 2544 section 23.) A search returns a [`Trial`] and accepts a [`TrialResult`]. Both are
//! plain data: a search can be repeated from recorded results.
//!
//! Invariants (`TrialResult::check`): received is the sum of good, duplicates, corrupt, foreign,
//! misrouted and stale frames; lost = sent - good; frames that the tester itself lost are counted
//! separately and make the trial invalid, they are never counted as loss of the device.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::latency::Latency;
use crate::line::Load;

/// One second in nanoseconds.
pub const SECOND: Nanos = 1_000_000_000;

/// One run at one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// The load that each port sends.
    pub load: Load,
    /// How long frames are sent, in nanoseconds.
    pub duration: Nanos,
    /// The distribution of the frames in time.
    pub shape: Shape,
    /// The frames whose latency is recorded individually.
    pub tagged: Tagged,
    /// The trial ends as soon as one frame is known to be lost: the search only needs to know
    /// whether any frame is lost.
    #[serde(default)]
    pub stop_at_loss: bool,
}

/// The distribution of frames in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// At equal intervals.
    #[default]
    Even,
    /// In bursts of `frames` frames at the rate of `line` (RFC 2544 section 21).
    Bursts {
        /// Frames per burst.
        frames: u64,
        /// The maximum load of the line.
        line: Load,
    },
    /// With a change of load during the trial (RFC 2544 section 26.5).
    Step {
        /// Time of the change, relative to the start.
        at: Nanos,
        /// The load after the change.
        then: Load,
    },
    /// With a reset of the device during the trial (RFC 6201).
    Reset {
        /// Time of the reset, relative to the start.
        at: Nanos,
    },
    /// At the times of a capture; the trial's load is the mean rate.
    Replay {
        /// The speed in hundredths of the capture's own.
        speed: u64,
    },
}

/// Frames whose latency is recorded individually: `count` frames, spread evenly from `after` to
/// the end of the trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Tagged {
    /// Start of the tagged part, relative to the start of the trial.
    pub after: Nanos,
    /// Number of tagged frames.
    pub count: u32,
}

impl Trial {
    /// `load` at equal intervals for `duration`.
    #[must_use]
    pub const fn new(load: Load, duration: Nanos) -> Self {
        let tagged = Tagged { after: 0, count: 0 };
        Self { load, duration, shape: Shape::Even, tagged, stop_at_loss: false }
    }

    /// A single burst of `frames` frames at the rate of `line`.
    #[must_use]
    pub const fn burst(frames: u64, line: Load) -> Self {
        let ns = (frames as u128 * line.interval_ps as u128).div_ceil(1000);
        // Rounding up to a nanosecond must not admit another frame.
        let mut trial = Self::new(line, ns as Nanos);
        while trial.load.frames_in(trial.duration) > frames && trial.duration > 0 {
            trial.duration -= 1;
        }
        trial
    }

    /// The same trial with another distribution in time.
    #[must_use]
    pub const fn shape(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// The same trial, ended as soon as one frame is lost.
    #[must_use]
    pub const fn stop_at_loss(self) -> Self {
        Self { stop_at_loss: true, ..self }
    }

    /// The same trial with `count` latencies recorded individually, evenly from `after` on.
    #[must_use]
    pub const fn tagged(self, after: Nanos, count: u32) -> Self {
        Self { tagged: Tagged { after, count }, ..self }
    }

    /// The number of frames that each port sends.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        match self.shape {
            Shape::Step { at, then } if at < self.duration => {
                self.load.frames_in(at) + then.frames_in(self.duration - at)
            }
            _ => self.load.frames_in(self.duration),
        }
    }

    /// The start time of frame `index`, relative to the start of the trial.
    #[must_use]
    pub const fn start_ns(&self, index: u64) -> Nanos {
        match self.shape {
            Shape::Even | Shape::Reset { .. } | Shape::Replay { .. } => self.load.start_ns(index),
            Shape::Bursts { frames, line } => {
                let frames = if frames == 0 { 1 } else { frames };
                let first = index - index % frames;
                (first as u128 * self.load.interval_ps as u128 / 1000
                    + (index % frames) as u128 * line.interval_ps as u128 / 1000)
                    as Nanos
            }
            Shape::Step { at, then } => {
                let before = self.load.frames_in(at);
                if index < before {
                    self.load.start_ns(index)
                } else {
                    at + then.start_ns(index - before)
                }
            }
        }
    }

    /// The speed of a replay in hundredths of the capture's own. Used only by plans with their own
    /// departure times.
    #[must_use]
    pub const fn speed(&self) -> u64 {
        match self.shape {
            Shape::Replay { speed } if speed > 0 => speed,
            Shape::Replay { .. } => 1,
            _ => 100,
        }
    }

    /// The position of frame `index` within the periodic schedule; frames with equal phase are
    /// followed by frames at equal intervals.
    #[must_use]
    pub const fn phase(&self, index: u64) -> [u64; 2] {
        let (within, first) = match self.shape {
            Shape::Bursts { frames, .. } if frames > 0 => (index % frames, index - index % frames),
            _ => (0, index),
        };
        [within, (first as u128 * self.load.interval_ps as u128 % 1000) as u64]
    }

    /// The indexes of the frames whose latency is recorded individually, in ascending order.
    pub fn tagged_frames(&self) -> impl Iterator<Item = u64> + '_ {
        let Tagged { after, count } = self.tagged;
        let (total, first) = (self.frames(), self.load.frames_in(after));
        let room = total.saturating_sub(first);
        let count = u64::from(count).min(room);
        (0..count)
            .map(move |n| first + (u128::from(n) * u128::from(room) / u128::from(count)) as u64)
    }
}

/// Frame counters of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Frames that the trial specifies (intended load).
    pub intended: u64,
    /// Frames that left the tester (offered load).
    pub sent: u64,
    /// Received frames of all kinds.
    pub received: u64,
    /// Undamaged test frames received, each counted once.
    pub good: u64,
    /// Further copies of good frames.
    pub duplicates: u64,
    /// Test frames with wrong bits.
    pub corrupt: u64,
    /// Frames that the tester did not send.
    pub foreign: u64,
    /// Undamaged test frames received at the wrong port.
    pub misrouted: u64,
    /// Frames so much older than the newest one that it is no longer known whether they were
    /// received before.
    pub stale: u64,
    /// Good frames received after a later frame of their flow (RFC 4737, Type-P-Reordered).
    pub reordered: u64,
    /// The largest reordering extent, in frames of the flow (RFC 4737 section 4.2.1).
    pub max_extent: u64,
    /// Reordered frames whose extent is larger than the recorded history; for these `max_extent` is
    /// a lower bound.
    pub extent_beyond: u64,
    /// Runs of lost frames (RFC 2544 section 10).
    pub gaps: u64,
    /// Frames that the tester could not send.
    pub tester_tx_drops: u64,
    /// Frames that arrived at the tester and that the tester itself dropped.
    pub tester_rx_drops: u64,
}

impl Counts {
    /// Frames lost or damaged: sent, but not received undamaged.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.good)
    }

    /// The ratio of lost to sent frames, 0 to 1 (RFC 2544 section 26.3 without the factor 100).
    #[must_use]
    pub const fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost() as f64 / self.sent as f64 }
    }

    /// A fault of the tester itself, if any. A trial with a fault is not valid for the device.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Self { intended, sent, tester_tx_drops, tester_rx_drops, .. } = *self;
        if tester_rx_drops > 0 {
            return Some(format!("the tester dropped {tester_rx_drops} received frames itself"));
        }
        // A load counts as reached if less than one frame in 10,000 is missing (T1).
        let short = intended.saturating_sub(sent);
        (short > intended / 10_000).then(|| {
            format!(
                "the tester sent {sent} of {intended} frames ({tester_tx_drops} refused by its port)"
            )
        })
    }

    /// The sum of the counters of two ports; `max_extent` is the larger of the two.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            intended: self.intended + other.intended,
            sent: self.sent + other.sent,
            received: self.received + other.received,
            good: self.good + other.good,
            duplicates: self.duplicates + other.duplicates,
            corrupt: self.corrupt + other.corrupt,
            foreign: self.foreign + other.foreign,
            misrouted: self.misrouted + other.misrouted,
            stale: self.stale + other.stale,
            reordered: self.reordered + other.reordered,
            max_extent: self.max_extent.max(other.max_extent),
            extent_beyond: self.extent_beyond + other.extent_beyond,
            gaps: self.gaps + other.gaps,
            tester_tx_drops: self.tester_tx_drops + other.tester_tx_drops,
            tester_rx_drops: self.tester_rx_drops + other.tester_rx_drops,
        }
    }
}

/// Times of frame loss, relative to the start of the trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Losses {
    /// Send time of the first lost frame.
    pub first: Option<Nanos>,
    /// Send time of the last lost frame.
    pub last: Option<Nanos>,
    /// The longest time without a received frame at a port while frames were sent: the times of the
    /// frame before and the frame after.
    pub silence: Option<(Nanos, Nanos)>,
}

/// The result of a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrialResult {
    /// The trial that was made.
    pub trial: Trial,
    /// Counters of all ports together.
    pub counts: Counts,
    /// Counters of each sending port, if there is more than one.
    pub ports: Vec<Counts>,
    /// Latency of all good frames.
    pub latency: Latency,
    /// Latencies of the tagged frames in nanoseconds; `None` for a lost frame.
    pub tagged: Vec<Option<Nanos>>,
    /// Times of frame loss.
    pub losses: Losses,
    /// Deviation of the tester from its own schedule.
    pub timing: Timing,
    /// The number of counted frames that were not simulated individually, because a device under
    /// virtual time returned to an earlier state and its output repeats.
    pub repeated_frames: u64,
    /// The time, relative to the start, at which the trial ended early because a frame was lost
    /// (`stop_at_loss`).
    #[serde(default)]
    pub stopped_at: Option<Nanos>,
    /// Frames that the device dropped during the trial, by its own reasons. These counters appear
    /// in the report and are never used to compute results.
    #[serde(default)]
    pub drops: Vec<(String, u64)>,
}

/// How well the tester kept its schedule. Under virtual time only the frames of a replay can be late, because
/// they wait for the line.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Frames that left more than `late_ns` after their scheduled time.
    pub late_frames: u64,
    /// The threshold for `late_frames`.
    pub late_ns: Nanos,
    /// Median delay of departure.
    pub p50_ns: Nanos,
    /// 99th percentile of the delay.
    pub p99_ns: Nanos,
    /// Maximum delay.
    pub max_ns: Nanos,
    /// Maximum number of frames passed to the port per call.
    pub burst: u32,
    /// Under virtual time: when the last frame had left, relative to the start.
    #[serde(default)]
    pub last_ns: Nanos,
}

impl TrialResult {
    /// A fault of the tester itself, if any. A trial with a fault is not valid for the device.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.counts.fault()
    }

    /// How long frames were sent: the duration of the trial, or longer if frames waited for the line.
    #[must_use]
    pub fn sent_for(&self) -> Nanos {
        self.trial.duration.max(self.timing.last_ns)
    }

    /// The mean rate at which each of `ports` ports sent, in frames per second.
    #[must_use]
    pub fn sent_pps(&self, ports: usize) -> f64 {
        let seconds = self.sent_for() as f64 / SECOND as f64;
        self.counts.sent as f64 / ports.max(1) as f64 / seconds
    }

    /// Checks that every frame is accounted for.
    ///
    /// # Errors
    /// The first equation that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let c = &self.counts;
        let kinds = c.good + c.duplicates + c.corrupt + c.foreign + c.misrouted + c.stale;
        if kinds != c.received {
            return Err(format!("{} frames received, but {kinds} accounted for", c.received));
        }
        if c.good > c.sent {
            return Err(format!("{} frames sent, but {} good ones received", c.sent, c.good));
        }
        if self.latency.count != c.good {
            return Err(format!("{} good frames, but {} latencies", c.good, self.latency.count));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Line;

    #[test]
    fn schedules_hold_exactly_the_frames_they_say() {
        let line = Line::GBIT_10.max_load(64);
        for frames in [1, 2, 3, 16, 999, 26_000] {
            assert_eq!(Trial::burst(frames, line).frames(), frames);
        }
        let half = line.part(1, 2);
        let bursts = Trial::new(half, SECOND).shape(Shape::Bursts { frames: 16, line });
        assert_eq!(bursts.frames(), 7_440_477);
        let starts = [0, 1, 15, 16].map(|n| bursts.start_ns(n));
        assert_eq!(starts, [0, 67, 1008, 2150]);
        let step = Trial::new(line, 2 * SECOND).shape(Shape::Step { at: SECOND, then: half });
        let first = line.frames_in(SECOND);
        assert_eq!(step.start_ns(first), SECOND);
        assert_eq!(step.frames(), first + half.frames_in(SECOND));
        let last = step.start_ns(step.frames() - 1);
        assert!(last < 2 * SECOND && step.start_ns(step.frames()) >= 2 * SECOND);
    }

    #[test]
    fn tagged_frames_lie_in_the_second_half() {
        let trial = Trial::new(Load::from_pps(1000.0), 120 * SECOND).tagged(60 * SECOND, 500);
        let frames: Vec<_> = trial.tagged_frames().collect();
        assert_eq!((frames.len(), frames[0], frames[499]), (500, 60_000, 119_880));
        assert_eq!(Trial::new(trial.load, SECOND).tagged(0, 9).tagged_frames().count(), 9);
        assert_eq!(Trial::new(trial.load, SECOND).tagged(SECOND, 9).tagged_frames().count(), 0);
    }

    #[test]
    fn one_frame_in_a_billion_is_one_frame() {
        let counts = Counts { sent: 1_000_000_000, good: 999_999_999, ..Counts::default() };
        assert_eq!(counts.lost(), 1);
        assert!(counts.loss_ratio() > 0.0);
    }
}
