//! The CPUs of this machine.

use std::collections::BTreeMap;

/// The CPUs that are online, in ascending order.
///
/// # Errors
/// When `/sys` does not list them.
pub fn online_cpus() -> std::io::Result<Vec<u32>> {
    aya::util::online_cpus().map_err(|(_, error)| error)
}

/// The time of a CPU since the machine was started, in ticks of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// The share of the time since `before` in which the CPU was not idle; `None` if no tick has passed.
    pub(crate) fn busy_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|&all| all > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(all);
        Some(1.0 - idle as f64 / all as f64)
    }
}

/// The ticks of each CPU that is online.
pub(crate) fn ticks() -> std::io::Result<BTreeMap<u32, Ticks>> {
    Ok(read(&std::fs::read_to_string("/proc/stat")?))
}

/// Lines such as `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`; guests count as user, too.
fn read(stat: &str) -> BTreeMap<u32, Ticks> {
    let cpu = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let number = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        Some((number, Ticks { idle, all: ticks.iter().sum() }))
    };
    stat.lines().filter_map(cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_share_is_what_is_not_idle() {
        let before =
            read("cpu  9 9 9 9\ncpu0 1 2 3 100 10 4 5 6 1 0\ncpu12 0 0 0 7 0 0 0 0 0 0\nintr 5\n");
        assert_eq!(before.keys().copied().collect::<Vec<_>>(), [0, 12]);
        let after = read("cpu0 11 12 23 140 20 4 5 16 1 0\ncpu12 0 0 0 7 0 0 0 0 0 0\n");
        // 10 user, 10 nice, 20 system and 10 stolen, against 40 idle and 10 waiting for a disk.
        assert_eq!(after[&0].busy_since(before[&0]), Some(0.5));
        assert_eq!(after[&12].busy_since(before[&12]), None);
    }
}
