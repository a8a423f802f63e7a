//! The times at which frames are due: a Poisson process, drawn from a seed.
//!
//! Thread-safety: a plain value.

use flowyard_frame::Nanos;
use flowyard_testkit::Rng;

/// Number of gaps; they repeat.
const GAPS: usize = 1 << 16;

/// Parts of a nanosecond in which time is counted, so that rounding does not change the rate.
const PARTS: f64 = 1024.0;

/// The times between frames.
pub(crate) struct Schedule {
    /// In 1/1024 ns.
    gaps: Vec<u64>,
    next: usize,
    at: u64,
}

impl Schedule {
    /// `pps` frames per second.
    pub(crate) fn new(pps: f64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let gaps: Vec<f64> = (0..GAPS).map(|_| -(1.0 - rng.unit()).ln()).collect();
        // Scaled, so that the mean is exact.
        let scale = GAPS as f64 / gaps.iter().sum::<f64>() * 1e9 / pps * PARTS;
        let gaps = gaps.into_iter().map(|gap| (gap * scale).round() as u64).collect();
        Self { gaps, next: 0, at: 0 }
    }

    /// The time from the start at which the next frame is due.
    #[inline]
    pub(crate) fn next(&mut self) -> Nanos {
        self.at += self.gaps[self.next];
        self.next = (self.next + 1) % GAPS;
        self.at / PARTS as u64
    }
}
