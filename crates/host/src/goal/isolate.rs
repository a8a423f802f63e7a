//! Isolation: a flow gets a queue of its own, in the way that moves fewer flows:
//!
//! ```text
//!  by the table: the entry of the flow keeps its queue, and all other entries leave that queue
//!  by a rule:    a rule (ethtool -N) steers the flow to a queue that all entries leave
//! ```
//!
//! Entries that leave a queue go to the other queues that the table uses: a queue that it does not use may be
//! another flow's own.

use flowyard_adapter::rules::RuleAction;
use flowyard_frame::FlowKey;

use super::wish::{Ask, Wish};
use crate::rules::{self, Limit, Taken};
use crate::setting::{Setting, table, table_text};

/// One way to isolate the flow.
struct Way {
    /// The queue of the flow.
    queue: u32,
    /// The table with which nothing else comes there.
    table: Vec<u32>,
    /// Entries that move.
    entries: usize,
    /// Flows of the traffic that move, with the flow itself if it does.
    moved: usize,
}

impl Way {
    fn cost(&self) -> (usize, usize) {
        (self.moved, self.entries)
    }
}

pub(super) fn wish(ask: &Ask<'_>, flow: &FlowKey, wish: &mut Wish) {
    const WHAT: &str = "a queue of its own for the flow";
    let Some(entries) = entries(ask, WHAT, wish) else { return };
    if ask.queues() < 2 {
        return wish.refuse(WHAT, "there is one queue", "ETHTOOL_GCHANNELS");
    }
    if let Some(action) = ask.card.rule(flow).filter(|_| rules::is_single(flow)) {
        return steered(ask, flow, action, &entries, wish);
    }
    let by_table = by_table(ask, flow, &entries);
    let by_rule = by_rule(ask, flow, &entries);
    let (by_rule, taken) = match (by_rule, judged(ask, flow)) {
        (Some(way), Ok(taken)) => (Some(way), Some(taken)),
        (_, Err(Limit { limit, source })) => {
            wish.refuse(&format!("a rule that steers {flow} to a queue"), &limit, &source);
            (None, None)
        }
        (None, Ok(_)) => {
            let limit =
                "every queue but queue 0 is used by rules, and queue 0 gets frames without a hash";
            wish.refuse(
                &format!("a rule that steers {flow} to a queue"),
                limit,
                "ETHTOOL_GRXCLSRLALL",
            );
            (None, None)
        }
    };
    match (by_table, by_rule.zip(taken)) {
        // The refusal of the rule says why.
        (Err(_), None) if !rules::is_single(flow) => {}
        (Err(Limit { limit, source }), None) => wish.refuse(WHAT, &limit, &source),
        (Ok((way, shared)), None) => {
            let why = format!(
                "queue {} keeps the entry of the flow; {} entries leave it",
                way.queue, way.entries
            );
            apply_table(ask, flow, &way, shared, &why, wish);
        }
        (Ok((way, 0)), Some((other, _))) if way.cost() <= other.cost() => {
            let why = format!(
                "queue {} keeps the entry of the flow; {} entries leave it, which moves {} flows; a rule would move {}",
                way.queue, way.entries, way.moved, other.moved
            );
            apply_table(ask, flow, &way, 0, &why, wish);
        }
        (by_table, Some((way, taken))) => {
            let why = match by_table {
                Err(Limit { limit, .. }) => limit,
                Ok((_, shared @ 1..)) => {
                    format!(
                        "{shared} other flows of the traffic share the entry of the flow in the table"
                    )
                }
                Ok((other, _)) => {
                    format!(
                        "this moves {} flows; entries of the table alone would move {}",
                        way.moved, other.moved
                    )
                }
            };
            apply_rule(ask, flow, &way, taken, &why, wish);
        }
    }
}

/// The indirection table, if the queues of flows are predictable; otherwise the refusal of `what`.
pub(super) fn entries(ask: &Ask<'_>, what: &str, wish: &mut Wish) -> Option<Vec<u32>> {
    let entries = ask.settings.get(&Setting::Table).and_then(|text| table(text));
    if let (Some(entries), None) = (entries, ask.card.why_not()) {
        return Some(entries);
    }
    let why = ask.card.why_not().unwrap_or("the driver gives no indirection table");
    let why = ask.state.rss.why().unwrap_or(why);
    let (source, limit) = match why.split_once(": ") {
        Some((source, limit)) if source.starts_with("ETHTOOL_") => (source, limit),
        _ => ("ETHTOOL_GRSSH", why),
    };
    wish.refuse(what, limit, source);
    None
}

