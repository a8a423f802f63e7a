//! Address caching capacity and address learning rate (RFC 2889 sections 5.7 and 5.8).
//!
//! Caching capacity: the number of addresses that a switch can hold. After learning frames from `n`
//! addresses, one frame is sent to each. If a frame is also received at another port, or at none,
//! its address is not in the table. Bisection finds the largest `n` for which every address is
//! known. Learning rate: the same with fixed `n`; the search varies the rate of the learning
//! frames.
//!
//! These searches return a [`Probe`] instead of a trial; the caller runs it.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A probe: learning frames from `addresses` addresses, then one frame to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// Number of addresses.
    pub addresses: u32,
    /// Learning frames per second.
    pub learning_pps: u64,
}

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Probed {
    /// Frames received at the right port only.
    pub forwarded: u32,
    /// Frames also received at another port (flooded).
    pub flooded: u32,
    /// Frames received at no port.
    pub lost: u32,
}

/// A bisection for the largest good number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Greatest {
    good: u64,
    bad: u64,
    started: bool,
    width: u64,
}

impl Greatest {
    /// Searches from 1 to `limit`.
    const fn new(limit: u64, width: u64) -> Self {
        Self { good: 0, bad: limit + 1, started: false, width }
    }

    const fn next(&self) -> Option<u64> {
        if !self.started {
            return Some(self.bad - 1);
        }
        if self.bad - self.good <= self.width { None } else { Some(self.good.midpoint(self.bad)) }
    }

    fn record(&mut self, value: u64, is_good: bool) {
        self.started = true;
        if is_good {
            self.good = self.good.max(value);
        } else {
            self.bad = self.bad.min(value);
        }
    }
}

impl Probed {
    /// Whether every address was known.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.flooded == 0 && self.lost == 0 && self.forwarded > 0
    }
}

/// The search for the address caching capacity.
#[derive(Clone, Debug)]
pub struct Caching {
    search: Greatest,
    learning_pps: u64,
}

impl Caching {
    /// Searches up to `limit` addresses, learnt at `learning_pps` frames per second.
    #[must_use]
    pub const fn new(limit: u32, learning_pps: u64) -> Self {
        Self { search: Greatest::new(limit as u64, 1), learning_pps }
    }

    /// The next probe; `None` when the search has finished.
    #[must_use]
    pub fn next_probe(&self) -> Option<Probe> {
        let addresses = self.search.next()? as u32;
        Some(Probe { addresses, learning_pps: self.learning_pps })
    }

    /// Records the result of a probe.
    pub fn record(&mut self, probe: Probe, probed: Probed) {
        self.search.record(probe.addresses.into(), probed.is_clean());
    }

    /// The capacity found so far.
    #[must_use]
    pub const fn answer(&self) -> u32 {
        self.search.good as u32
    }
}

/// The search for the address learning rate.
#[derive(Clone, Debug)]
pub struct LearningRate {
    search: Greatest,
    addresses: u32,
}

impl LearningRate {
    /// Searches with `addresses` addresses up to `limit_pps`, with a resolution of 1 % of that
    /// limit.
    #[must_use]
    pub const fn new(addresses: u32, limit_pps: u64) -> Self {
        let width = if limit_pps < 100 { 1 } else { limit_pps / 100 };
        Self { search: Greatest::new(limit_pps, width), addresses }
    }

    /// The next probe; `None` when the search has finished.
    #[must_use]
    pub fn next_probe(&self) -> Option<Probe> {
        let learning_pps = self.search.next()?;
        Some(Probe { addresses: self.addresses, learning_pps })
    }

    /// Records the result of a probe.
    pub fn record(&mut self, probe: Probe, probed: Probed) {
        self.search.record(probe.learning_pps, probed.is_clean());
    }

    /// The rate found so far, in frames per second.
    #[must_use]
    pub const fn answer(&self) -> u64 {
        self.search.good
    }
}

/// Duration of a probe: learning frames, 2 s for them to take effect, and one frame to each address
/// at the same rate.
#[must_use]
pub const fn probe_time(probe: &Probe) -> Nanos {
    let pps = if probe.learning_pps == 0 { 1 } else { probe.learning_pps };
    (probe.addresses as u64).saturating_mul(2_000_000_000) / pps + 2_000_000_000
}
