//! Latency (RFC 2544 section 26.2) and latency with packet delay variation (RFC 8219 section 7).
//!
//! At the throughput: a stream of 120 s, tagged frames after 60 s, 20 times over. RFC 2544 tags one
//! frame a trial and reports the mean; RFC 8219 tags 500 and reports the median of medians (typical
//! latency, TL) and of 99.9th percentiles (worst case latency, WCL). PDV is of all frames.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use super::{Patience, Search};
use crate::line::Load;
use crate::trial::{SECOND, Trial, TrialResult};

/// Streams and how often.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The throughput.
    pub load: Load,
    /// The stream.
    pub duration: Nanos,
    /// No frame is tagged before.
    pub after: Nanos,
    /// Trials.
    pub repeats: u32,
}

impl Config {
    /// 120 s, from 60 s on, 20 times.
    #[must_use]
    pub const fn standard(load: Load) -> Self {
        Self { load, duration: 120 * SECOND, after: 60 * SECOND, repeats: 20 }
    }

    const fn trial(&self, tags: u32) -> Trial {
        Trial::new(self.load, self.duration).tagged(self.after, tags)
    }
}

/// What RFC 2544 wants.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Delay {
    /// Of each trial's tagged frame, in nanoseconds; lost ones are missing.
    pub samples_ns: Vec<Nanos>,
    /// Tagged frames that were lost.
    pub lost: u32,
    /// Their mean.
    pub mean_ns: f64,
    /// And spread.
    pub stddev_ns: f64,
}

/// One tagged frame a trial.
#[derive(Clone, Debug)]
pub struct Rfc2544Latency {
    config: Config,
    samples: Vec<Option<Nanos>>,
    made: u32,
    patience: Patience,
}

impl Rfc2544Latency {
    /// From the beginning.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, samples: Vec::new(), made: 0, patience: Patience::default() }
    }
}

impl Search for Rfc2544Latency {
    type Answer = Delay;

    fn next_trial(&mut self) -> Option<Trial> {
        (self.made < self.config.repeats).then(|| self.config.trial(1))
    }

    fn told(&mut self, result: &TrialResult) {
        if self.patience.accepts(result) {
            self.made += 1;
            self.samples.extend(&result.tagged);
        }
    }

    fn answer(&self) -> Delay {
        let samples_ns: Vec<_> = self.samples.iter().flatten().copied().collect();
        let lost = (self.samples.len() - samples_ns.len()) as u32;
        let (mean_ns, stddev_ns) = spread(&samples_ns);
        Delay { samples_ns, lost, mean_ns, stddev_ns }
    }

    fn left(&self) -> Nanos {
        u64::from(self.config.repeats - self.made) * self.config.duration
    }
}

/// What RFC 8219 wants: of each, the median over the trials, and the first and 99th percentile.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Variation {
    /// Typical latency.
    pub tl_ns: [Nanos; 3],
    /// Worst case latency.
    pub wcl_ns: [Nanos; 3],
    /// Packet delay variation.
    pub pdv_ns: [Nanos; 3],
    /// Difference between neighbours: least, median, greatest over all trials.
    pub ipdv_ns: [i64; 3],
    /// Tagged frames that were lost, over all trials.
    pub lost: u64,
    /// Trials.
    pub repeats: u32,
    /// Tagged frames of each trial.
    pub tags: u32,
}

/// 500 tagged frames a trial.
#[derive(Clone, Debug)]
pub struct Rfc8219Latency {
    config: Config,
    tags: u32,
    tl: Vec<Nanos>,
    wcl: Vec<Nanos>,
    pdv: Vec<Nanos>,
    ipdv: [Vec<i64>; 3],
    lost: u64,
    made: u32,
    patience: Patience,
}

impl Rfc8219Latency {
    /// From the beginning, with `tags` tagged frames (the standard wants at least 500).
    #[must_use]
    pub fn new(config: Config, tags: u32) -> Self {
        Self {
            config,
            tags,
            tl: Vec::new(),
            wcl: Vec::new(),
            pdv: Vec::new(),
            ipdv: [const { Vec::new() }; 3],
            lost: 0,
            made: 0,
            patience: Patience::default(),
        }
    }
}

impl Search for Rfc8219Latency {
    type Answer = Variation;

    fn next_trial(&mut self) -> Option<Trial> {
        (self.made < self.config.repeats).then(|| self.config.trial(self.tags))
    }

    fn told(&mut self, result: &TrialResult) {
        if !self.patience.accepts(result) {
            return;
        }
        self.made += 1;
        let mut came: Vec<_> = result.tagged.iter().flatten().copied().collect();
        self.lost += (result.tagged.len() - came.len()) as u64;
        came.sort_unstable();
        if !came.is_empty() {
            self.tl.push(at(&came, 0.5));
            self.wcl.push(at(&came, 0.999));
        }
        if result.latency.count > 0 {
            self.pdv.push(result.latency.pdv_ns);
            for (all, one) in self.ipdv.iter_mut().zip(result.latency.ipdv_ns) {
                all.push(one);
            }
        }
    }

    fn answer(&self) -> Variation {
        let three = |values: &[Nanos]| {
            let mut sorted = values.to_vec();
            sorted.sort_unstable();
            [0.5, 0.01, 0.99].map(|share| at(&sorted, share))
        };
        let mut medians = self.ipdv[1].clone();
        medians.sort_unstable();
        let median = medians.get(medians.len().div_ceil(2).saturating_sub(1)).copied();
        let least = self.ipdv[0].iter().min().copied();
        let greatest = self.ipdv[2].iter().max().copied();
        Variation {
            tl_ns: three(&self.tl),
            wcl_ns: three(&self.wcl),
            pdv_ns: three(&self.pdv),
            ipdv_ns: [least, median, greatest].map(Option::unwrap_or_default),
            lost: self.lost,
            repeats: self.made,
            tags: self.tags,
        }
    }

    fn left(&self) -> Nanos {
        u64::from(self.config.repeats - self.made) * self.config.duration
    }
}

/// The value that `share` of the sorted ones do not exceed; of none, 0.
fn at(sorted: &[Nanos], share: f64) -> Nanos {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn spread(values: &[Nanos]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
    let variance = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n;
    (mean, variance.sqrt())
}
