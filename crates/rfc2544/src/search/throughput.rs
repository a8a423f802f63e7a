//! Throughput (RFC 2544 section 26.1): the highest rate at which no frame is lost.
//!
//! ```text
//!   clean ────────────┤ width ├────────── ceiling     halved until narrow enough;
//!        short trials, then full ones near the edge   a full-length trial decides
//! ```
//!
//! Invariants: when the search is done, the answer is a rate that had a full-length trial without
//! loss, or there is none; a result never depends on short trials alone (section 24). A trial with
//! a fault of the tester says nothing about the device: it ends the search from above, but its rate
//! is never reported as one at which the device loses frames.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Retry, Search};
use crate::line::Load;
use crate::trial::{Counts, SECOND, Trial, TrialResult};

/// Parameters of the search.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// The line rate.
    pub max: Load,
    /// The lowest rate that is tried.
    pub min: Load,
    /// Resolution: the answer is at most this many parts per million below a rate with loss.
    pub width_ppm: u64,
    /// Intervals are multiples of this many picoseconds, except for the line rate. With whole
    /// nanoseconds, a device under virtual time can return to an earlier state.
    pub grid_ps: u64,
    /// Duration of intermediate trials.
    pub short: Nanos,
    /// Duration of the deciding trials.
    pub full: Nanos,
    /// How often a trial with loss is repeated (ETSI TST009, loss verification); 0 in RFC 2544.
    pub verify: u32,
}

impl Config {
    /// The parameters of RFC 2544: deciding trials of 60 s, and intermediate trials of 5 s.
    #[must_use]
    pub const fn rfc2544(max: Load) -> Self {
        Self {
            max,
            min: Load { interval_ps: max.interval_ps.saturating_mul(1000) },
            width_ppm: 1000,
            grid_ps: if max.interval_ps < 100_000 { 1 } else { 1000 },
            short: 5 * SECOND,
            full: 60 * SECOND,
            verify: 0,
        }
    }

    /// The grid for intervals above that of `load`. Where a nanosecond is finer than the resolution
    /// of the search, intervals are whole nanoseconds, also if those of the line rate are not.
    fn grid_at(&self, load: Load) -> u64 {
        let width = u128::from(load.interval_ps) * u128::from(self.width_ppm) / 1_000_000;
        if width >= 1000 { self.grid_ps.max(1000) } else { self.grid_ps.max(1) }
    }
}

/// The result.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The highest rate without loss; `None` if even the lowest rate has loss.
    pub load: Option<Load>,
    /// The lowest rate above it at which the device lost frames; `None` if it lost none at any rate
    /// that the tester could generate.
    pub lossy: Option<Load>,
    /// The lowest rate above `load` that the tester could not generate.
    #[serde(default)]
    pub unreached: Option<Load>,
    /// Whether the tester, not the device, limits the result: the device forwards at least `load`.
    pub tester_limit: bool,
    /// Frame counters of the deciding trial.
    pub counts: Counts,
    /// Duration of the deciding trial.
    pub duration: Nanos,
    /// Number of trials.
    pub trials: u32,
    /// Number of trials repeated because of a fault of the tester.
    pub invalid_trials: u32,
}

/// The search.
#[derive(Clone, Debug)]
pub struct Throughput {
    config: Config,
    /// The highest rates without loss in short and in full trials.
    clean: [Option<Load>; 2],
    /// The lowest rate with loss or with a fault of the tester: the search continues below it.
    ceiling: Option<Load>,
    asked: Option<Trial>,
    answer: Answer,
    again: u32,
    /// If not 0, a full trial had loss at a rate where a short one had none, because a buffer hid
    /// it. From then on only full trials are used, downwards from that rate in steps of this many
    /// widths, doubled each time.
    stride: u64,
    retry: Retry,
    done: bool,
}

impl Throughput {
    /// A new search.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        let counts = Counts {
            intended: 0,
            sent: 0,
            received: 0,
            good: 0,
            duplicates: 0,
            corrupt: 0,
            foreign: 0,
            misrouted: 0,
            stale: 0,
            reordered: 0,
            max_extent: 0,
            extent_beyond: 0,
            gaps: 0,
            tester_tx_drops: 0,
            tester_rx_drops: 0,
        };
        let answer = Answer {
            load: None,
            lossy: None,
            unreached: None,
            tester_limit: false,
            counts,
            duration: 0,
            trials: 0,
            invalid_trials: 0,
        };
        Self {
            config,
            clean: [None; 2],
            ceiling: None,
            asked: None,
            answer,
            again: 0,
            stride: 0,
            retry: Retry::new(),
            done: false,
        }
    }

    /// Whether the two rates are so close that the search is done.
    fn is_narrow(&self, clean: Load, ceiling: Load) -> bool {
        let width = clean.interval_ps.saturating_sub(ceiling.interval_ps);
        u128::from(width) * 1_000_000
            <= u128::from(clean.interval_ps) * u128::from(self.config.width_ppm)
            || width <= self.config.grid_at(ceiling)
    }

    /// The next rate, and whether to use a short trial.
    fn aim(&self) -> Option<(Load, bool)> {
        let Config { max, min, .. } = self.config;
        let Some(ceiling) = self.ceiling else {
            // No loss so far: try the line rate, first with a short and then with a full trial.
            return (self.clean[1] != Some(max)).then_some((max, self.clean[0] != Some(max)));
        };
        let (short, full) = (self.clean[0], self.clean[1]);
        if self.stride > 0 && full.is_none() {
            if ceiling.interval_ps >= min.interval_ps {
                return None;
            }
            let step =
                u128::from(ceiling.interval_ps) * u128::from(self.config.width_ppm * self.stride);
            let down = u128::from(ceiling.interval_ps) + (step / 1_000_000).max(1);
            let grid = u128::from(self.config.grid_at(ceiling));
            let interval_ps = down.next_multiple_of(grid).min(u128::from(min.interval_ps)) as u64;
            return Some((Load { interval_ps }, false));
        }
        let grid = self.config.grid_at(ceiling);
        let best = if self.stride > 0 { full } else { short.max_by_rate(full) };
        match best {
            // A full trial that is narrow enough is the answer.
            _ if full.is_some_and(|full| self.is_narrow(full, ceiling)) => None,
            Some(best) if self.is_narrow(best, ceiling) => Some((best, false)),
            Some(best) => Some((middle(best, ceiling, grid), self.stride == 0)),
            None if ceiling.interval_ps >= min.interval_ps => None,
            None => {
                // Halve the rate until a trial has no loss.
                let next = Load { interval_ps: ceiling.interval_ps.saturating_mul(2) };
                let next = if next.interval_ps > min.interval_ps { min } else { next };
                Some((next, true))
            }
        }
    }
}

