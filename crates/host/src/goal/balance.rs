//! Balance: moves entries of the indirection table from busy queues to idle ones, as few as it takes; an
//! interface without RSS gets RPS.

use super::wish::{Ask, Wish};
use crate::setting::{Setting, table, table_text};

pub(super) fn wish(ask: &Ask<'_>, wish: &mut Wish) {
    let near = ask.near();
    let entries = ask.settings.get(&Setting::Table).and_then(|text| table(text));
    let (Some(mut entries), None) = (entries, ask.card.why_not()) else {
        let (limit, source) = match ask.state.rss.why().or(ask.card.why_not()) {
            Some(why) => (why, "ETHTOOL_GRSSH"),
            None => ("there is one queue", "ETHTOOL_GCHANNELS"),
        };
        wish.refuse("entries of the indirection table", limit, source);
        if near.len() > 1 {
            ask.spread_by_rps(&near, "the adapter does not spread, so the kernel does", wish);
        }
        return;
    };
    let before = entries.clone();
    let (loads, mut fixed) = measured(ask, entries.len());
    let moved = level(&mut entries, &loads, &mut fixed);
    let more = super::channels::more(ask, &near, (&before, &loads), wish);
    let ask = &match more {
        Some((queues, table)) => {
            let why = "the driver fills the table for the new channels; entries move to them from busy queues";
            wish.change(Setting::Table, table_text(&table), why);
            Ask { planned: Some(queues), ..*ask }
        }
        None => {
            if moved > 0 {
                let why =
                    format!("{moved} entries move from queues with more frames than the mean");
                wish.change(Setting::Table, table_text(&entries), &why);
            }
            *ask
        }
    };
    let cpus: Vec<_> = (0..ask.queues()).map(|queue| ask.card.cpu_of(queue)).collect();
    let mut distinct: Vec<_> = cpus.iter().flatten().collect();
    distinct.sort_unstable();
    distinct.dedup();
    let possible = near.len().min(cpus.len());
    if distinct.len() < possible {
        ask.one_cpu_each(&near, "queues share a CPU while another one is idle", wish);
    }
    biggest(ask, wish);
}

/// The frames of each entry, and what each queue receives by other ways than the table: by rules, or without a hash.
pub(super) fn measured(ask: &Ask<'_>, entries: usize) -> (Vec<u64>, Vec<u64>) {
    let mut loads = vec![0_u64; entries];
    let mut fixed = vec![0_u64; ask.queues().max(1) as usize];
    fixed[0] = ask.traffic.others;
    for flow in ask.traffic.flows() {
        if let Some(entry) = ask.card.entry(&flow.key) {
            loads[entry] += flow.frames;
        } else if let Some(load) =
            ask.card.queue(&flow.key).and_then(|queue| fixed.get_mut(queue as usize))
        {
            *load += flow.frames;
        }
    }
    (loads, fixed)
}

/// Moves entries between queues until no move lowers the larger of two loads. `sums` has what each queue receives by
/// other ways than the table, and then what it receives. Returns how many entries moved.
pub(super) fn level(entries: &mut [u32], loads: &[u64], sums: &mut [u64]) -> usize {
    let before = entries.to_vec();
    for (queue, load) in entries.iter().zip(loads) {
        if let Some(sum) = sums.get_mut(*queue as usize) {
            *sum += load;
        }
    }
    for _ in 0..4 * entries.len() {
        let most = (0..sums.len()).max_by_key(|&queue| sums[queue]).unwrap_or(0);
        let least = (0..sums.len()).min_by_key(|&queue| sums[queue]).unwrap_or(0);
        let gap = sums[most] - sums[least];
        let here = (0..entries.len()).filter(|&entry| entries[entry] as usize == most);
        let fits = here.filter(|&entry| loads[entry] > 0 && loads[entry] < gap);
        let best = fits.min_by_key(|&entry| (2 * loads[entry]).abs_diff(gap));
        // A move that gains less than a thousandth of the queue's load is not worth a moved flow.
        let Some(entry) = best.filter(|&entry| {
            let after = (sums[most] - loads[entry]).max(sums[least] + loads[entry]);
            (sums[most] - after) * 1000 > sums[most]
        }) else {
            break;
        };
        sums[most] -= loads[entry];
        sums[least] += loads[entry];
        entries[entry] = least as u32;
    }
    before.iter().zip(entries.iter()).filter(|(old, new)| old != new).count()
}

/// A remark on the largest flow if no table can level it.
fn biggest(ask: &Ask<'_>, wish: &mut Wish) {
    let all = ask.traffic.frames();
    let Some(flow) = ask.traffic.flows().iter().max_by_key(|flow| flow.frames) else { return };
    if flow.frames * u64::from(ask.queues()) > all {
        wish.notes.push(format!(
            "The flow {} alone has {} of {all} frames, more than a queue's even share: entries of the table move \
             whole flows only.",
            flow.key, flow.frames
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn levelling_never_raises_the_busiest_queue(
            loads in proptest::collection::vec(0_u64..1000, 128),
            queues in 1_u32..9,
            fixed in 0_u64..1000,
        ) {
            let mut entries: Vec<u32> = (0..128).map(|entry| entry % queues).collect();
            let most = |entries: &[u32]| {
                let sum = |queue: u32| {
                    let own = entries.iter().zip(&loads).filter(|(of, _)| **of == queue);
                    own.map(|(_, load)| load).sum::<u64>() + if queue == 0 { fixed } else { 0 }
                };
                (0..queues).map(sum).max()
            };
            let before = most(&entries);
            let mut sums = vec![0; queues as usize];
            sums[0] = fixed;
            level(&mut entries, &loads, &mut sums);
            prop_assert!(most(&entries) <= before);
            prop_assert!(entries.iter().all(|queue| *queue < queues));
        }
    }
}
