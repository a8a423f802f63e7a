//! Which entries of a table move where, so that the queues have nearly the same load: as few as it takes.

/// A load that is to be spread.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The packets of each entry.
    pub entries: &'a [u64],
    /// The queues that entries may name, and of each the packets that no entry decides.
    pub fixed: &'a [(u32, u64)],
}

impl Load<'_> {
    /// The load of each queue of `fixed` under `table`. What goes to other queues is not counted.
    fn sums(&self, table: &[u32]) -> Vec<u64> {
        let mut sums: Vec<_> = self.fixed.iter().map(|(_, load)| *load).collect();
        for (queue, load) in table.iter().zip(self.entries) {
            if let Some(at) = self.at(*queue) {
                sums[at] += load;
            }
        }
        sums
    }

    /// The load of the busiest queue under `table`.
    #[must_use]
    pub fn most(&self, table: &[u32]) -> u64 {
        self.sums(table).into_iter().max().unwrap_or(0)
    }

    /// The place of a queue in `fixed`.
    fn at(&self, queue: u32) -> Option<usize> {
        self.fixed.iter().position(|(of, _)| *of == queue)
    }

    /// The mean load of a queue.
    pub(super) fn mean(&self, table: &[u32]) -> f64 {
        self.sums(table).iter().sum::<u64>() as f64 / self.fixed.len().max(1) as f64
    }
}

/// The largest load of a queue in relation to the mean: 1 is even. `None` without packets.
#[must_use]
pub fn ratio(table: &[u32], load: Load<'_>) -> Option<f64> {
    let sums = load.sums(table);
    let (all, most) = (sums.iter().sum::<u64>(), sums.iter().max()?);
    (all > 0).then(|| *most as f64 * sums.len() as f64 / all as f64)
}

/// Moves entries for which `may` holds from the busiest queue to the least busy one, until no queue has more than `enough`
/// or no move lowers the larger of the two loads. A queue that cannot be lowered is left as it is, and the next one is
/// looked at. Returns the number of entries that moved.
pub fn level(table: &mut [u32], load: Load<'_>, enough: u64, may: impl Fn(usize) -> bool) -> usize {
    let before = table.to_vec();
    let mut sums = load.sums(table);
    let mut open = vec![true; sums.len()];
    for _ in 0..4 * table.len() + sums.len() {
        let busy = (0..sums.len()).filter(|&at| open[at] && sums[at] > enough);
        let Some(most) = busy.max_by_key(|&at| (sums[at], std::cmp::Reverse(at))) else { break };
        let least = (0..sums.len()).min_by_key(|&at| sums[at]).unwrap_or(most);
        let gap = sums[most] - sums[least];
        let here = (0..table.len()).filter(|&entry| table[entry] == load.fixed[most].0);
        let fits = |&entry: &usize| load.entries[entry] > 0 && load.entries[entry] < gap;
        let best = here
            .filter(|entry| fits(entry) && may(*entry))
            .min_by_key(|&entry| (2 * load.entries[entry]).abs_diff(gap));
        // A move that gains less than a thousandth of the queue's load is not worth a moved flow.
        let gains = |entry: &usize| {
            let moved = load.entries[*entry];
            let after = (sums[most] - moved).max(sums[least] + moved);
            (sums[most] - after) * 1000 > sums[most]
        };
        let Some(entry) = best.filter(gains) else {
            open[most] = false;
            continue;
        };
        sums[most] -= load.entries[entry];
        sums[least] += load.entries[entry];
        table[entry] = load.fixed[least].0;
    }
    before.iter().zip(table.iter()).filter(|(old, new)| old != new).count()
}
