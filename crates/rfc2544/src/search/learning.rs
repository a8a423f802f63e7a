//! Address caching capacity and address learning rate (RFC 2889 sections 5.7 and 5.8).
//!
//! Caching: how many addresses a switch knows at once. After learning frames of `n` addresses, one
//! frame to each: a frame that comes out of another port too, or not at all, was to an address that
//! is not known. The greatest `n` without such a frame, by bisection. Learning rate: the same with
//! fixed `n`, and the rate of the learning frames searched.
//!
//! These are searches over a number; who measures knows how to run one: [`Probe`] is what they ask.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

/// Addresses to learn at a rate, and then a frame to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// How many addresses.
    pub addresses: u32,
    /// Learning frames a second.
    pub learning_pps: u64,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Probed {
    /// Frames that came out where they should, and nowhere else.
    pub forwarded: u32,
    /// Frames that came out elsewhere, too: flooded.
    pub flooded: u32,
    /// Frames that came out nowhere.
    pub lost: u32,
}

/// A bisection over whole numbers for the greatest that is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Greatest {
    good: u64,
    bad: u64,
    started: bool,
    width: u64,
}

impl Greatest {
    /// From 1 to `limit`.
    const fn new(limit: u64, width: u64) -> Self {
        Self { good: 0, bad: limit + 1, started: false, width }
    }

    const fn next(&self) -> Option<u64> {
        if !self.started {
            return Some(self.bad - 1);
        }
        if self.bad - self.good <= self.width { None } else { Some(self.good.midpoint(self.bad)) }
    }

    fn told(&mut self, value: u64, is_good: bool) {
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

/// How many addresses are known at once.
#[derive(Clone, Debug)]
pub struct Caching {
    search: Greatest,
    learning_pps: u64,
}

impl Caching {
    /// Up to `limit` addresses, learnt slowly.
    #[must_use]
    pub const fn new(limit: u32, learning_pps: u64) -> Self {
        Self { search: Greatest::new(limit as u64, 1), learning_pps }
    }

    /// What to probe next.
    #[must_use]
    pub fn next_probe(&self) -> Option<Probe> {
        let addresses = self.search.next()? as u32;
        Some(Probe { addresses, learning_pps: self.learning_pps })
    }

    /// What came of it.
    pub fn told(&mut self, probe: Probe, probed: Probed) {
        self.search.told(probe.addresses.into(), probed.is_clean());
    }

    /// The capacity so far.
    #[must_use]
    pub const fn answer(&self) -> u32 {
        self.search.good as u32
    }
}

/// How fast they are learnt.
#[derive(Clone, Debug)]
pub struct LearningRate {
    search: Greatest,
    addresses: u32,
}

impl LearningRate {
    /// Of `addresses` addresses, up to `limit_pps`, to one part in a hundred of it.
    #[must_use]
    pub const fn new(addresses: u32, limit_pps: u64) -> Self {
        let width = if limit_pps < 100 { 1 } else { limit_pps / 100 };
        Self { search: Greatest::new(limit_pps, width), addresses }
    }

    /// What to probe next.
    #[must_use]
    pub fn next_probe(&self) -> Option<Probe> {
        let learning_pps = self.search.next()?;
        Some(Probe { addresses: self.addresses, learning_pps })
    }

    /// What came of it.
    pub fn told(&mut self, probe: Probe, probed: Probed) {
        self.search.told(probe.learning_pps, probed.is_clean());
    }

    /// The rate so far, in frames a second.
    #[must_use]
    pub const fn answer(&self) -> u64 {
        self.search.good
    }
}

/// What a probe takes: learning, 2 s for it to take effect, a frame to each at the same rate.
#[must_use]
pub const fn probe_time(probe: &Probe) -> Nanos {
    let pps = if probe.learning_pps == 0 { 1 } else { probe.learning_pps };
    (probe.addresses as u64).saturating_mul(2_000_000_000) / pps + 2_000_000_000
}
