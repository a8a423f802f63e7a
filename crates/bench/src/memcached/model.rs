//! The curves and walls that the model of an open loop predicts from the costs of a profile, beside the measured ones.
//!
//! The rates, the time, the connections and the rule of the wall are those of the measurement. The costs are those of
//! `flowyard calibrate`; none was determined from a measurement of this command. The kernel's ways are modelled, and the
//! yard's are not: no cost of a yard between two interfaces is in a profile.
//!
//! Thread-safety: plain functions; runs of the model share nothing.

use anyhow::ensure;
use flowyard_frame::Nanos;
use flowyard_hostsim::Profile;
use flowyard_hostsim::closed::Steering;
use flowyard_hostsim::open::{Costs, Outcome, Setup, wall};
use flowyard_report::exhibit::{Between, End, Input};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Curve, Job, Way};
use crate::stats::median;

/// Runs of the model for each point; each draws other hashes and other times.
const SEEDS: u64 = 3;

/// What the model predicts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Model {
    /// The profile, in words.
    pub profile: String,
    /// What disturbed the measurement of the profile, in a sentence; null if nothing did.
    pub warning: Option<String>,
    /// Runs of the model for each point; values are their medians.
    pub runs: u64,
    /// The costs that the model read.
    pub inputs: Vec<Input>,
    /// By way.
    pub ways: Vec<Predicted>,
    /// Measured ways that are not modelled.
    pub not_modelled: Vec<Way>,
}

/// The prediction for one way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Predicted {
    /// The way.
    pub way: Way,
    /// The wall, by the rule and at the rates of the measurement; 0 if the lowest rate does not hold.
    pub wall_rps: f64,
    /// The wall with all costs at the lower ends of their intervals, at their medians, and at the upper ends.
    pub wall_between: Between,
    /// Whether a higher rate does not hold, at either end. If not, the wall may be higher.
    pub wall_found: bool,
    /// Whether the measured wall, from the least to the greatest of the rounds, and `wall_between` overlap. Where a wall was
    /// not found, it has no upper end.
    pub overlaps: bool,
    /// By offered rate, up to the second in a row that does not hold.
    pub points: Vec<PredictedPoint>,
}

/// One offered rate; ranges are as in `wall_between`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PredictedPoint {
    /// Requests per second that are due.
    pub offered_rps: f64,
    /// Answers per second.
    pub answered_rps: f64,
    /// Answers per second, as a range.
    pub answered_between: Between,
    /// Mean latency, from the time at which a request was due.
    pub mean_ns: f64,
    /// Mean latency, as a range.
    pub mean_between: Between,
    /// Median latency.
    pub p50_ns: f64,
    /// 99th percentile of the latency.
    pub p99_ns: f64,
    /// 99th percentile of the latency, as a range.
    pub p99_between: Between,
    /// Share of requests that were received on the CPU of the thread that serves them.
    pub local_share: f64,
    /// Busy share of the busier CPU.
    pub busy_share: f64,
    /// CPU time of a request on both CPUs.
    pub cost_ns: f64,
}

impl Way {
    /// How the kernel steers the requests; `None` for a yard.
    const fn steering(self) -> Option<Steering> {
        match self {
            Self::None => Some(Steering::None),
            Self::Rps => Some(Steering::Rps),
            Self::Rfs => Some(Steering::Rfs),
            _ => None,
        }
    }
}

/// The runs of one way with one set of costs: by rate, then by seed.
type Runs = Vec<Vec<Outcome>>;

fn runs(profile: &Profile, steering: Steering, job: &Job<'_>) -> anyhow::Result<Runs> {
    let costs = Costs::of(profile)?;
    let (connections, time) = (job.connections, job.time.as_nanos() as Nanos);
    let at = |rate: f64| {
        let run = |seed| Setup { costs, steering, connections, rate, seed, time }.run();
        (0..SEEDS).map(run).collect::<Vec<_>>()
    };
    let runs: Runs = job.rates.iter().copied().map(at).collect();
    let is_balanced = runs.iter().flatten().all(Outcome::is_balanced);
    ensure!(is_balanced, "the request counters of a simulation do not balance");
    Ok(runs)
}

/// The median of a value over the seeds.
fn of(runs: &[Outcome], value: impl Fn(&Outcome) -> f64) -> f64 {
    median(&mut runs.iter().map(value).collect::<Vec<_>>())
}

