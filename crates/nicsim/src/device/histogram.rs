//! A histogram of times, in buckets that are an eighth of a power of two wide.

use schemars::JsonSchema;
use serde::Serialize;

/// Buckets for each power of two.
const PARTS: u64 = 8;

/// How often each latency occurred, in time units of the simulation. The relative error of a quantile is at most an
/// eighth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Histogram {
    /// Number of values by bucket: bucket n below 8 holds the value n; above, 8 buckets share a power of two.
    pub buckets: Vec<u64>,
}

fn bucket(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let power = value.ilog2() - PARTS.ilog2();
    (u64::from(power) * PARTS + (value >> power)) as usize
}

/// The lowest value of bucket `n`.
fn floor(n: usize) -> u64 {
    let n = n as u64;
    if n < 2 * PARTS {
        return n;
    }
    let power = n / PARTS - 1;
    (PARTS + n % PARTS) << power
}

impl Histogram {
    /// Adds one value.
    pub(crate) fn add(&mut self, value: u64) {
        let at = bucket(value);
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
    }

    /// The values that were added after `before` was copied.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let then = before.buckets.iter().copied().chain(std::iter::repeat(0));
        Self { buckets: self.buckets.iter().zip(then).map(|(now, then)| now - then).collect() }
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The lower end of the bucket that holds the value which `share` of all values do not exceed; 0 without values.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (n, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return floor(n);
            }
        }
        0
    }

    /// The buckets that are not empty: their lowest value, and the number of values.
    pub fn rows(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets
            .iter()
            .enumerate()
            .filter(|row| *row.1 > 0)
            .map(|(n, &count)| (floor(n), count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Quantiles equal those of the sorted values, within one bucket.
        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in prop::collection::vec(0u64..1 << 40, 1..200),
            share in 0.01f64..1.0,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.add(value));
            values.sort_unstable();
            let at = ((values.len() as f64 * share).ceil() as usize).max(1) - 1;
            prop_assert_eq!(histogram.quantile(share), floor(bucket(values[at])));
            prop_assert!(floor(bucket(values[at])) <= values[at]);
            prop_assert!(values[at] < floor(bucket(values[at]) + 1));
            prop_assert_eq!(histogram.count(), values.len() as u64);
        }
    }
}
