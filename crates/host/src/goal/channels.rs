//! Channels: as many as there are CPUs on the adapter's NUMA node to process what arrives.

use flowyard_adapter::rules::RuleAction;

use flowyard_flow::learn::rebalance::{Load, level};

use super::balance::measured;
use super::wish::{Ask, Wish};
use crate::machine::Counts;
use crate::rules;
use crate::setting::{Setting, counts_text, table, table_text};

/// What a change of channels does beside the steps of the plan.
const NOTE: &str = "Most drivers restart the interface to change its channels: frames that arrive meanwhile are lost. The driver then sets \
                    the table, interrupts, XPS and RPS of the queues again; undo restores all of them.";

/// More combined channels for `balance`, if the busiest queue gets at least a twentieth less by that. Returns their
/// number, and the table that spreads over them. `now` is the table with the frames of each entry.
pub(super) fn more(
    ask: &Ask<'_>,
    near: &[u32],
    (entries, loads): (&[u32], &[u64]),
    wish: &mut Wish,
) -> Option<(u32, Vec<u32>)> {
    let (counts, most) = combined(ask)?;
    let wanted = near.len() as u32;
    if wanted <= counts.combined {
        return None;
    }
    let busiest = |queues: u32| {
        let all = Ask { planned: Some(queues), ..*ask };
        let (_, fixed) = measured(&all, entries.len());
        let (mut table, load) = (entries.to_vec(), Load { entries: loads, fixed: &fixed });
        level(&mut table, load, 0, |_| true);
        (load.most(&table), table)
    };
    let (today, _) = busiest(counts.combined);
    let helps = |queues: u32| {
        let (then, table) = busiest(queues);
        (then < today - today / 20).then_some(table)
    };
    helps(wanted)?;
    let (limit, source) = limit(ask, most, entries.len() as u32);
    if limit < wanted {
        let what =
            format!("{wanted} combined channels, one for each CPU of the adapter's NUMA node");
        wish.refuse(&what, &source.0, &source.1);
    }
    let queues = wanted.min(limit);
    let table = if queues > counts.combined { helps(queues)? } else { return None };
    let why = format!(
        "{} CPUs are on the adapter's NUMA node, and {} channels receive: the busiest queue gets fewer frames",
        near.len(),
        counts.combined
    );
    wish.change(Setting::Channels, counts_text(Counts { combined: queues, ..counts }), &why);
    wish.notes.push(NOTE.to_owned());
    let known = ask.state.interrupts.value().into_iter().flatten();
    let known = known.filter_map(|one| one.rx_queue.value()).max().copied().unwrap_or(0);
    if known + 1 < queues {
        wish.notes.push(
            "The interrupts of the new channels exist only after the change, so their CPUs are not known here. Make another \
             plan then (--goal locality)."
                .to_owned(),
        );
    }
    Some((queues, table))
}

/// The most channels that are of use: what the driver offers, what the table reaches, and as many as the size of the
/// table stays the same with; and where that is known from.
fn limit(ask: &Ask<'_>, most: u32, entries: u32) -> (u32, (String, String)) {
    let offered = format!("the driver offers {most} combined channels");
    let mut least = (most, (offered, "ETHTOOL_GCHANNELS".to_owned()));
    let Some(profile) = ask.state.profile() else { return least };
    let source = || format!("flowyard adapters: the profile of {}", profile.name);
    let reach = profile.rss.and_then(|rss| rss.queues).map(u32::from);
    if let Some(reach) = reach.filter(|reach| *reach < least.0) {
        let limit = format!("an entry of the indirection table reaches {reach} queues");
        least = (reach, (limit, source()));
    }
    let same = match profile.driver {
        "mlx5_core" => entries / 2,
        "bnxt_en" => entries,
        _ => return least,
    };
    if same < least.0 {
        let limit = format!(
            "with more than {same} channels the driver makes another table than one of {entries} entries"
        );
        least = (same, (limit, source()));
    }
    least
}

/// Fewer combined channels for `locality`: with more queues than CPUs on the adapter's NUMA node, queues share CPUs.
/// Returns their number.
pub(super) fn fewer(ask: &Ask<'_>, wanted: u32, wish: &mut Wish) -> Option<u32> {
    let (counts, _) = combined(ask)?;
    if wanted == 0 || wanted >= counts.combined {
        return None;
    }
    let to = counts_text(Counts { combined: wanted, ..counts });
    let users = users(ask, counts.combined, wanted);
    if !users.is_empty() {
        let limit =
            format!("the kernel refuses it while a higher queue is in use: {}", users.join("; "));
        wish.refuse(&format!("channels = {to}"), &limit, KERNEL);
        return None;
    }
    let why = format!(
        "{wanted} CPUs are on the adapter's NUMA node: with {} queues, queues share them",
        counts.combined
    );
    wish.change(Setting::Channels, to, &why);
    if let Some(entries) = ask.settings.get(&Setting::Table).and_then(|text| table(text)) {
        let fewer = entries.iter().map(|queue| queue % wanted).collect::<Vec<_>>();
        wish.change(
            Setting::Table,
            table_text(&fewer),
            "the entries of the queues that are no more go to the others",
        );
    }
    wish.notes.push(NOTE.to_owned());
    Some(wanted)
}

/// Where it is known from that the kernel checks users of queues.
const KERNEL: &str = "Linux, net/ethtool: ETHTOOL_SCHANNELS checks tables and rules (ethtool_get_max_rxfh_channel, ethtool_get_max_rxnfc_channel)";

/// The channels and the most combined ones, of drivers whose channels are combined.
fn combined(ask: &Ask<'_>) -> Option<(Counts, u32)> {
    let channels = ask.state.channels.value()?;
    (channels.now.combined > 0 && channels.now.rx == 0)
        .then_some((channels.now, channels.most.combined))
}

/// What uses queues from `wanted` on: the table, if it is not the driver's own for `now` queues, rules, and contexts.
fn users(ask: &Ask<'_>, now: u32, wanted: u32) -> Vec<String> {
    let mut all = Vec::new();
    let uses = |table: &[u32]| table.iter().any(|queue| *queue >= wanted);
    let rss = ask.state.rss.value().map(|rss| rss.table.as_slice()).unwrap_or_default();
    let in_turn = rss.iter().enumerate().all(|(entry, queue)| *queue == entry as u32 % now);
    let len = rss.len().max(1) as u64;
    let in_blocks = rss
        .iter()
        .enumerate()
        .all(|(entry, queue)| u64::from(*queue) == entry as u64 * u64::from(now) / len);
    if uses(rss) && !in_turn && !in_blocks {
        let interface = &ask.state.interface;
        all.push(format!(
            "somebody has set the indirection table (`ethtool -X {interface} default` gives it back to the driver)"
        ));
    }
    for context in ask.state.contexts.value().into_iter().flatten() {
        if uses(&context.rss.table) {
            all.push(format!("RSS context {} spreads over it", context.number));
        }
    }
    for rule in ask.state.rules.value().into_iter().flat_map(|rules| &rules.list) {
        let action = rules::read(&rule.rule).map(|rule| rule.action);
        if let Some(RuleAction::Queue(queue)) = action
            && queue >= wanted
        {
            all.push(format!("the rule at location {} steers to queue {queue}", rule.location));
        }
    }
    all
}