impl Predicted {
    /// From the runs with the costs themselves, and at the lower and the upper ends.
    fn of(way: Way, job: &Job<'_>, [own, low, high]: [&Runs; 3]) -> Self {
        let limit = job.limit.as_nanos() as Nanos;
        // Each seed is a round.
        let walls = |runs: &Runs| {
            let round = |seed: usize| {
                let held: Vec<bool> = runs.iter().map(|runs| runs[seed].holds(limit)).collect();
                wall(&job.rates, &held)
            };
            (0..SEEDS as usize).map(round).collect::<Vec<_>>()
        };
        let all = [own, low, high].map(walls);
        let median_wall = |rounds: &Vec<(Option<f64>, usize)>| {
            median(&mut rounds.iter().map(|(wall, _)| wall.unwrap_or(0.0)).collect::<Vec<_>>())
        };
        let walls = [&all[0], &all[1], &all[2]].map(median_wall);
        let count = all[0].iter().map(|(_, count)| *count).max().unwrap_or(0);
        let point = |(at, rate): (usize, &f64)| {
            let range = |value: fn(&Outcome) -> f64| {
                let values = [own, low, high].map(|runs| of(&runs[at], value));
                (values[0], Between::of(values))
            };
            let (answered_rps, answered_between) = range(|run| run.answered_rps);
            let (mean_ns, mean_between) = range(|run| run.mean_ns);
            let (p99_ns, p99_between) = range(|run| run.p99_ns as f64);
            PredictedPoint {
                offered_rps: *rate,
                answered_rps,
                answered_between,
                mean_ns,
                mean_between,
                p50_ns: of(&own[at], |run| run.p50_ns as f64),
                p99_ns,
                p99_between,
                local_share: of(&own[at], |run| run.local_share),
                busy_share: of(&own[at], |run| run.busy[0].max(run.busy[1])),
                cost_ns: of(&own[at], |run| {
                    run.busy.iter().sum::<f64>() * 1e9 / run.answered_rps.max(1.0)
                }),
            }
        };
        let last = job.rates.last().copied().unwrap_or(0.0);
        Self {
            way,
            wall_rps: walls[0],
            wall_between: Between::of(walls),
            wall_found: walls.iter().all(|wall| *wall < last),
            overlaps: false,
            points: job.rates[..count].iter().enumerate().map(point).collect(),
        }
    }

    /// Whether the measured wall overlaps the predicted one.
    fn overlaps(&self, measured: &Curve) -> bool {
        let end = |is_found: bool, end: f64| if is_found { end } else { f64::INFINITY };
        let (low, high) = (self.wall_between.low, end(self.wall_found, self.wall_between.high));
        let wall = measured.wall_rps;
        low <= end(measured.wall_found, wall.most) && wall.least <= high
    }
}

impl Model {
    /// Predicts what `job` measures, from the costs in `profile`.
    ///
    /// # Errors
    /// When the profile lacks a cost, or the counters of a run do not balance.
    pub fn predict(profile: &Profile, job: &Job<'_>) -> anyhow::Result<Self> {
        Costs::of(profile)?;
        let [low, high] = End::BOTH.map(|end| profile.clone().at(end));
        let profiles = [profile, &low, &high];
        let kernel = job.ways.iter().filter_map(|way| Some((*way, way.steering()?)));
        let ways = std::thread::scope(|scope| {
            let start = |(way, steering)| {
                let start = |profile| scope.spawn(move || runs(profile, steering, job));
                (way, profiles.map(start))
            };
            let threads: Vec<_> = kernel.map(start).collect();
            let mut ways = Vec::new();
            for (way, threads) in threads {
                let [own, low, high] = threads.map(|thread| {
                    thread.join().map_err(|_| anyhow::anyhow!("a thread of the model panicked"))?
                });
                ways.push(Predicted::of(way, job, [&own?, &low?, &high?]));
            }
            Ok::<_, anyhow::Error>(ways)
        })?;
        let names: Vec<&str> = Costs::names(profile).collect();
        Ok(Self {
            profile: profile.title.clone(),
            warning: profile.warning(),
            runs: SEEDS,
            inputs: profile.inputs(&names),
            ways,
            not_modelled: job.ways.iter().copied().filter(|way| way.steering().is_none()).collect(),
        })
    }