trait ByRate {
    fn max_by_rate(self, other: Self) -> Self;
}

impl ByRate for Option<Load> {
    fn max_by_rate(self, other: Self) -> Self {
        match (self, other) {
            (Some(a), Some(b)) => Some(if a.interval_ps < b.interval_ps { a } else { b }),
            (a, b) => a.or(b),
        }
    }
}

/// The rate half-way between two rates: the harmonic mean of their intervals.
fn middle(a: Load, b: Load, grid: u64) -> Load {
    let (x, y) = (u128::from(a.interval_ps), u128::from(b.interval_ps));
    let middle = (2 * x * y / (x + y).max(1)) as u64;
    // Strictly between the two, so that the search ends.
    let (low, high) = (a.interval_ps.min(b.interval_ps), a.interval_ps.max(b.interval_ps));
    let middle = middle / grid * grid;
    Load {
        interval_ps: if middle <= low {
            (low + 1).next_multiple_of(grid).min(high - 1)
        } else {
            middle
        },
    }
}

impl Search for Throughput {
    type Answer = Answer;

    fn next_trial(&mut self) -> Option<Trial> {
        if self.asked.is_none() && !self.done {
            self.asked = self.aim().map(|(load, is_short)| {
                let short = self.config.short.min(self.config.full);
                Trial::new(load, if is_short { short } else { self.config.full }).stop_at_loss()
            });
            self.done = self.asked.is_none();
        }
        self.asked
    }

    fn record(&mut self, result: &TrialResult) {
        self.answer.trials += 1;
        if !self.retry.accepts(result) {
            self.answer.invalid_trials += 1;
            return;
        }
        let Some(trial) = self.asked else { return };
        let (load, counts) = (trial.load, result.counts);
        let is_clean = counts.lost() == 0 && counts.sent > 0 && result.fault().is_none();
        if !is_clean && self.again < self.config.verify {
            self.again += 1;
            return; // repeat the trial to distinguish noise from a limit of the device
        }
        (self.asked, self.again) = (None, 0);
        if !is_clean {
            self.ceiling = Some(load);
            if result.fault().is_some() {
                self.answer.unreached = Some(load);
            } else {
                self.answer.lossy = Some(load);
            }
            if trial.duration == self.config.full && self.config.short < self.config.full {
                self.stride = (self.stride * 2).clamp(1, 1 << 20);
            }
            // Rates at or above this one no longer count as free of loss.
            self.clean.iter_mut().for_each(|clean| {
                *clean = clean.filter(|clean| clean.interval_ps > load.interval_ps);
            });
            if self.clean[1].is_none() {
                (self.answer.load, self.answer.counts) = (None, counts);
            }
            return;
        }
        self.clean[0] = self.clean[0].max_by_rate(Some(load));
        if trial.duration == self.config.full {
            self.clean[1] = self.clean[1].max_by_rate(Some(load));
            self.answer.load = Some(load);
            (self.answer.counts, self.answer.duration) = (counts, trial.duration);
        }
    }

    fn answer(&self) -> Answer {
        let unreached = self.answer.unreached;
        let tester_limit = unreached.is_some() && unreached == self.ceiling;
        Answer { load: self.clean[1], tester_limit, ..self.answer }
    }

    fn left(&self) -> Nanos {
        if self.done {
            return 0;
        }
        let steps = match (self.clean[0].max_by_rate(self.clean[1]), self.ceiling) {
            (Some(clean), Some(ceiling)) => {
                let width = clean.interval_ps.saturating_sub(ceiling.interval_ps) as f64;
                let ppm = width * 1e6 / clean.interval_ps as f64;
                (ppm / self.config.width_ppm.max(1) as f64).log2().max(0.0)
            }
            (_, None) => 0.0,
            (None, Some(_)) => (1e6 / self.config.width_ppm.max(1) as f64).log2(),
        };
        (steps * self.config.short as f64) as Nanos + self.config.full
    }
}
