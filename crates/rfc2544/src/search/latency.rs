//! Latency (RFC 2544 section 26.2) and latency with packet delay variation (RFC 8219 section 7).
//!
//! Both use a stream of 120 s at the throughput, with tagged frames after 60 s, 20 times. RFC 2544
//! tags one frame per trial and reports the mean. RFC 8219 tags 500 and reports the median of the
//! medians (typical latency, TL) and of the 99.9th percentiles (worst case latency, WCL). The
//! packet delay variation (PDV) is computed from all frames.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Retry, Search};
use crate::line::Load;
use crate::trial::{SECOND, Trial, TrialResult};

/// Parameters of the streams.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// The load: the throughput.
    pub load: Load,
    /// Duration of a stream.
    pub duration: Nanos,
    /// Start of the tagged part, relative to the start of the stream.
    pub after: Nanos,
    /// Number of streams.
    pub repeats: u32,
}

impl Config {
    /// The parameters of RFC 2544: 20 streams of 120 s, tagged from 60 s on.
    #[must_use]
    pub const fn standard(load: Load) -> Self {
        Self { load, duration: 120 * SECOND, after: 60 * SECOND, repeats: 20 }
    }

    const fn trial(&self, tags: u32) -> Trial {
        Trial::new(self.load, self.duration).tagged(self.after, tags)
    }
}

/// Latency by RFC 2544.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Delay {
    /// Latency of each trial's tagged frame in nanoseconds; lost frames are left out.
    pub samples_ns: Vec<Nanos>,
    /// Number of lost tagged frames.
    pub lost: u32,
    /// Mean of the samples.
    pub mean_ns: f64,
    /// Standard deviation of the samples.
    pub stddev_ns: f64,
}

/// The RFC 2544 latency test: one tagged frame per trial.
#[derive(Clone, Debug)]
pub struct Rfc2544Latency {
    config: Config,
    samples: Vec<Option<Nanos>>,
    made: u32,
    retry: Retry,
}

impl Rfc2544Latency {
    /// A new test.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, samples: Vec::new(), made: 0, retry: Retry::default() }
    }
}

impl Search for Rfc2544Latency {
    type Answer = Delay;

    fn next_trial(&mut self) -> Option<Trial> {
        (self.made < self.config.repeats).then(|| self.config.trial(1))
    }

    fn record(&mut self, result: &TrialResult) {
        if self.retry.accepts(result) {
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

/// Latency by RFC 8219. Each array has the median, 1st and 99th percentile over the trials.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Variation {
    /// Typical latency.
    pub tl_ns: [Nanos; 3],
    /// Worst case latency.
    pub wcl_ns: [Nanos; 3],
    /// Packet delay variation.
    pub pdv_ns: [Nanos; 3],
    /// Inter-packet delay variation: minimum, median, maximum over all trials.
    pub ipdv_ns: [i64; 3],
    /// Number of lost tagged frames in all trials.
    pub lost: u64,
    /// Number of trials.
    pub repeats: u32,
    /// Tagged frames per trial.
    pub tags: u32,
}

/// The RFC 8219 latency test: many tagged frames per trial.
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
    retry: Retry,
}

impl Rfc8219Latency {
    /// A new test with `tags` tagged frames per trial (the standard requires at least 500).
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
            retry: Retry::default(),
        }
    }
}

impl Search for Rfc8219Latency {
    type Answer = Variation;

    fn next_trial(&mut self) -> Option<Trial> {
        (self.made < self.config.repeats).then(|| self.config.trial(self.tags))
    }

    fn record(&mut self, result: &TrialResult) {
        if !self.retry.accepts(result) {
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

/// The `share` quantile of sorted values; 0 for an empty slice.
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
