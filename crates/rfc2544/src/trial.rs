//! A trial: one run at one load, and everything that came of it, in whole frames.
//!
//! ```text
//!  learning frames ─ 2 s ─ |<------ duration: frames leave ------>| residue 2 s | rest 5 s
//!                                                                 counters are read here ^
//! ```
//!
//! (RFC 2544 section 23.) What a search asks for is a [`Trial`]; what it is told is a
//! [`TrialResult`]. Both are plain data: a search can be run again from what was written down.
//!
//! Invariants (`TrialResult::check`): received = good + duplicates + corrupt + foreign + misrouted +
//! stale; lost = sent - good; what the tester itself lost is counted apart and makes the trial
//! invalid, it is never the device's loss.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use crate::latency::Latency;
use crate::line::Load;

/// A second.
pub const SECOND: Nanos = 1_000_000_000;

/// One run at one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// How many frames a second each port sends.
    pub load: Load,
    /// For how long.
    pub duration: Nanos,
    /// How the frames lie in time.
    pub shape: Shape,
    /// Which frames' latencies are kept one by one.
    pub tagged: Tagged,
    /// In real time, it is over as soon as one frame is lost for good: whoever asks wants to know
    /// only whether any is.
    #[serde(default)]
    pub until_lost: bool,
}

/// How frames lie in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// At equal distances.
    #[default]
    Even,
    /// In bursts of so many frames at the interval of `line`, RFC 2544 section 21.
    Bursts {
        /// Frames in each.
        frames: u64,
        /// What the line carries at most.
        line: Load,
    },
    /// With another load from some time on, RFC 2544 section 26.5.
    Step {
        /// From then on, after the start.
        at: Nanos,
        /// The other load.
        then: Load,
    },
    /// With a reset of the device at some time, RFC 6201.
    Reset {
        /// When, after the start.
        at: Nanos,
    },
}

/// Frames whose latency is kept one by one: `count` of them, evenly from `after` to the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tagged {
    /// None before this time after the start.
    pub after: Nanos,
    /// How many.
    pub count: u32,
}

impl Trial {
    /// `load` for `duration`, evenly.
    #[must_use]
    pub const fn new(load: Load, duration: Nanos) -> Self {
        let tagged = Tagged { after: 0, count: 0 };
        Self { load, duration, shape: Shape::Even, tagged, until_lost: false }
    }

    /// `frames` frames at the intervals of `line`, and nothing more.
    #[must_use]
    pub const fn burst(frames: u64, line: Load) -> Self {
        let ns = (frames as u128 * line.interval_ps as u128).div_ceil(1000);
        // The last picoseconds are not enough for one more frame, as one interval is one or more.
        let mut trial = Self::new(line, ns as Nanos);
        while trial.load.frames_in(trial.duration) > frames && trial.duration > 0 {
            trial.duration -= 1;
        }
        trial
    }

    /// In another shape.
    #[must_use]
    pub const fn shape(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// Over as soon as one frame is lost.
    #[must_use]
    pub const fn until_lost(self) -> Self {
        Self { until_lost: true, ..self }
    }

    /// With `count` latencies kept one by one, evenly from `after` on.
    #[must_use]
    pub const fn tagged(self, after: Nanos, count: u32) -> Self {
        Self { tagged: Tagged { after, count }, ..self }
    }

    /// How many frames each port sends.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        match self.shape {
            Shape::Step { at, then } if at < self.duration => {
                self.load.frames_in(at) + then.frames_in(self.duration - at)
            }
            _ => self.load.frames_in(self.duration),
        }
    }

    /// When frame `index` starts, after the start of the trial.
    #[must_use]
    pub const fn start_ns(&self, index: u64) -> Nanos {
        match self.shape {
            Shape::Even | Shape::Reset { .. } => self.load.start_ns(index),
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

    /// How fast a replay is, in hundredths of the capture's speed: a load of 100 ps is the capture's
    /// own. Only plans with times of their own ask.
    #[must_use]
    pub const fn speed(&self) -> u64 {
        let interval = if self.load.interval_ps == 0 { 1 } else { self.load.interval_ps };
        let speed = 10_000 / interval;
        if speed == 0 { 1 } else { speed }
    }

    /// Where in the schedule's own repetition frame `index` lies; two frames with the same phase are
    /// followed by frames at the same distances.
    #[must_use]
    pub const fn phase(&self, index: u64) -> [u64; 2] {
        let (within, first) = match self.shape {
            Shape::Bursts { frames, .. } if frames > 0 => (index % frames, index - index % frames),
            _ => (0, index),
        };
        [within, (first as u128 * self.load.interval_ps as u128 % 1000) as u64]
    }

    /// The indexes of the frames whose latency is kept, ascending.
    pub fn tagged_frames(&self) -> impl Iterator<Item = u64> + '_ {
        let Tagged { after, count } = self.tagged;
        let (total, first) = (self.frames(), self.load.frames_in(after));
        let room = total.saturating_sub(first);
        let count = u64::from(count).min(room);
        (0..count)
            .map(move |n| first + (u128::from(n) * u128::from(room) / u128::from(count)) as u64)
    }
}

