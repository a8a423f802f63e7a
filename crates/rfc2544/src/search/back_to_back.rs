//! Back-to-back frames (RFC 9004, which replaces RFC 2544 section 26.4): the longest burst at the
//! line's rate that loses nothing, and the buffer that this means.
//!
//! Corrected buffer time = implied time - implied time * throughput / line rate: while a burst
//! comes in, the device sends on what it can (RFC 9004 section 6.4).

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use super::{Patience, Search};
use crate::line::Load;
use crate::trial::{Trial, TrialResult};

/// How to search.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The line's own rate.
    pub max: Load,
    /// The throughput at this size.
    pub throughput: Load,
    /// The longest burst, in time; the standard wants at least 30 s to be possible.
    pub longest: Nanos,
    /// Steps of the search, in frames.
    pub step_frames: u64,
    /// How often everything is repeated.
    pub repeats: u32,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The longest clean burst of each repetition, in frames.
    pub bursts: Vec<u64>,
    /// Their mean, least, greatest and standard deviation.
    pub mean: f64,
    /// See `mean`.
    pub min: u64,
    /// See `mean`.
    pub max: u64,
    /// See `mean`.
    pub stddev: f64,
    /// Step of the search, in frames.
    pub step_frames: u64,
    /// The longest burst that was tried, in frames.
    pub limit_frames: u64,
    /// Time that the mean burst takes on the line, in seconds.
    pub implied_buffer_s: f64,
    /// Without what was sent on meanwhile.
    pub corrected_buffer_s: f64,
    /// Whether even the longest burst came through: then the buffer is not what limits.
    pub is_unlimited: bool,
}

/// The search: bisection by frames, again and again.
#[derive(Clone, Debug)]
pub struct BackToBack {
    config: Config,
    clean: u64,
    lossy: Option<u64>,
    asked: u64,
    bursts: Vec<u64>,
    patience: Patience,
}

impl BackToBack {
    /// From the beginning.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            clean: 0,
            lossy: None,
            asked: 0,
            bursts: Vec::new(),
            patience: Patience::default(),
        }
    }

    fn limit(&self) -> u64 {
        self.config.max.frames_in(self.config.longest).max(1)
    }

    /// The buffer that bursts of `frames` mean, in seconds: implied, and corrected.
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
                (self.clean, self.lossy) = (0, None);
                return self.next_trial();
            }
        }
        Some(Trial::burst(self.asked, self.config.max))
    }

    fn told(&mut self, result: &TrialResult) {
        if !self.patience.accepts(result) || self.asked == 0 {
            return;
        }
        let asked = std::mem::take(&mut self.asked);
        if result.counts.lost() == 0 && result.counts.sent > 0 {
            self.clean = asked;
        } else {
            self.lossy = Some(asked);
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
        }
    }

    fn left(&self) -> Nanos {
        let rounds = (self.config.repeats as usize).saturating_sub(self.bursts.len()) as u64;
        rounds * self.config.longest * 2
    }
}
