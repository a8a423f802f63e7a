//! Latency of every frame: a histogram during the trial, a summary at its end.
//!
//! RFC 2544 (section 26.2) uses the mean of tagged frames. RFC 8219 uses the median and the 99.9th
//! percentile (section 7.2), the packet delay variation over all frames, D99.9 - Dmin (7.3.1), and
//! the variation between consecutive frames (IPDV, 7.3.2; RFC 5481). Latency is measured as for a
//! store-and-forward device: last bit in to first bit out (RFC 1242 section 3.8).
//!
//! Values have three significant digits (HDR histogram); minimum, maximum and sum are exact.

use flowyard_frame::Nanos;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The largest latency that is distinguished: 18 minutes, at which time stamps wrap around.
const LONGEST: u64 = 1 << 40;

/// Collects latencies. Thread-safety: used by one thread.
#[derive(Clone, Debug)]
pub struct Recorder {
    all: Histogram<u64>,
    min: Nanos,
    max: Nanos,
    sum: u128,
    /// Differences between consecutive frames: negative ones in `down`, all others in `up`.
    down: Histogram<u64>,
    up: Histogram<u64>,
}

/// Summary of a trial's latencies, in nanoseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Number of frames.
    pub count: u64,
    /// Minimum, exact.
    pub min_ns: Nanos,
    /// Maximum, exact.
    pub max_ns: Nanos,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: Nanos,
    /// 90th percentile.
    pub p90_ns: Nanos,
    /// 99th percentile.
    pub p99_ns: Nanos,
    /// 99.9th percentile.
    pub p999_ns: Nanos,
    /// Packet delay variation (RFC 8219): the 99.9th percentile minus the minimum.
    pub pdv_ns: Nanos,
    /// Inter-packet delay variation: minimum, median, maximum.
    pub ipdv_ns: [i64; 3],
    /// The distribution: pairs of a fraction of the frames (0 to 1) and their maximum latency.
    pub curve: Vec<(f64, Nanos)>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty recorder.
    #[must_use]
    pub fn new() -> Self {
        // The library accepts these bounds and digits.
        let new = || {
            let wide = Histogram::new_with_bounds(1, LONGEST, 3);
            wide.unwrap_or_else(|_| Histogram::new(3).unwrap_or_else(|_| unreachable!()))
        };
        Self { all: new(), min: Nanos::MAX, max: 0, sum: 0, down: new(), up: new() }
    }

    /// Records `count` frames with a latency of `ns` each.
    #[inline]
    pub fn record(&mut self, ns: Nanos, count: u64) {
        self.all.saturating_record_n(ns, count);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum += u128::from(ns) * u128::from(count);
    }

    /// Records `count` differences between the latencies of consecutive frames.
    #[inline]
    pub fn vary(&mut self, difference: i64, count: u64) {
        let side = if difference < 0 { &mut self.down } else { &mut self.up };
        side.saturating_record_n(difference.unsigned_abs(), count);
    }

    /// Adds the contents of `other`, `times` times.
    pub fn add(&mut self, other: &Self, times: u64) {
        if times == 0 {
            return;
        }
        let pairs =
            [(&mut self.all, &other.all), (&mut self.down, &other.down), (&mut self.up, &other.up)];
        for (mine, theirs) in pairs {
            for step in theirs.iter_recorded() {
                let count = step.count_since_last_iteration();
                mine.saturating_record_n(step.value_iterated_to(), count * times);
            }
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum * u128::from(times);
    }

    /// Computes the summary.
    #[must_use]
    pub fn finish(&self) -> Latency {
        let count = self.all.len();
        if count == 0 {
            return Latency::default();
        }
        // A bucket's upper end may lie beyond the largest recorded value.
        let at = |share: f64| self.all.value_at_quantile(share).clamp(self.min, self.max);
        let p999 = at(0.999);
        const SHARES: [f64; 16] = [
            0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999,
            0.99999, 1.0,
        ];
        Latency {
            count,
            min_ns: self.min,
            max_ns: self.max,
            mean_ns: self.sum as f64 / count as f64,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: p999,
            pdv_ns: p999 - self.min,
            ipdv_ns: self.ipdv(),
            curve: SHARES.into_iter().map(|share| (share, at(share))).collect(),
        }
    }

    fn ipdv(&self) -> [i64; 3] {
        let (down, up) = (self.down.len(), self.up.len());
        if down + up == 0 {
            return [0; 3];
        }
        let least = if down > 0 { -(self.down.max() as i64) } else { self.up.min() as i64 };
        let greatest = if up > 0 { self.up.max() as i64 } else { -(self.down.min() as i64) };
        let rank = (down + up).div_ceil(2); // from 1
        // Half a rank lower, because a quantile that was rounded up would select the next rank.
        let nth = |side: &Histogram<u64>, rank: u64| {
            side.value_at_quantile((rank as f64 - 0.5) / side.len() as f64) as i64
        };
        let median = if rank <= down {
            -nth(&self.down, down - rank + 1) // stored by magnitude, so the order is reversed
        } else {
            nth(&self.up, rank - down)
        };
        [least, median.clamp(least, greatest), greatest]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_and_one() {
        assert_eq!(Recorder::new().finish(), Latency::default());
        let mut one = Recorder::new();
        one.record(1234, 5_000_000_000); // more than 2^32
        let done = one.finish();
        assert_eq!(
            (done.count, done.min_ns, done.max_ns, done.p50_ns),
            (5_000_000_000, 1234, 1234, 1234)
        );
        assert_eq!((done.mean_ns, done.pdv_ns, done.ipdv_ns), (1234.0, 0, [0; 3]));
    }

    proptest! {
        /// Compares with sorted values: percentiles to three digits, minimum and maximum exactly.
        #[test]
        fn as_sorted(values in prop::collection::vec(0_u64..10_000_000, 1..500)) {
            let mut recorder = Recorder::new();
            values.iter().for_each(|&ns| recorder.record(ns, 1));
            for pair in values.windows(2) {
                recorder.vary(pair[1] as i64 - pair[0] as i64, 1);
            }
            let got = recorder.finish();
            let near = |got: i64, want: i64| (got - want).abs() <= want.abs() / 500 + 1;
            let rank = |share: f64| ((share * values.len() as f64).ceil() as usize).max(1) - 1;
            let mut sorted = values.clone();
            sorted.sort_unstable();
            prop_assert_eq!((got.min_ns, got.max_ns), (sorted[0], *sorted.last().unwrap()));
            for (share, got) in [(0.5, got.p50_ns), (0.99, got.p99_ns), (0.999, got.p999_ns)] {
                prop_assert!(near(got as i64, sorted[rank(share)] as i64), "{share} {got}");
            }
            let mut steps: Vec<_> = values.windows(2).map(|w| w[1] as i64 - w[0] as i64).collect();
            steps.sort_unstable();
            if let [least, .., greatest] = steps[..] {
                let median = steps[(steps.len()).div_ceil(2) - 1];
                for (got, want) in got.ipdv_ns.into_iter().zip([least, median, greatest]) {
                    prop_assert!(near(got, want), "{:?} {want}", got);
                }
            }
        }
    }
}
