//! Processor time of a measurement, by process.
//!
//! The kernel counts softirq time for the program that it interrupts, unless it was built to tell them apart
//! (CONFIG_IRQ_TIME_ACCOUNTING), and a veth receives in the context of the program that sends. So the time of a process
//! contains network work for the other end: without steering, the generator's contains the server's receive path. What
//! compares ways is therefore the sum. Softirq that interrupts other programs is missing from it.
//!
//! Thread-safety: plain values.

use std::fs;

use schemars::JsonSchema;
use serde::Serialize;

use rustix::time::{ClockId, clock_gettime};

use crate::machine;
use crate::steer::Spread;

/// Nanoseconds of a tick of `/proc/stat`: USER_HZ is 100 on all architectures that flowyard runs on.
const TICK_NS: u64 = 10_000_000;

/// Processor time of one measurement, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Used {
    pub(super) generator: u64,
    pub(super) memcached: u64,
    pub(super) yard: u64,
    /// Of the kernel's softirq threads, for all programs.
    pub(super) softirq: u64,
    /// Of the whole machine: all that was not idle, and what the hypervisor took.
    pub(super) busy: u64,
    /// Of the whole machine, with idle time.
    pub(super) all: u64,
}

/// The processes of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    memcached: u32,
    yard: Option<u32>,
    softirq: Vec<u32>,
}

impl Meter {
    pub(super) fn new(memcached: u32, yard: Option<u32>) -> Self {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let number = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_softirq = |process: &u32| {
            fs::read_to_string(format!("/proc/{process}/comm"))
                .is_ok_and(|name| name.starts_with("ksoftirqd/"))
        };
        Self { memcached, yard, softirq: number.filter(is_softirq).collect() }
    }

    /// The time until now.
    pub(super) fn read(&self) -> Used {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let ticks = machine::ticks();
        let all: u64 = ticks.iter().sum();
        // Where /proc/stat has the time of idle processors, with and without a request to a disk.
        let idle: u64 = [3, 4].map(|at| ticks[at]).iter().sum();
        Used {
            generator: own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64,
            memcached: of_process(self.memcached),
            yard: self.yard.map_or(0, of_process),
            softirq: self.softirq.iter().copied().map(of_process).sum(),
            busy: (all - idle) * TICK_NS,
            all: all * TICK_NS,
        }
    }
}

/// The time of the threads of a process that have not ended.
fn of_process(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let time = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.filter_map(time).sum()
}

impl Used {
    pub(super) fn since(self, before: Self) -> Self {
        let of = |get: fn(&Self) -> u64| get(&self).saturating_sub(get(&before));
        Self {
            generator: of(|used| used.generator),
            memcached: of(|used| used.memcached),
            yard: of(|used| used.yard),
            softirq: of(|used| used.softirq),
            busy: of(|used| used.busy),
            all: of(|used| used.all),
        }
    }

    /// Of the server, and of what is in front of it.
    pub(super) const fn server(&self) -> u64 {
        self.memcached + self.yard + self.softirq
    }

    /// The share of all processor time that other programs, or other guests of the hypervisor, used.
    pub(super) fn others(self) -> f64 {
        let ours = self.generator + self.server();
        self.busy.saturating_sub(ours) as f64 / (self.all as f64).max(1.0)
    }
}

/// Processor time of a request, in nanoseconds: medians of the rounds, with extremes. The time of a process contains the
/// network work that the kernel did in its context, also for the other host.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Cost {
    /// The generator, memcached, the yard, and the kernel's softirq threads.
    pub all_ns: Spread,
    /// The same without the generator.
    pub server_ns: Spread,
    /// memcached's process.
    pub memcached_ns: Spread,
    /// The yard's process; 0 without a yard.
    pub yard_ns: Spread,
    /// The kernel's softirq threads (ksoftirqd).
    pub softirq_ns: Spread,
}

impl Cost {
    /// The cost of measurements with their numbers of requests.
    pub(super) fn of(all: &[(Used, u64)]) -> Self {
        let spread = |get: fn(&Used) -> u64| {
            let per =
                |(used, requests): &(Used, u64)| get(used) as f64 / (*requests as f64).max(1.0);
            Spread::of(all.iter().map(per).collect())
        };
        Self {
            all_ns: spread(|used| used.generator + used.server()),
            server_ns: spread(Used::server),
            memcached_ns: spread(|used| used.memcached),
            yard_ns: spread(|used| used.yard),
            softirq_ns: spread(|used| used.softirq),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_divided_by_requests_and_the_rest_is_of_others() {
        let before = Used { busy: 1000, all: 3000, generator: 50, ..Used::default() };
        let after = Used { busy: 1800, all: 4000, generator: 350, memcached: 200, ..before };
        let used = after.since(before);
        let cost = Cost::of(&[(used, 10), (used, 5)]);
        assert_eq!((cost.all_ns.least, cost.all_ns.most), (50.0, 100.0));
        assert_eq!((cost.server_ns.least, cost.memcached_ns.most), (20.0, 40.0));
        // 800 busy, 500 of them ours, of 1000.
        assert!((used.others() - 0.3).abs() < 1e-9);
        assert_eq!(Cost::of(&[]), Cost::default());
    }

    #[test]
    fn this_process_uses_time_of_the_machine() {
        let meter = Meter::new(std::process::id(), None);
        let before = meter.read();
        let mut sum = 0_u64;
        while meter.read().since(before).generator < 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        let used = meter.read().since(before);
        assert!(used.memcached > 0 && used.yard == 0, "{used:?}");
    }
}
