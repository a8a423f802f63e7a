//! Balance: moves entries of the indirection table from busy queues to idle ones, as few as it takes; an
//! interface without RSS gets RPS.

use flowyard_flow::learn::rebalance::{Load, level};

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
    let (loads, fixed) = measured(ask, entries.len());
    let moved = level(&mut entries, Load { entries: &loads, fixed: &fixed }, 0, |_| true);
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
pub(super) fn measured(ask: &Ask<'_>, entries: usize) -> (Vec<u64>, Vec<(u32, u64)>) {
    let mut loads = vec![0_u64; entries];
    let mut fixed: Vec<_> = (0..ask.queues().max(1)).map(|queue| (queue, 0)).collect();
    fixed[0].1 = ask.traffic.others; // frames without a hash are in queue 0
    for flow in ask.traffic.flows() {
        if let Some(entry) = ask.card.entry(&flow.key) {
            loads[entry] += flow.frames;
        } else if let Some(load) =
            ask.card.queue(&flow.key).and_then(|queue| fixed.get_mut(queue as usize))
        {
            load.1 += flow.frames;
        }
    }
    (loads, fixed)
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
