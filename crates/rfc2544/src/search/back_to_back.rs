//! Back-to-back frames (RFC 9004, which replaces RFC 2544 section 26.4): the longest burst at line
//! rate without loss, and the buffer size that it implies.
//!
//! Corrected buffer time = implied time - implied time * throughput / line rate, because the device
//! forwards frames while the burst arrives (RFC 9004 section 6.4).

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Retry, Search};
use crate::line::Load;
use crate::trial::{Trial, TrialResult};

/// Parameters of the search.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// The line rate.
    pub max: Load,
    /// The throughput at this frame size.
    pub throughput: Load,
    /// Duration of the longest burst; the standard requires that at least 30 s are possible.
    pub longest: Nanos,
    /// Resolution of the search in frames.
    pub step_frames: u64,
    /// Number of repetitions of the search.
    pub repeats: u32,
}

/// The result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The longest burst without loss of each repetition, in frames.
    pub bursts: Vec<u64>,
    /// Mean of `bursts`.
    pub mean: f64,
    /// Minimum of `bursts`.
    pub min: u64,
    /// Maximum of `bursts`.
    pub max: u64,
    /// Standard deviation of `bursts`.
    pub stddev: f64,
    /// Resolution of the search in frames.
    pub step_frames: u64,
    /// The longest burst tried, in frames.
    pub limit_frames: u64,
    /// Transmission time of the mean burst in seconds.
    pub implied_buffer_s: f64,
    /// The same without the frames forwarded meanwhile, in seconds.
    pub corrected_buffer_s: f64,
    /// Whether the longest burst tried had no loss in any repetition; the buffer is then not the
    /// limit.
    pub is_unlimited: bool,
    /// Whether the tester could not send the next longer burst in some repetition: the bursts are
    /// then lower bounds.
    #[serde(default)]
    pub tester_limit: bool,
}

/// The search: repeated bisection by the number of frames.
#[derive(Clone, Debug)]
pub struct BackToBack {
    config: Config,
    clean: u64,
    lossy: Option<u64>,
    asked: u64,
    bursts: Vec<u64>,
    /// Whether `lossy` is a burst that the tester could not send.
    is_unsent: bool,
    tester_limit: bool,
    retry: Retry,
}

impl BackToBack {
    /// A new search.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            clean: 0,
            lossy: None,
            asked: 0,
            bursts: Vec::new(),
            is_unsent: false,
            tester_limit: false,
            retry: Retry::default(),
        }
    }

    fn limit(&self) -> u64 {
        self.config.max.frames_in(self.config.longest).max(1)
    }

    /// The implied and the corrected buffer time of bursts of `frames` frames, in seconds.
    #[must_use]
    pub fn buffer_s(frames: f64, max: Load, throughput: Load) -> (f64, f64) {
        let implied = frames / max.pps();
        (implied, implied - implied * throughput.share_of(max))
    }
}

impl Search for BackToBack {
    type Answer = Answer;

    fn next_trial(&mut self) -> Option<Trial> {
        if self.bursts.len() >= self.config.repeats as usize {
            return None;
        }
        if self.asked == 0 {
            let (step, limit) = (self.config.step_frames.max(1), self.limit());
            self.asked = match self.lossy {
                None if self.clean == 0 => limit,
                None => 0,
                Some(lossy) => {
                    let middle = self.clean.midpoint(lossy);
                    if lossy - self.clean <= step || middle == self.clean { 0 } else { middle }
                }
            };
            if self.asked == 0 {
                self.bursts.push(self.clean);
                self.tester_limit |= std::mem::take(&mut self.is_unsent);
                (self.clean, self.lossy) = (0, None);
                return self.next_trial();
            }
        }
        Some(Trial::burst(self.asked, self.config.max))
    }

    fn record(&mut self, result: &TrialResult) {
        if !self.retry.accepts(result) || self.asked == 0 {
            return;
        }
        let asked = std::mem::take(&mut self.asked);
        let is_unsent = result.fault().is_some();
        if result.counts.lost() == 0 && result.counts.sent > 0 && !is_unsent {
            self.clean = asked;
        } else {
            (self.lossy, self.is_unsent) = (Some(asked), is_unsent);
        }
    }

    fn answer(&self) -> Answer {
        let bursts = &self.bursts;
        let n = bursts.len().max(1) as f64;
        let mean = bursts.iter().map(|&b| b as f64).sum::<f64>() / n;
        let variance = bursts.iter().map(|&b| (b as f64 - mean).powi(2)).sum::<f64>() / n;
        let Config { max, throughput, step_frames, .. } = self.config;
        let (implied_buffer_s, corrected_buffer_s) = Self::buffer_s(mean, max, throughput);
        Answer {
            bursts: bursts.clone(),
            mean,
            min: bursts.iter().copied().min().unwrap_or_default(),
            max: bursts.iter().copied().max().unwrap_or_default(),
            stddev: variance.sqrt(),
            step_frames,
            limit_frames: self.limit(),
            implied_buffer_s,
            corrected_buffer_s,
            is_unlimited: !bursts.is_empty() && bursts.iter().all(|&b| b == self.limit()),
            tester_limit: self.tester_limit,
        }
    }

    fn left(&self) -> Nanos {
        let rounds = (self.config.repeats as usize).saturating_sub(self.bursts.len()) as u64;
        rounds * self.config.longest * 2
    }
}
