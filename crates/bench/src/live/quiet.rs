//! How much other programs disturbed a measurement.

use std::fs;

use flowyard_report::exhibit::Conditions;

use crate::machine::{self, Before};

/// Measures the share of all CPU time that other programs, or other guests of the hypervisor, use during a
/// measurement, by the kernel's ticks.
pub(crate) struct Others {
    server: Option<u32>,
    from: [u64; 2],
}

impl Others {
    /// Starts counting. The process `server` belongs to the measurement, as this process does.
    pub(crate) fn from(server: Option<u32>) -> Self {
        Self { server, from: Self::ticks(server) }
    }

    /// Ticks that others used, and ticks of all CPUs.
    fn ticks(server: Option<u32>) -> [u64; 2] {
        let server = server.map_or(0, |process| used(&format!("/proc/{process}/stat"), 2));
        let all = machine::ticks();
        [of_others(&all, used("/proc/self/stat", 2) + server), all.iter().sum()]
    }

    /// The share since the start.
    pub(crate) fn share(&self) -> f64 {
        let to = Self::ticks(self.server);
        let [work, all] = [0, 1].map(|n| to[n].saturating_sub(self.from[n]) as f64);
        work / all.max(1.0)
    }
}

/// The processor time of the process with this `stat` file, in ticks: the first `words` of its user and system time, and
/// of those of its children that have ended.
fn used(stat: &str, words: usize) -> u64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    // The name in parentheses may contain anything. Words 12 and 13 after it are the user and system time, the next
    // two those of the children.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let times = rest.split_whitespace().skip(11).take(words);
    times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Of `all` ticks, those in which processors worked for others, or for other guests of the hypervisor.
fn of_others(all: &[u64; 8], ours: u64) -> u64 {
    let [user, nice, system, ..] = all;
    (user + nice + system).saturating_sub(ours) + all[machine::STEAL]
}

/// Of `all` ticks, those of others: not of this process, and not of its children that have ended.
pub(crate) fn ticks_of_others(all: &[u64; 8]) -> u64 {
    of_others(all, used("/proc/self/stat", 4))
}

/// Repeats a measurement until `wanted` rounds were quiet, but no more than three times as often.
pub(crate) struct Rounds {
    wanted: usize,
    all: usize,
    quiet: usize,
    most: f64,
}

/// A round is quiet if other programs used no more than this share of all CPU time.
pub(crate) const QUIET: f64 = 0.05;

impl Rounds {
    pub(crate) const fn new(wanted: usize) -> Self {
        Self { wanted, all: 0, quiet: 0, most: 0.0 }
    }

    /// Whether another round is needed.
    pub(crate) const fn go_on(&self) -> bool {
        self.quiet < self.wanted && self.all < 3 * self.wanted
    }

    /// The number of quiet rounds, and the largest share of all CPU time that others used in a round.
    pub(crate) const fn quiet(&self) -> (usize, f64) {
        (self.quiet, self.most)
    }

    /// Counts a round in which other programs used this share of all CPU time.
    pub(crate) fn add(&mut self, others: f64) {
        self.all += 1;
        self.quiet += usize::from(others <= QUIET);
        self.most = self.most.max(others);
    }

    /// The rounds of both together.
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            wanted: self.wanted + other.wanted,
            all: self.all + other.all,
            quiet: self.quiet + other.quiet,
            most: self.most.max(other.most),
        }
    }

    /// The machine during these rounds, which began at `before`.
    pub(crate) fn conditions(&self, before: &Before) -> Conditions {
        let (rounds, quiet_rounds, others_share) = (self.all, self.quiet, self.most);
        Conditions { rounds, quiet_rounds, others_share, ..before.conditions() }
    }

    /// A warning for the report if no round was quiet.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        (self.quiet == 0 && self.all > 0)
            .then_some("The measured rates are too low, because other programs ran in every round.")
    }
}