/// What became of the frames, in whole frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// What the trial asked for.
    pub intended: u64,
    /// What left the tester.
    pub sent: u64,
    /// What came back, of all kinds.
    pub received: u64,
    /// Test frames that came back whole, each once.
    pub good: u64,
    /// Further copies of them.
    pub duplicates: u64,
    /// Test frames with wrong bits.
    pub corrupt: u64,
    /// Frames that are not the tester's.
    pub foreign: u64,
    /// Whole test frames at a port where they do not belong.
    pub misrouted: u64,
    /// So much older than the newest frame that nobody knows any more whether they came before.
    pub stale: u64,
    /// Good frames that came after a later one of their flow (RFC 4737, Type-P-Reordered).
    pub reordered: u64,
    /// The furthest: how many frames of the flow came between (RFC 4737 section 4.2.1).
    pub max_extent: u64,
    /// Reordered frames whose extent is more than was kept in mind.
    pub extent_beyond: u64,
    /// Runs of lost frames (RFC 2544 section 10).
    pub gaps: u64,
    /// What the tester could not send.
    pub tester_tx_drops: u64,
    /// What the tester received, or should have, and dropped itself.
    pub tester_rx_drops: u64,
}

impl Counts {
    /// Frames that the device did not give back whole.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.good)
    }

    /// Lost of sent, 0 to 1. RFC 2544 section 26.3 without the factor 100.
    #[must_use]
    pub const fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost() as f64 / self.sent as f64 }
    }

    /// The sum over two ports.
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

/// When frames were lost, after the start of the trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Losses {
    /// When the first lost frame was sent.
    pub first: Option<Nanos>,
    /// When the last lost frame was sent.
    pub last: Option<Nanos>,
    /// The longest time without a frame at a receiving port, while frames were sent: from the frame
    /// before to the frame after.
    pub silence: Option<(Nanos, Nanos)>,
}

/// Everything that came of a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TrialResult {
    /// What was asked for.
    pub trial: Trial,
    /// All ports together.
    pub counts: Counts,
    /// Each sending port by itself, where there is more than one.
    pub ports: Vec<Counts>,
    /// Of every good frame.
    pub latency: Latency,
    /// Of the frames that were asked for, in nanoseconds; `None` was lost.
    pub tagged: Vec<Option<Nanos>>,
    /// When frames were lost.
    pub losses: Losses,
    /// Frames that were sent late, and by how much: what the tester does to its own schedule.
    pub timing: Timing,
    /// Of the frames counted, those that were not moved one by one: a device under virtual time
    /// was found in the state it had been in before, and what comes then is what came then.
    pub repeated_frames: u64,
    /// When it ended before its time, after the start, because a frame was lost (`until_lost`).
    #[serde(default)]
    pub cut_at: Option<Nanos>,
    /// Frames that the device dropped meanwhile, by its own words: for the report, never for results.
    #[serde(default)]
    pub drops: Vec<(String, u64)>,
}

/// How well the tester kept its schedule. Under virtual time: perfectly.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Frames that left later than `late_ns` after their time.
    pub late_frames: u64,
    /// What counts as late.
    pub late_ns: Nanos,
    /// Median of the error of departure.
    pub p50_ns: Nanos,
    /// 99th percentile.
    pub p99_ns: Nanos,
    /// The worst.
    pub max_ns: Nanos,
    /// Frames handed to the port at once.
    pub burst: u32,
}

impl TrialResult {
    /// What the tester itself did wrong; a trial with a fault says nothing about the device.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Counts { intended, sent, tester_tx_drops, tester_rx_drops, .. } = self.counts;
        if tester_rx_drops > 0 {
            return Some(format!("the tester dropped {tester_rx_drops} received frames itself"));
        }
        // A rate that misses by less than one in 10,000 is reached (T1).
        let short = intended.saturating_sub(sent);
        (short > intended / 10_000).then(|| {
            format!(
                "the tester sent {sent} of {intended} frames ({tester_tx_drops} refused by its port)"
            )
        })
    }

    /// Whether every frame is accounted for.
    ///
    /// # Errors
    /// What does not add up.
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
