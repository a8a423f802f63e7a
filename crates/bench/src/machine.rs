//! The machine that a run is made on: its CPU, kernel and load, and what disturbed the run.

use flowyard_report::exhibit::Conditions;
use flowyard_rfc2544::document::Machine;
use flowyard_rfc2544::suite::Results;

/// Where [`ticks`] has the time that the hypervisor took.
pub(crate) const STEAL: usize = 7;

/// Counters of the machine at the start of a run.
#[derive(Clone, Debug)]
pub struct Before {
    load: String,
    ticks: [u64; 8],
    backlog_drops: u64,
}

impl Before {
    /// Reads the counters now.
    #[must_use]
    pub fn read() -> Self {
        Self { load: file("/proc/loadavg"), ticks: ticks(), backlog_drops: backlog_drops() }
    }

    /// This machine, with the CPU time that the hypervisor took since then.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let cpuinfo = file("/proc/cpuinfo");
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Machine {
            processor: model.unwrap_or("unknown").to_owned(),
            processors: crate::processors(),
            kernel: file("/proc/sys/kernel/osrelease"),
            load: self.load.clone(),
            steal_ticks: ticks()[STEAL].saturating_sub(self.ticks[STEAL]),
        }
    }

    /// This machine, with the share of processor time that the hypervisor took since then. Rounds are 0.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        let Machine { processor, processors, kernel, load, steal_ticks } = self.machine();
        let all: u64 = ticks().iter().sum();
        let all = all.saturating_sub(self.ticks.iter().sum());
        Conditions {
            processor,
            processors,
            kernel,
            load,
            stolen_share: steal_ticks as f64 / (all as f64).max(1.0),
            rounds: 0,
            quiet_rounds: 0,
            others_share: 0.0,
        }
    }

    /// Drops that the device counted itself, and those that the kernel's receive backlogs counted since
    /// then. On a veth these backlogs are the rings of the device and of the tester.
    #[must_use]
    pub fn drops(&self, results: &Results) -> Vec<(String, u64)> {
        let mut drops = results.drops.clone();
        let lost = backlog_drops().saturating_sub(self.backlog_drops);
        if lost > 0 {
            drops.push(("receive backlogs of the whole machine (softnet)".into(), lost));
        }
        drops
    }
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Frames that the kernel's receive backlogs have dropped since boot.
fn backlog_drops() -> u64 {
    let table = file("/proc/net/softnet_stat");
    let second = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    table.lines().filter_map(second).sum()
}

/// The time of all processors since boot, in ticks: user, nice, system, idle, iowait, irq, softirq, steal (proc(5)).
/// Guest time, which follows them, is part of user time.
pub(crate) fn ticks() -> [u64; 8] {
    let stat = file("/proc/stat");
    let mut words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    std::array::from_fn(|_| words.next().and_then(|word| word.parse().ok()).unwrap_or_default())
}