/// A rule steers the flow already: only its queue has to be freed of others.
fn steered(ask: &Ask<'_>, flow: &FlowKey, action: RuleAction, entries: &[u32], wish: &mut Wish) {
    let RuleAction::Queue(queue) = action else {
        let limit = "a rule that is installed already decides about it, and flowyard changes no rules of others";
        return wish.refuse("a queue of its own for the flow", limit, "ETHTOOL_GRXCLSRULE");
    };
    let way = way(ask, flow, entries, queue, None, Some(queue));
    let why = format!("a rule steers the flow to queue {queue}; {} entries leave it", way.entries);
    apply_table(ask, flow, &way, 0, &why, wish);
    if let Some(users) = other_users(ask, flow, queue) {
        wish.notes.push(format!(
            "Queue {queue} does not become the flow's own, because it is used by {users}, too."
        ));
    }
}

/// The driver's word about a rule for the flow. It does not depend on the queue, as far as the queue exists.
fn judged(ask: &Ask<'_>, flow: &FlowKey) -> Result<Taken, Limit> {
    rules::judge(ask.state, &rules::of_flow(flow, RuleAction::Queue(ask.queues() - 1)))
}

/// The entry of the flow keeps its queue. An error is the reason why that is not a queue of its own.
fn by_table(ask: &Ask<'_>, flow: &FlowKey, entries: &[u32]) -> Result<(Way, usize), Limit> {
    let limit = |limit: &str, source: &str| Limit { limit: limit.into(), source: source.into() };
    if !rules::is_single(flow) {
        return Err(limit("no single entry of the table is the flow's own", "ETHTOOL_GRXFH"));
    }
    let entry = ask.card.entry(flow).ok_or_else(|| {
        let why = "the adapter computes no hash of this flow, so no entry of the table is its own";
        limit(why, "ETHTOOL_GRXFH")
    })?;
    let own = entries[entry];
    if let Some(users) = other_users(ask, flow, own) {
        let why = format!("queue {own}, to which the entry of the flow leads, is used by {users}");
        return Err(limit(&why, "ETHTOOL_GRXCLSRLALL and ETHTOOL_GRSSH"));
    }
    let same = ask.traffic.flows().iter().filter(|other| ask.card.entry(&other.key) == Some(entry));
    let same = same.filter(|other| other.key.to_string() != flow.to_string()).count();
    Ok((way(ask, flow, entries, own, Some(entry), None), same))
}

/// The rules and RSS contexts that lead other flows to a queue: the first one, and the number of the others.
fn other_users(ask: &Ask<'_>, flow: &FlowKey, queue: u32) -> Option<String> {
    let leads_there = |(setting, value): &(&Setting, &String)| match setting {
        Setting::Rule(_) => rules::read(value)
            .is_some_and(|rule| rule.action == RuleAction::Queue(queue) && !rule.matches(flow)),
        Setting::Context(_) => {
            let entries = value.split(" key ").next().and_then(table);
            entries.is_some_and(|entries| entries.contains(&queue))
        }
        _ => false,
    };
    let mut users = ask.settings.iter().filter(leads_there).map(|(setting, _)| setting);
    let first = users.next()?;
    Some(match users.count() {
        0 => first.to_string(),
        more => format!("{first} and {more} more"),
    })
}

/// What emptying each queue costs: flows of the traffic that move, and entries. All queues at once, because `way` would
/// walk over the traffic for each.
pub(super) fn costs(ask: &Ask<'_>, flow: &FlowKey, entries: &[u32]) -> Vec<(usize, usize)> {
    let mut cost = vec![(0_usize, 0_usize); ask.queues() as usize];
    let rule = rules::of_flow(flow, RuleAction::Drop);
    for other in ask.traffic.flows() {
        if !rule.matches(&other.key)
            && let Some(entry) = ask.card.entry(&other.key)
            && let Some(cost) = cost.get_mut(entries[entry] as usize)
        {
            cost.0 += 1;
        }
    }
    for queue in entries {
        if let Some(cost) = cost.get_mut(*queue as usize) {
            cost.1 += 1;
        }
    }
    cost
}

