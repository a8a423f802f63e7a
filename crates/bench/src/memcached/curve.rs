//! The rounds of one way as a curve over the offered rate, and its wall.

use std::collections::BTreeMap;
use std::time::Duration;

use flowyard_rfc2544::latency::Latency;
use schemars::JsonSchema;
use serde::Serialize;

use super::cpu::Cost;
use super::{Sample, Sweep, Way};
use crate::steer::Spread;

/// One way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Curve {
    /// The way.
    pub way: Way,
    /// The wall: the highest offered rate that held, in requests per second; 0 if the lowest did not.
    pub wall_rps: Spread,
    /// The wall of each round.
    pub walls_rps: Vec<f64>,
    /// Whether in every round a higher rate did not hold. If not, the wall may be higher.
    pub wall_found: bool,
    /// All requests of all rounds.
    pub requests: u64,
    /// Those of them that store a value.
    pub sets: u64,
    /// Those that got their answer, which had the right bytes; all of them, or the measurement fails.
    pub answered: u64,
    /// Frames that the yard dropped in all rounds, by reason. TCP sent them again.
    pub drops: BTreeMap<String, u64>,
    /// By offered rate. A round ends when two rates in a row do not hold, so the last points have fewer rounds.
    pub points: Vec<Point>,
}

/// One offered rate; each value is the median of the rounds, with extremes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Point {
    /// Requests per second that were due.
    pub offered_rps: f64,
    /// Number of rounds that measured it.
    pub rounds: usize,
    /// Number of these in which the load held.
    pub held: usize,
    /// Answers per second.
    pub answered_rps: Spread,
    /// Mean latency, from the time at which a request was due.
    pub mean_ns: Spread,
    /// Median latency.
    pub p50_ns: Spread,
    /// 99th percentile of the latency.
    pub p99_ns: Spread,
    /// 99.9th percentile of the latency.
    pub p999_ns: Spread,
    /// 99th percentile of the time from when a request was due until the generator sent it; part of the latency.
    pub sent_late_p99_ns: Spread,
    /// Share of requests whose last segment was received on the CPU of the thread that serves them.
    pub local_share: Spread,
    /// Processor time of a request.
    pub cost: Cost,
}

impl Curve {
    pub(super) fn of(way: Way, rates: &[f64], sweeps: &[Sweep], time: Duration) -> Self {
        let held = |sweep: &Sweep| sweep.samples.iter().rposition(|one| one.holds);
        let wall = |sweep| held(sweep).map_or(0.0, |last| rates[last]);
        let sum = |of: fn(&Sample) -> u64| {
            sweeps.iter().flat_map(|sweep| &sweep.samples).map(of).sum::<u64>()
        };
        let mut drops = BTreeMap::new();
        for (why, count) in sweeps.iter().flat_map(|sweep| &sweep.drops) {
            *drops.entry(why.clone()).or_default() += count;
        }
        let points = rates.iter().enumerate().filter_map(|(at, rate)| {
            let samples: Vec<_> = sweeps.iter().filter_map(|sweep| sweep.samples.get(at)).collect();
            (!samples.is_empty()).then(|| Point::of(*rate, &samples, time))
        });
        Self {
            way,
            wall_rps: Spread::of(sweeps.iter().map(wall).collect()),
            walls_rps: sweeps.iter().map(wall).collect(),
            wall_found: sweeps.iter().all(|sweep| held(sweep) != rates.len().checked_sub(1)),
            requests: sum(|one| one.requests),
            sets: sum(|one| one.sets),
            answered: sum(|one| one.answered),
            drops,
            points: points.collect(),
        }
    }
}

impl Point {
    fn of(offered_rps: f64, samples: &[&Sample], time: Duration) -> Self {
        let spread =
            |of: &dyn Fn(&Sample) -> f64| Spread::of(samples.iter().map(|one| of(one)).collect());
        let ns = |of: fn(&Latency) -> u64| spread(&|one| of(&one.latency) as f64);
        let costs: Vec<_> = samples.iter().map(|one| (one.used, one.requests)).collect();
        Self {
            offered_rps,
            rounds: samples.len(),
            held: samples.iter().filter(|one| one.holds).count(),
            answered_rps: spread(&|one| one.answers as f64 / time.as_secs_f64()),
            mean_ns: spread(&|one| one.latency.mean_ns),
            p50_ns: ns(|one| one.p50_ns),
            p99_ns: ns(|one| one.p99_ns),
            p999_ns: ns(|one| one.p999_ns),
            sent_late_p99_ns: spread(&|one| one.sent_late_p99_ns as f64),
            local_share: spread(&|one| one.local_share),
            cost: Cost::of(&costs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Tally;
    use crate::memcached::cpu::Used;

    /// A sample with latencies of 1 to 100 us, in equal numbers, which holds up to the limit.
    fn sample(answers: u64, holds: bool) -> Sample {
        let mut tally = Tally { answers, requests: 100, answered: 100, ..Tally::default() };
        (1..=100).for_each(|us| tally.latency.record(us * 1000, 1));
        let limit = Duration::from_micros(if holds { 51 } else { 50 });
        let sample = Sample::of(&tally, Used::default(), limit);
        assert_eq!(sample.holds, holds);
        sample
    }

    fn sweep(holds: &[bool]) -> Sweep {
        let samples = (1..).zip(holds).map(|(n, holds)| sample(100 * n, *holds)).collect();
        Sweep { samples, drops: BTreeMap::from([("overrun".into(), 2)]) }
    }

    #[test]
    fn the_wall_is_the_highest_rate_that_held() {
        let rates = [10.0, 20.0, 30.0];
        let sweeps = [sweep(&[true, false]), sweep(&[false, true, false]), sweep(&[false, false])];
        let curve = Curve::of(Way::None, &rates, &sweeps, Duration::from_secs(1));
        assert_eq!(curve.wall_rps, Spread { median: 10.0, least: 0.0, most: 20.0 });
        assert!(curve.wall_found);
        let rounds: Vec<_> = curve.points.iter().map(|point| (point.rounds, point.held)).collect();
        assert_eq!(rounds, [(3, 1), (3, 1), (1, 0)]);
        assert_eq!((curve.requests, curve.answered, curve.drops["overrun"]), (700, 700, 6));
        let all = Curve::of(Way::None, &rates, &[sweep(&[true; 3])], Duration::from_secs(1));
        assert!(!all.wall_found && all.wall_rps.median == 30.0);
    }

    #[test]
    fn a_load_with_late_answers_does_not_hold() {
        let limit = Duration::from_secs(1);
        let of = |answers| {
            let tally = Tally { answers, due: 1000, requests: 1000, ..Tally::default() };
            Sample::of(&tally, Used::default(), limit).holds
        };
        assert!(of(950) && !of(949));
    }

    #[test]
    fn percentiles_are_those_of_the_histogram() {
        let sweeps = [sweep(&[true])];
        let curve = Curve::of(Way::Rps, &[5.0], &sweeps, Duration::from_millis(500));
        let point = &curve.points[0];
        // Three significant digits.
        let near = |spread: Spread, us: f64| (spread.median / us / 1000.0 - 1.0).abs() < 2e-3;
        assert!(near(point.p50_ns, 50.0) && near(point.p99_ns, 99.0), "{point:?}");
        assert!(near(point.p999_ns, 100.0) && near(point.mean_ns, 50.5), "{point:?}");
        assert_eq!(point.answered_rps.median, 200.0);
    }
}
