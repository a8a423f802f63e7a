//! What a yard saves when it delivers requests on the CPU of the thread that serves them: each way with the learner `atr` beside
//! the same way by hash, round by round, and what the costs of this machine predict.
//!
//! ```text
//!  predicted for a request = (share local with atr - share local by hash) * (cost on another CPU - cost on the same CPU)
//! ```
//!
//! The cost is that of the send that carries the request through the server's stack, and of the read of the request. If the
//! thread sleeps and its CPU is idle, the interrupt that wakes that CPU is added: that is the upper end, and a thread that is
//! awake is the lower one. Other costs of a request, which are most of them, do not depend on the CPU.
//!
//! Thread-safety: plain functions and values.

use flowyard_hostsim::{Profile, ProfileError};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Results, Sample, Sweep, Way};
use crate::steer::Spread;

/// A way with the learner `atr` beside the same way by hash.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Locality {
    /// The way by hash.
    pub by_hash: Way,
    /// The way with `atr`.
    pub by_atr: Way,
    /// By offered rate, where the load held in every round of both.
    pub points: Vec<LocalityPoint>,
}

/// The differences at one rate: positive if `atr` is better.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct LocalityPoint {
    /// Requests per second that were due.
    pub offered_rps: f64,
    /// CPU time of a request on the server's side that `atr` saves: the differences of the rounds.
    pub cpu_saved_ns: Spread,
    /// Mean latency that `atr` saves: the differences of the rounds.
    pub latency_saved_ns: Spread,
    /// CPU time that `atr` saves of what a request costs by hash.
    pub cpu_saved_share: f64,
    /// Share of the requests that `atr` delivers on the CPU of their thread, less the share by hash.
    pub local_share: f64,
    /// CPU time that `atr` saves as predicted, while the thread of the request is awake, and while it sleeps and its CPU is
    /// idle; null without a profile.
    pub predicted_cpu_saved_ns: Option<[f64; 2]>,
}

/// The pairs that are compared.
const PAIRS: [(Way, Way); 2] = [(Way::YardHash, Way::YardAtr), (Way::TapHash, Way::TapAtr)];

/// The differences of all pairs that were measured.
pub(super) fn all(ways: &[Way], rates: &[f64], sweeps: &[Vec<Sweep>]) -> Vec<Locality> {
    let of = |way| ways.iter().position(|one| *one == way).map(|at| &sweeps[at]);
    let pair = |&(by_hash, by_atr): &(Way, Way)| {
        let (hash, atr) = (of(by_hash)?, of(by_atr)?);
        let point = |(at, rate)| point(at, rate, hash, atr);
        let points = rates.iter().copied().enumerate().filter_map(point).collect();
        Some(Locality { by_hash, by_atr, points })
    };
    PAIRS.iter().filter_map(pair).collect()
}

fn point(at: usize, offered_rps: f64, hash: &[Sweep], atr: &[Sweep]) -> Option<LocalityPoint> {
    let held = |sweep: &Sweep| sweep.samples.get(at).is_some_and(|sample| sample.holds);
    if hash.is_empty() || !hash.iter().chain(atr).all(held) {
        return None;
    }
    let differences = |of: fn(&Sample) -> f64| {
        let pairs = hash.iter().zip(atr);
        Spread::of(pairs.map(|(hash, atr)| of(&hash.samples[at]) - of(&atr.samples[at])).collect())
    };
    let cpu_saved_ns = differences(server_ns);
    let by_hash = Spread::of(hash.iter().map(|sweep| server_ns(&sweep.samples[at])).collect());
    Some(LocalityPoint {
        offered_rps,
        cpu_saved_ns,
        latency_saved_ns: differences(|one| one.latency.mean_ns),
        cpu_saved_share: cpu_saved_ns.median / by_hash.median.max(1.0),
        local_share: -differences(|one| one.local_share).median,
        predicted_cpu_saved_ns: None,
    })
}

fn server_ns(sample: &Sample) -> f64 {
    sample.used.server() as f64 / (sample.requests as f64).max(1.0)
}

