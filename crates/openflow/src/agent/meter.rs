//! Meters as token buckets (1.3.5, section 5.7). Of the bands whose rate is exceeded, the one with
//! the highest rate applies.
//!
//! The unit of a bucket is a bit or a packet, multiplied by the nanoseconds in a second, so that
//! nothing is rounded.

use super::flows::SECOND;
use crate::group::{Band, meter_flags};
use crate::multipart::MeterConfig;

/// A meter with its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meter {
    /// Its configuration.
    pub config: MeterConfig,
    /// The level of each band's bucket.
    tokens: Vec<u128>,
    filled: u64,
    /// The packets and bytes that reached the meter.
    pub seen: (u64, u64),
    /// The packets and bytes to which each band applied.
    pub hits: Vec<(u64, u64)>,
}

impl Meter {
    /// A meter with full buckets.
    #[must_use]
    pub fn new(config: MeterConfig, now: u64) -> Self {
        let tokens = config.bands.iter().map(|band| depth(&config, band)).collect();
        let hits = vec![(0, 0); config.bands.len()];
        Self { config, tokens, filled: now, seen: (0, 0), hits }
    }

    /// The band that applies to a frame of `bytes`, if any.
    pub fn apply(&mut self, bytes: u64, now: u64) -> Option<&Band> {
        let passed = u128::from(now.saturating_sub(self.filled));
        self.filled = self.filled.max(now);
        self.seen = (self.seen.0 + 1, self.seen.1 + bytes);
        let packets = self.config.flags & meter_flags::PKTPS != 0;
        let (unit, cost) = if packets { (1, 1) } else { (1000, u128::from(bytes) * 8) };
        let cost = cost * u128::from(SECOND);
        let mut worst: Option<usize> = None;
        for (at, band) in self.config.bands.iter().enumerate() {
            let more = passed * u128::from(band.rate()) * unit;
            let tokens = &mut self.tokens[at];
            *tokens = tokens.saturating_add(more).min(depth(&self.config, band));
            if *tokens >= cost {
                *tokens -= cost;
            } else if worst.is_none_or(|worst| self.config.bands[worst].rate() < band.rate()) {
                worst = Some(at);
            }
        }
        let worst = worst?;
        let hits = &mut self.hits[worst];
        *hits = (hits.0 + 1, hits.1 + bytes);
        Some(&self.config.bands[worst])
    }
}

/// The capacity of a band's bucket: the burst, or the rate of one second if no burst is set.
fn depth(config: &MeterConfig, band: &Band) -> u128 {
    let burst = if config.flags & meter_flags::BURST != 0 { band.burst() } else { band.rate() };
    let unit = if config.flags & meter_flags::PKTPS != 0 { 1 } else { 1000 };
    u128::from(burst) * unit * u128::from(SECOND)
}
