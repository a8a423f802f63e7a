//! Exact time: one integer unit of which every clock period and every byte time is a multiple.
//!
//! ```text
//!   unit = 1 s / F,  F = the least common multiple of all rates
//!   edge k of a clock of f Hz is at k * F / f units, without rounding
//! ```
//!
//! 166 2/3 MHz, 175 MHz and a byte at 10 Gb/s are not all whole numbers of picoseconds, but they have a common
//! unit. Invariants: a [`Clock`]'s period is at least one unit; nothing is rounded.
//! Thread-safety: values only.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A rate in Hz as a fraction in lowest terms: `500/3 MHz` is exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freq {
    num: u64,
    den: u64,
}

/// Why a rate cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreqError {
    /// The text is not a rate.
    #[error("'{0}' is not a rate in MHz, such as 200, 156.25 or 500/3")]
    Syntax(String),
    /// The common unit of the rates is too small for 64 bits.
    #[error("the clock rates have no common time unit of 64 bits; choose rates with fewer digits")]
    NoCommonUnit,
}

impl Freq {
    /// A rate of `num / den` Hz; `None` when either is zero.
    pub fn new(num: u64, den: u64) -> Option<Self> {
        if num == 0 || den == 0 {
            return None;
        }
        let g = gcd(num, den);
        Some(Self { num: num / g, den: den / g })
    }

    /// A whole number of MHz (at least 1).
    pub const fn mhz(mhz: u64) -> Self {
        Self { num: if mhz == 0 { 1 } else { mhz } * 1_000_000, den: 1 }
    }

    /// The rate in Hz, for display and for ratios of results.
    pub fn hz(self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

impl FromStr for Freq {
    type Err = FreqError;

    /// Reads a rate in MHz: a whole number, a decimal or a fraction.
    fn from_str(text: &str) -> Result<Self, FreqError> {
        let wrong = || FreqError::Syntax(text.to_owned());
        let body = text.trim().trim_end_matches("MHz").trim();
        let (num, den) = body.split_once('/').unwrap_or((body, "1"));
        let den: u64 = den.trim().parse().map_err(|_| wrong())?;
        let (whole, part) = num.trim().split_once('.').unwrap_or((num.trim(), ""));
        if part.len() > 6 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let micro: u64 = if part.is_empty() {
            0
        } else {
            part.parse::<u64>().map_err(|_| wrong())? * 10u64.pow(6 - part.len() as u32)
        };
        let hz = whole.checked_mul(1_000_000).and_then(|hz| hz.checked_add(micro));
        hz.and_then(|hz| Self::new(hz, den)).ok_or_else(wrong)
    }
}

impl fmt::Display for Freq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.num.is_multiple_of(1_000_000), self.den) {
            (true, 1) => write!(f, "{}", self.num / 1_000_000),
            (true, den) => write!(f, "{}/{den}", self.num / 1_000_000),
            (false, 1) => {
                let part = format!("{:06}", self.num % 1_000_000);
                write!(f, "{}.{}", self.num / 1_000_000, part.trim_end_matches('0'))
            }
            (false, den) => {
                let part = format!("{:06}", self.num % 1_000_000);
                write!(f, "{}.{}/{den}", self.num / 1_000_000, part.trim_end_matches('0'))
            }
        }
    }
}

impl Serialize for Freq {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Freq {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Whole(u64),
            Real(f64),
            Text(String),
        }
        match Form::deserialize(from)? {
            Form::Whole(mhz) => mhz.to_string().parse(),
            Form::Real(mhz) => mhz.to_string().parse(),
            Form::Text(text) => text.parse(),
        }
        .map_err(serde::de::Error::custom)
    }
}

/// The common time unit of several rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// Units in one second.
    per_second: u64,
}

impl Base {
    /// The longest unit of which a period of every rate, and a nanosecond, is a multiple.
    ///
    /// # Errors
    /// [`FreqError::NoCommonUnit`] when a minute in this unit does not fit in 63 bits.
    pub fn of(rates: &[Freq]) -> Result<Self, FreqError> {
        let mut per_second: u64 = 1_000_000_000;
        for rate in rates {
            // period = F * den / num is whole when num divides F.
            let step = rate.num / gcd(per_second, rate.num);
            per_second = per_second.checked_mul(step).ok_or(FreqError::NoCommonUnit)?;
        }
        let longest = rates.iter().map(|rate| rate.den).max().unwrap_or(1);
        per_second
            .checked_mul(60)
            .and_then(|f| f.checked_mul(longest))
            .filter(|&f| f < 1 << 63)
            .ok_or(FreqError::NoCommonUnit)?;
        Ok(Self { per_second })
    }

    /// The clock of `rate`, which must be one of the rates given to [`Base::of`].
    pub fn clock(self, rate: Freq) -> Clock {
        Clock { period: (self.per_second / rate.num).saturating_mul(rate.den).max(1) }
    }

    /// Units in `ns` nanoseconds.
    pub fn ns(self, ns: u64) -> u64 {
        (self.per_second / 1_000_000_000).saturating_mul(ns)
    }

    /// Units in one second.
    pub fn per_second(self) -> u64 {
        self.per_second
    }
}

/// A clock: edge `k` is at `k * period` units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// The units between two edges.
    pub period: u64,
}

impl Clock {
    /// The time of the first edge at or after `time`.
    pub fn at_or_after(self, time: u64) -> u64 {
        time.div_ceil(self.period) * self.period
    }

    /// The time of the first edge after `time`.
    pub fn after(self, time: u64) -> u64 {
        (time / self.period + 1) * self.period
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, hz) in [("200", 200e6), ("500/3", 500e6 / 3.0), ("156.25", 156.25e6)] {
            let rate: Freq = text.parse().unwrap();
            assert!((rate.hz() - hz).abs() < 1e-6);
            assert_eq!(rate.to_string().parse::<Freq>().unwrap(), rate);
        }
        for text in ["", "0", "1/0", "x", "1.2345678", "-3", "99999999999999999999"] {
            assert!(text.parse::<Freq>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_common_unit_is_exact() {
        let rates = ["500/3", "175", "400/3", "156.25", "500", "1250"].map(|t| t.parse().unwrap());
        let base = Base::of(&rates).unwrap();
        for rate in rates {
            let clock = base.clock(rate);
            // One second has exactly f edges.
            assert_eq!(
                u128::from(clock.period) * u128::from(rate.num),
                u128::from(base.per_second()) * u128::from(rate.den)
            );
        }
    }

    #[test]
    fn rates_without_a_common_unit_are_refused() {
        let rates = ["166.666661", "175.000003", "133.333337", "499.999993"];
        let rates = rates.map(|text| text.parse().unwrap());
        assert_eq!(Base::of(&rates), Err(FreqError::NoCommonUnit));
    }
}
