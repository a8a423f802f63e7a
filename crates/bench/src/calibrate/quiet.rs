//! Whether the machine is quiet enough to be calibrated: what the hypervisor took, what other programs used, and whether
//! the processors changed their speed.
//!
//! ```text
//!  look ── 1 s ── look ─> refuse, or ─> look, round, look, round, ... look ─> refuse, or the profile
//! ```
//!
//! The speed of a processor is the time of a spin of known length, because a virtual machine has no cpufreq.
//!
//! Invariant: what is decided depends on the looks alone. Thread-safety: plain data.

use std::time::Duration;

use flowyard_yard::Clock;

use super::micro;
use crate::live::quiet::{QUIET, ticks_of_others};
use crate::machine::{self, STEAL};
use crate::stats::median;

/// The largest share of all CPU time that the hypervisor may take.
const MOST_STOLEN: f64 = 0.01;

/// The largest change of a processor's speed, as a share.
const MOST_CHANGE: f64 = 0.05;

/// Ticks that may be counted wrongly: a look can be just before or after a tick.
const DOUBT: u64 = 2;

/// The machine at one time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Look {
    /// Ticks of all processors since boot, as [`machine::ticks`].
    pub(super) ticks: [u64; 8],
    /// Ticks of other programs, and those that the hypervisor took.
    pub(super) others: u64,
    /// Nanoseconds of the spin, on each processor that measurements use.
    pub(super) spins: Vec<f64>,
}

impl Look {
    /// Looks at this machine.
    pub(super) fn now(clock: &Clock) -> anyhow::Result<Self> {
        let cpus = crate::processors().min(2);
        let spins = (0..cpus).map(|cpu| micro::spin(clock, cpu)).collect::<anyhow::Result<_>>()?;
        let ticks = machine::ticks();
        Ok(Self { ticks, others: ticks_of_others(&ticks), spins })
    }
}

/// The time of the first part, in which nothing is measured.
pub(super) const BEFORE: Duration = Duration::from_secs(1);

/// How far the speed of the processors was from its median: factors of the time of an operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Speeds {
    /// At the highest speed, at most 1.
    pub(super) fast: f64,
    /// At the lowest speed, at least 1.
    pub(super) slow: f64,
}

impl Speeds {
    /// Those of each processor in `looks`.
    fn of(looks: &[Look]) -> impl Iterator<Item = Self> {
        let cpus = looks.first().map_or(0, |look| look.spins.len());
        (0..cpus).map(|cpu| {
            let mut spins: Vec<f64> =
                looks.iter().filter_map(|look| look.spins.get(cpu)).copied().collect();
            let middle = median(&mut spins);
            let least = spins.iter().copied().fold(f64::MAX, f64::min);
            let most = spins.iter().copied().fold(0.0, f64::max);
            Self { fast: least / middle, slow: most / middle }
        })
    }

    /// The change between both, as a share.
    fn change(&self) -> f64 {
        self.slow / self.fast - 1.0
    }
}

/// The speeds of that processor whose speed changed most; `None` if no speed changed by more than what is allowed.
pub(super) fn speeds(looks: &[Look]) -> Option<Speeds> {
    let most = Speeds::of(looks).max_by(|a, b| a.change().total_cmp(&b.change()))?;
    (most.change() > MOST_CHANGE).then_some(most)
}

/// What disturbed the time of `looks`, one sentence each.
pub(super) fn disturbances(looks: &[Look]) -> Vec<String> {
    let [Some(first), Some(last)] = [looks.first(), looks.last()] else { return Vec::new() };
    let all: u64 = last.ticks.iter().sum::<u64>().saturating_sub(first.ticks.iter().sum());
    let share = |ticks: u64| ticks.saturating_sub(DOUBT) as f64 / (all as f64).max(1.0);
    let stolen = last.ticks[STEAL].saturating_sub(first.ticks[STEAL]);
    // Those of others include the stolen ones.
    let others = last.others.saturating_sub(first.others).saturating_sub(stolen);
    let (stolen, others) = (share(stolen), share(others));
    let mut found = Vec::new();
    let percent = |share: f64| 100.0 * share;
    if stolen > MOST_STOLEN {
        let (is, most) = (percent(stolen), percent(MOST_STOLEN));
        found.push(format!("the hypervisor took {is:.1} % of the time (at most {most:.0} %)"));
    }
    if others > QUIET {
        let (is, most) = (percent(others), percent(QUIET));
        found
            .push(format!("other programs used {is:.1} % of the processors (at most {most:.0} %)"));
    }
    for (cpu, speeds) in Speeds::of(looks).enumerate() {
        if speeds.change() > MOST_CHANGE {
            let (is, most) = (percent(speeds.change()), percent(MOST_CHANGE));
            found
                .push(format!("the speed of CPU {cpu} changed by {is:.0} % (at most {most:.0} %)"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of two processors, of which others used and the hypervisor took these ticks of 10 ms.
    fn second(others: u64, stolen: u64, spins: [&[f64]; 2]) -> Vec<String> {
        let look = |n: u64, spins: &[f64]| Look {
            ticks: [1000, 0, 0, 5000 + n * (200 - stolen), 0, 0, 0, 70 + n * stolen],
            others: 400 + n * (others + stolen),
            spins: spins.to_vec(),
        };
        disturbances(&[look(0, spins[0]), look(1, spins[1])])
    }

    const EVEN: [&[f64]; 2] = [&[100.0, 100.0], &[103.0, 98.0]];

    #[test]
    fn a_quiet_machine_is_quiet() {
        assert_eq!(second(0, 0, EVEN), [""; 0]);
        // 5 % and 1 % of 200 ticks, and two that may be counted wrongly.
        assert_eq!(second(12, 4, EVEN), [""; 0]);
        assert_eq!(disturbances(&[]), [""; 0]);
    }

    #[test]
    fn each_disturbance_is_named_with_its_size() {
        assert_eq!(second(0, 5, EVEN), ["the hypervisor took 1.5 % of the time (at most 1 %)"]);
        assert_eq!(
            second(100, 0, EVEN),
            ["other programs used 49.0 % of the processors (at most 5 %)"]
        );
        let slower = second(0, 0, [&[100.0, 100.0], &[100.0, 130.0]]);
        assert_eq!(slower, ["the speed of CPU 1 changed by 30 % (at most 5 %)"]);
        assert_eq!(second(13, 5, [&[100.0], &[80.0]]).len(), 3);
    }

    #[test]
    fn speeds_are_those_of_the_processor_that_changed_most() {
        let look = |a: f64, b: f64| Look { ticks: [0; 8], others: 0, spins: vec![a, b] };
        let looks = [look(100.0, 100.0), look(110.0, 80.0), look(100.0, 200.0), look(99.0, 100.0)];
        assert_eq!(speeds(&looks), Some(Speeds { fast: 0.8, slow: 2.0 }));
        assert_eq!(speeds(&[look(100.0, 100.0), look(104.0, 100.0)]), None);
        assert_eq!(speeds(&[]), None);
    }

    /// A slow minute between two fast ones is found, too.
    #[test]
    fn every_look_counts_for_the_speed() {
        let look = |spin: f64| Look { ticks: [0; 8], others: 0, spins: vec![spin] };
        assert_eq!(disturbances(&[look(100.0), look(104.0), look(100.0)]), [""; 0]);
        let found = disturbances(&[look(100.0), look(120.0), look(100.0)]);
        assert_eq!(found, ["the speed of CPU 0 changed by 20 % (at most 5 %)"]);
    }
}