/// The queue whose flows are fewest. Queue 0 gets frames without a hash, and queues of rules have other users.
fn by_rule(ask: &Ask<'_>, flow: &FlowKey, entries: &[u32]) -> Option<Way> {
    let taken = ask.card.queues_of_rules();
    let free = (1..ask.queues()).filter(|queue| !taken.contains(queue));
    let cost = costs(ask, flow, entries);
    let now = ask.card.queue(flow);
    let whole = |queue: &u32| {
        let (moved, entries) = cost[*queue as usize];
        (moved + usize::from(now != Some(*queue)), entries)
    };
    let queue = free.min_by_key(whole)?;
    Some(way(ask, flow, entries, queue, None, Some(queue)))
}

/// The table whose entries, all but `keep`, have left the queues `own`, and the number of those that did.
pub(super) fn leave(
    ask: &Ask<'_>,
    entries: &[u32],
    own: &[u32],
    keep: Option<usize>,
) -> (Vec<u32>, usize) {
    let is_other = |queue: &u32| !own.contains(queue);
    let mut others: Vec<u32> = entries.iter().copied().filter(is_other).collect();
    others.sort_unstable();
    others.dedup();
    if others.is_empty() {
        others = (0..ask.queues()).filter(is_other).collect();
    }
    let (mut table, mut turn, mut left) = (entries.to_vec(), others.into_iter().cycle(), 0);
    for (at, entry) in table.iter_mut().enumerate() {
        if own.contains(entry) && Some(at) != keep {
            *entry = turn.next().unwrap_or(*entry);
            left += 1;
        }
    }
    (table, left)
}

/// All entries but `keep` leave `queue`; a rule steers the flow to `steered`.
fn way(
    ask: &Ask<'_>,
    flow: &FlowKey,
    entries: &[u32],
    queue: u32,
    keep: Option<usize>,
    steered: Option<u32>,
) -> Way {
    let (table, left) = leave(ask, entries, &[queue], keep);
    let rule = rules::of_flow(flow, RuleAction::Drop);
    let moves = |key: &FlowKey| match steered.filter(|_| rule.matches(key)) {
        Some(queue) => ask.card.queue(key) != Some(queue),
        None => ask.card.entry(key).is_some_and(|entry| table[entry] != entries[entry]),
    };
    let moved = ask.traffic.flows().iter().filter(|other| moves(&other.key)).count();
    Way { queue, table, entries: left, moved }
}

fn apply_table(
    ask: &Ask<'_>,
    flow: &FlowKey,
    way: &Way,
    shared: usize,
    why: &str,
    wish: &mut Wish,
) {
    wish.change(Setting::Table, table_text(&way.table), why);
    if shared > 0 {
        wish.notes.push(format!(
            "{shared} other flows of the traffic use the same entry as {flow} and stay in queue {}. Only a rule \
             (ethtool -N) separates them.",
            way.queue
        ));
    }
    if way.queue == 0 && ask.card.rule(flow).is_none() {
        wish.notes.push("Frames without a hash, such as ARP, stay in queue 0, too.".to_owned());
    }
}

fn apply_rule(ask: &Ask<'_>, flow: &FlowKey, way: &Way, taken: Taken, why: &str, wish: &mut Wish) {
    let queue = way.queue;
    if way.entries > 0 {
        let entries =
            format!("{} entries leave queue {queue}, which becomes the flow's own", way.entries);
        wish.change(Setting::Table, table_text(&way.table), &entries);
    }
    let rule = rules::text(&rules::of_flow(flow, RuleAction::Queue(queue)));
    wish.change(taken.setting, rule, &format!("a rule steers the flow to queue {queue}: {why}"));
    wish.notes.extend(taken.notes);
    if ask.state.sock_flow_entries.value().is_some_and(|entries| *entries > 0) {
        wish.notes.push(
            "RFS is on: the kernel may still process the frames of the queue on another CPU."
                .to_owned(),
        );
    }
}
