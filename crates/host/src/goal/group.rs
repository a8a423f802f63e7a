//! A group of queues for the flows that match: an RSS context spreads them over the group, a rule steers them to the
//! context, and the entries of the default table leave the queues of the group.

use flowyard_adapter::rules::RuleAction;
use flowyard_frame::FlowKey;

use super::isolate::{costs, entries, leave};
use super::wish::{Ask, Wish};
use crate::rules::{self, Limit, NEW_CONTEXT};
use crate::setting::{Setting, context_text, table_text};

pub(super) fn wish(ask: &Ask<'_>, flow: &FlowKey, queues: u32, wish: &mut Wish) {
    let what = format!("{queues} queues of their own for the flows {flow}");
    let Some(entries) = entries(ask, &what, wish) else { return };
    if queues >= ask.queues() {
        let limit =
            format!("there are {} queues, of which other flows need at least one", ask.queues());
        return wish.refuse(&what, &limit, "ETHTOOL_GCHANNELS");
    }
    let rule = rules::of_flow(flow, RuleAction::Context { context: NEW_CONTEXT, queue: 0 });
    let taken = match rules::judge(ask.state, &rule) {
        Ok(taken) => taken,
        Err(Limit { limit, source }) => {
            let what = format!("a rule that spreads {flow} over an RSS context");
            return wish.refuse(&what, &limit, &source);
        }
    };
    let Some(own) = group(ask, flow, &entries, queues) else {
        let limit = format!(
            "no {queues} queues in a row are free: queue 0 gets frames without a hash, and rules or contexts use others"
        );
        return wish.refuse(&what, &limit, "ETHTOOL_GRXCLSRLALL and ETHTOOL_GRSSH");
    };
    let (first, last) = (own[0], own[own.len() - 1]);
    let spread: Vec<u32> = own.iter().copied().cycle().take(entries.len()).collect();
    // With the key of the default context, the queue of each flow is known in advance.
    let key = ask.settings.get(&Setting::Key).map(String::as_str);
    let why = format!("a context spreads over the queues {first} to {last}");
    wish.change(Setting::NewContext, context_text(&spread, key), &why);
    let (table, left) = leave(ask, &entries, &own, None);
    if left > 0 {
        let why = format!(
            "{left} entries leave the queues {first} to {last}, which become those of {flow}"
        );
        wish.change(Setting::Table, table_text(&table), &why);
    }
    let why = "a rule steers the flows to the new context";
    wish.change(taken.setting, rules::text(&rule), why);
    wish.notes.extend(taken.notes);
    if rules::is_single(flow) {
        wish.notes.push(
            "One connection has one hash, so it comes to one queue of the group. A field that is zero matches all, as in \
             'tcp 0.0.0.0:0 > 10.0.0.2:80'."
                .to_owned(),
        );
    }
}

/// The queues in a row whose flows are fewest.
fn group(ask: &Ask<'_>, flow: &FlowKey, entries: &[u32], queues: u32) -> Option<Vec<u32>> {
    let (taken, cost) = (ask.card.queues_of_rules(), costs(ask, flow, entries));
    let all: Vec<u32> = (1..ask.queues()).collect();
    let rows = all.windows(queues.max(1) as usize);
    let free = rows.filter(|row| row.iter().all(|queue| !taken.contains(queue)));
    let sum = |row: &&[u32]| {
        row.iter()
            .map(|queue| cost[*queue as usize])
            .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    };
    free.min_by_key(sum).map(<[u32]>::to_vec)
}
