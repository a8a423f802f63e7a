//! How well a repeated measurement knows its median, and how far results move within that.
//!
//! The interval of the median needs no distribution: of n independent values, the k-th smallest is above the true
//! median only if fewer than k of them are below it, which has the probability of fewer than k heads in n throws of a
//! coin; the same holds for the k-th largest.
//!
//! Thread-safety: values only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The probability with which an interval should contain the median.
const CONFIDENCE: f64 = 0.95;

/// The interval of a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// The lower end: the k-th smallest value.
    pub low: f64,
    /// The upper end: the k-th largest value.
    pub high: f64,
    /// The probability that the ends enclose the true median if the values are independent: at least 0.95, or less
    /// if there are fewer than 6 values.
    pub confidence: f64,
    /// The number of values.
    pub rounds: usize,
}

impl Interval {
    /// The median of `values` and its interval. The narrowest interval that has a probability of 0.95 is taken, or
    /// that from the smallest to the largest value if none has. One value has no interval, and none has no median.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<(f64, Option<Self>)> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rounds = sorted.len();
        let median = f64::midpoint(*sorted.get(rounds.checked_sub(1)? / 2)?, sorted[rounds / 2]);
        if rounds < 2 {
            return Some((median, None));
        }
        // `outside` is the probability that one end is wrong, with `dropped` values beyond it.
        let mut term = -(rounds as f64) * std::f64::consts::LN_2;
        let (mut dropped, mut outside) = (0, term.exp());
        loop {
            term += ((rounds - dropped) as f64 / (dropped + 1) as f64).ln();
            let next = outside + term.exp();
            if 1.0 - 2.0 * next < CONFIDENCE || 2 * (dropped + 1) >= rounds {
                break;
            }
            (dropped, outside) = (dropped + 1, next);
        }
        let (low, high) = (sorted[dropped], sorted[rounds - 1 - dropped]);
        Some((median, Some(Self { low, high, confidence: 1.0 - 2.0 * outside, rounds })))
    }

    /// This interval with both ends multiplied by `factor`, which is not negative.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, high: self.high * factor, ..self }
    }

    /// The end of the interval.
    #[must_use]
    pub const fn at(self, end: End) -> f64 {
        match end {
            End::Low => self.low,
            End::High => self.high,
        }
    }
}

/// An end of all intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The lower ends.
    Low,
    /// The upper ends.
    High,
}

impl End {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::Low, Self::High];
}

/// Between which values a result is, with all measured inputs at the lower ends of their intervals, at their medians,
/// and at the upper ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Between {
    /// The smallest of the three.
    pub low: f64,
    /// The largest of the three.
    pub high: f64,
}

impl Between {
    /// The range of `values`.
    #[must_use]
    pub fn of(values: [f64; 3]) -> Self {
        let low = values.into_iter().fold(f64::INFINITY, f64::min);
        Self { low, high: values.into_iter().fold(f64::NEG_INFINITY, f64::max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(rounds: u32) -> Interval {
        let values: Vec<f64> = (1..=rounds).rev().map(f64::from).collect();
        Interval::of(&values).unwrap().1.unwrap()
    }

    /// The ranks and probabilities of tables of the sign test.
    #[test]
    fn the_ranks_are_those_of_the_binomial_distribution() {
        for (rounds, low, high, confidence) in [
            (2, 1.0, 2.0, 0.5),
            (5, 1.0, 5.0, 0.9375),
            (6, 1.0, 6.0, 0.96875),
            (8, 1.0, 8.0, 0.992_187_5),
            (9, 2.0, 8.0, 0.960_937_5),
            (15, 4.0, 12.0, 0.964_843_75),
            (20, 6.0, 15.0, 0.958_610_5),
            (100, 40.0, 61.0, 0.964_799_8),
        ] {
            let found = interval(rounds);
            assert_eq!((found.low, found.high), (low, high), "{rounds}");
            assert!((found.confidence - confidence).abs() < 1e-6, "{rounds}: {found:?}");
            assert_eq!(found.rounds, rounds as usize);
        }
        // More values than 2^-n can be computed for.
        let many = interval(5000);
        assert!((0.95..0.953).contains(&many.confidence), "{many:?}");
        assert!((many.high - many.low - 2.0 * 0.98 * 5000f64.sqrt()).abs() < 3.0, "{many:?}");
    }

    /// Of many measurements, as many as promised have the true median in their interval, and not many more.
    #[test]
    fn intervals_contain_the_median_as_often_as_they_say() {
        let mut state = 7u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let share = (state >> 11) as f64 / (1u64 << 53) as f64;
            -(1.0 - share).ln() // far from symmetric; its median is ln 2
        };
        let mut inside = 0;
        for _ in 0..20_000 {
            let values: Vec<f64> = (0..15).map(|_| draw()).collect();
            let (_, found) = Interval::of(&values).unwrap();
            let Interval { low, high, .. } = found.unwrap();
            inside += u32::from((low..=high).contains(&std::f64::consts::LN_2));
        }
        let share = f64::from(inside) / 20_000.0;
        assert!((share - 0.964_84).abs() < 0.006, "{share}");
    }

    #[test]
    fn few_values_have_a_median_and_no_interval() {
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[3.0]), Some((3.0, None)));
        assert_eq!(Interval::of(&[4.0, 1.0]).unwrap().0, 2.5);
        assert_eq!(Interval::of(&[9.0, 1.0, 2.0]).unwrap().0, 2.0);
        assert_eq!(interval(9).times(2.0).at(End::High), 16.0);
        assert_eq!(Between::of([2.0, 1.0, 3.0]), Between { low: 1.0, high: 3.0 });
    }
}
