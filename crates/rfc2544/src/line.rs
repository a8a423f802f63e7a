//! The line: the rate of a medium, and the departure time of each frame of a load. Integers only.
//!
//! ```text
//!  | preamble 8 | frame incl. FCS | gap 12 |      one frame occupies (size + 20) * 8 bit times
//!  <----------- interval ------------------>      100 % of the line when intervals touch
//! ```
//!
//! A load is an interval in picoseconds between the starts of frames. The departure time of frame n
//! is one multiplication, so no rate drifts, however long the trial (RFC 2544 section 20 for the
//! maximum rate of a medium).

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Picoseconds per second.
const PS: u128 = 1_000_000_000_000;

/// Bytes that each Ethernet frame occupies in addition to itself: preamble, start delimiter and
/// interframe gap.
pub const OVERHEAD_BYTES: u64 = 20;

/// A medium, described by its bit rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// Bits per second.
    pub bps: u64,
}

impl Line {
    /// Ethernet at 10 Mbit/s.
    pub const MBIT_10: Self = Self { bps: 10_000_000 };
    /// Ethernet at 1 Gbit/s.
    pub const GBIT_1: Self = Self { bps: 1_000_000_000 };
    /// Ethernet at 10 Gbit/s.
    pub const GBIT_10: Self = Self { bps: 10_000_000_000 };

    /// The transmission time of `bytes` bytes in picoseconds, rounded up.
    #[must_use]
    pub const fn ps(self, bytes: u64) -> u64 {
        let bps = if self.bps == 0 { 1 } else { self.bps };
        (bytes as u128 * 8 * PS).div_ceil(bps as u128) as u64
    }

    /// The maximum load of frames of `size` bytes (with FCS), sent back to back.
    #[must_use]
    pub const fn max_load(self, size: u64) -> Load {
        Load { interval_ps: self.ps(size + OVERHEAD_BYTES) }
    }

    /// The maximum load of mixed sizes, `total` bytes in `count` frames.
    #[must_use]
    pub fn max_load_of(self, total: u64, count: u64) -> Load {
        let count = count.max(1);
        Load { interval_ps: self.ps(total + OVERHEAD_BYTES * count).div_ceil(count) }
    }
}

/// A load: one frame every `interval_ps` picoseconds on average.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub struct Load {
    /// Picoseconds from the start of a frame to the start of the next, at least 1.
    pub interval_ps: u64,
}

impl Load {
    /// The load nearest to `pps` frames per second.
    #[must_use]
    pub fn from_pps(pps: f64) -> Self {
        let interval = 1e12 / pps;
        let interval = if interval.is_finite() { interval.round() } else { 1e18 };
        Self { interval_ps: (interval.min(1e18) as u64).max(1) }
    }

    /// Frames per second.
    #[must_use]
    pub const fn pps(self) -> f64 {
        PS as f64 / self.interval_ps as f64
    }

    /// This load as a fraction of `max` (1.0 is `max` itself).
    #[must_use]
    pub const fn share_of(self, max: Self) -> f64 {
        max.interval_ps as f64 / self.interval_ps as f64
    }

    /// The fraction `parts / whole` of this load, rounded down.
    #[must_use]
    pub const fn part(self, parts: u64, whole: u64) -> Self {
        let parts = if parts == 0 { 1 } else { parts };
        let interval = (self.interval_ps as u128 * whole as u128).div_ceil(parts as u128);
        Self { interval_ps: interval as u64 }
    }

    /// The start time of frame `index` (from 0), relative to the start of the trial.
    #[must_use]
    pub const fn start_ns(self, index: u64) -> Nanos {
        match index.checked_mul(self.interval_ps) {
            Some(ps) => ps / 1000, // covers 213 days without a 128-bit division
            None => (index as u128 * self.interval_ps as u128 / 1000) as Nanos,
        }
    }

    /// The number of frames that start within `duration`.
    #[must_use]
    pub const fn frames_in(self, duration: Nanos) -> u64 {
        (duration as u128 * 1000).div_ceil(self.interval_ps as u128) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_rates_are_those_of_the_standard() {
        // RFC 2544 appendix B.1: 14,880 frames per second at 10 Mbit/s and 64 bytes, 812 at 1518.
        let at = |line: Line, size| line.max_load(size).pps() as u64;
        assert_eq!([64, 1518].map(|size| at(Line::MBIT_10, size)), [14_880, 812]);
        let rates = [64, 128, 256, 512, 1024, 1280, 1518].map(|size| at(Line::GBIT_10, size));
        assert_eq!(
            rates,
            [14_880_952, 8_445_945, 4_528_985, 2_349_624, 1_197_318, 961_538, 812_743]
        );
    }

    #[test]
    fn schedules_do_not_drift_and_count_frames_exactly() {
        let load = Line::GBIT_10.max_load(64); // 67.2 ns
        assert_eq!(load.interval_ps, 67_200);
        assert_eq!([0, 1, 5].map(|n| load.start_ns(n)), [0, 67, 336]);
        let fourteen_hours = 14 * 3600 * 1_000_000_000;
        let frames = load.frames_in(fourteen_hours);
        assert_eq!(frames, 750_000_000_000);
        assert!(load.start_ns(frames - 1) < fourteen_hours);
        assert!(load.start_ns(frames) >= fourteen_hours);
    }

    #[test]
    fn parts_never_exceed_the_whole() {
        let max = Line::MBIT_10.max_load(64);
        for parts in 1..=100 {
            let part = max.part(parts, 100);
            assert!(part.pps() <= max.pps() * parts as f64 / 100.0 * (1.0 + 1e-12));
        }
        assert_eq!(max.part(1, 1), max);
        assert_eq!(Load::from_pps(0.0).interval_ps, 1_000_000_000_000_000_000);
        assert_eq!(Load::from_pps(1e300).interval_ps, 1);
    }
}