    /// This prediction beside what was measured.
    #[must_use]
    pub fn beside(mut self, measured: &[Curve]) -> Self {
        for own in &mut self.ways {
            own.overlaps = measured.iter().any(|curve| curve.way == own.way && own.overlaps(curve));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::steer::Spread;

    /// Costs of some processor; the interval of each is from 10 % below to 10 % above.
    const PROFILE: &str = include_str!("model/profile.toml");

    fn job(ways: Vec<Way>) -> Job<'static> {
        Job {
            program: Path::new(""),
            ways,
            rounds: 3,
            time: Duration::from_millis(40),
            rates: [20, 60, 90, 100, 110, 120, 130, 140, 150, 160, 180, 200, 400]
                .map(|thousand| f64::from(thousand) * 1e3)
                .to_vec(),
            limit: Duration::from_millis(2),
            connections: 120,
            keys: 500_000,
            sets: 1.0 / 31.0,
            date: "",
            build: "",
        }
    }

    fn curve(least: f64, most: f64, wall_found: bool) -> Curve {
        let wall_rps = Spread { median: least, least, most };
        let (requests, sets, answered) = (0, 0, 0);
        let (drops, points, walls_rps) = (Default::default(), Vec::new(), Vec::new());
        Curve {
            way: Way::None,
            wall_rps,
            walls_rps,
            wall_found,
            requests,
            sets,
            answered,
            drops,
            points,
        }
    }

    #[test]
    fn the_kernels_ways_have_a_wall_within_the_ends_of_the_costs() {
        let profile = Profile::parse("profile.toml", PROFILE).unwrap();
        let job = job(vec![Way::None, Way::YardAtr, Way::Rps]);
        let model = Model::predict(&profile, &job).unwrap();
        assert_eq!(model.not_modelled, [Way::YardAtr]);
        assert_eq!(model.ways.len(), 2);
        for way in &model.ways {
            let Between { low, high } = way.wall_between;
            assert!(low <= way.wall_rps && way.wall_rps <= high && way.wall_found, "{way:?}");
            assert!((20e3..400e3).contains(&way.wall_rps), "{way:?}");
            assert!(way.points.iter().any(|point| point.offered_rps == way.wall_rps));
            // Higher costs take longer.
            for point in &way.points {
                let range = point.mean_between;
                assert!(range.low < point.mean_ns && point.mean_ns < range.high, "{point:?}");
                assert!(point.p50_ns <= point.p99_ns, "{point:?}");
                let most = 2e9 / point.answered_rps; // of two CPUs
                assert!(5_000.0 < point.cost_ns && point.cost_ns <= most, "{point:?}");
            }
            assert!(way.points.is_sorted_by_key(|point| point.mean_ns as u64), "{way:?}");
        }
        // Interrupts cost RPS more than the cache misses that they save.
        assert!(model.ways[1].wall_rps < model.ways[0].wall_rps, "{:?}", model.ways);
        assert!(model.inputs.iter().any(|input| input.name.ends_with("memcached_keys_ns")));
        assert_eq!(model.inputs.len(), profile.constants.len(), "each cost is an input");
        let mut less = profile;
        less.constants.remove("fair_slice_ns");
        let why = Model::predict(&less, &job).unwrap_err().to_string();
        assert!(why.contains("'fair_slice_ns'"), "{why}");
    }

    #[test]
    fn walls_overlap_or_do_not() {
        let own = Predicted {
            way: Way::None,
            wall_rps: 50.0,
            wall_between: Between { low: 40.0, high: 60.0 },
            wall_found: true,
            overlaps: false,
            points: Vec::new(),
        };
        let overlaps = |least, most, is_found| own.overlaps(&curve(least, most, is_found));
        assert!(overlaps(60.0, 70.0, true) && overlaps(10.0, 40.0, true));
        assert!(!overlaps(61.0, 70.0, true) && !overlaps(10.0, 39.0, true));
        // A wall that was not found has no upper end.
        assert!(overlaps(10.0, 39.0, false) && !overlaps(61.0, 70.0, false));
        let open = Predicted { wall_found: false, ..own.clone() };
        assert!(open.overlaps(&curve(61.0, 70.0, true)));
        assert!(!open.overlaps(&curve(10.0, 39.0, true)));
    }
}