/// What a request costs less on the CPU of its thread than on another one, while the thread is awake, and while it sleeps and
/// its CPU is idle.
fn remote_ns(profile: &Profile) -> Result<[f64; 2], ProfileError> {
    let more = |far: &str, near: &str| Ok(profile.get(far)? - profile.get(near)?);
    let awake =
        more("tcp_far_ask_ns", "tcp_near_ask_ns")? + more("tcp_far_read_ns", "tcp_near_read_ns")?;
    Ok([awake, awake + profile.get("idle_wake_ns")?])
}

impl Results {
    /// These results with the savings by locality that the costs in `profile` predict.
    ///
    /// # Errors
    /// When the profile lacks a cost.
    pub fn with_predicted_locality(mut self, profile: &Profile) -> Result<Self, ProfileError> {
        let remote = remote_ns(profile)?;
        for point in self.locality.iter_mut().flat_map(|locality| &mut locality.points) {
            point.predicted_cpu_saved_ns = Some(remote.map(|ns| ns * point.local_share));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::cpu::Used;
    use super::*;
    use crate::load::Tally;

    /// Rounds of one rate: each with the CPU time of 100 requests, and how many of them were local.
    fn sweeps(rounds: &[(u64, u64)], holds: bool) -> Vec<Sweep> {
        let sweep = |&(ns, local): &(u64, u64)| {
            let mut tally = Tally { answers: 100, due: 100, requests: 100, ..Tally::default() };
            (tally.local, tally.checked) = (local, 100);
            tally.latency.record(ns, 1);
            let used = Used { memcached: 60 * ns, yard: 40 * ns, ..Used::default() };
            let limit = Duration::from_secs(u64::from(holds));
            Sweep { samples: vec![Sample::of(&tally, used, limit)], drops: Default::default() }
        };
        rounds.iter().map(sweep).collect()
    }

    #[test]
    fn rounds_are_subtracted_one_by_one() {
        // The machine is slower in the second round.
        let hash = sweeps(&[(15_000, 50), (30_000, 50), (15_000, 50)], true);
        let atr = sweeps(&[(14_000, 100), (28_000, 100), (14_400, 100)], true);
        let ways = [Way::TapHash, Way::YardAtr, Way::YardHash];
        let all = all(&ways, &[40e3], &[vec![], atr, hash]);
        assert_eq!(all.len(), 1, "TapAtr was not measured");
        let point = &all[0].points[0];
        assert_eq!((point.offered_rps, point.local_share), (40e3, 0.5));
        let Spread { median, least, most } = point.cpu_saved_ns;
        assert_eq!((median, least, most), (1000.0, 600.0, 2000.0));
        assert!((point.cpu_saved_share - 1.0 / 15.0).abs() < 1e-9);
        assert!((point.latency_saved_ns.median / 1000.0 - 1.0).abs() < 0.02, "{point:?}");
    }

    #[test]
    fn a_rate_that_did_not_hold_in_every_round_is_left_out() {
        let (hash, atr) = (sweeps(&[(10, 0)], true), sweeps(&[(10, 0)], false));
        assert!(point(0, 1.0, &hash, &atr).is_none() && point(0, 1.0, &hash, &hash).is_some());
        assert!(point(1, 1.0, &hash, &hash).is_none() && point(0, 1.0, &[], &[]).is_none());
    }

    #[test]
    fn the_prediction_is_the_difference_of_costs() {
        let profile = Profile::parse("p", include_str!("model/profile.toml")).unwrap();
        let [awake, asleep] = remote_ns(&profile).unwrap();
        let changed = profile.clone().times("tcp_near_ask_ns", 0.0).times("tcp_near_read_ns", 0.0);
        let costs = ["tcp_far_ask_ns", "tcp_far_read_ns"].map(|name| profile.get(name).unwrap());
        assert_eq!(remote_ns(&changed).unwrap()[0], costs[0] + costs[1]);
        assert!(0.0 < awake && awake < asleep, "{awake} {asleep}");
    }
}
