//! Isolation: the entry of the indirection table that a flow uses keeps its queue, and all other entries leave
//! that queue.

use flowyard_frame::FlowKey;

use super::wish::{Ask, Wish};
use crate::setting::{Setting, table, table_text};

pub(super) fn wish(ask: &Ask<'_>, flow: &FlowKey, wish: &mut Wish) {
    let entries = ask.settings.get(&Setting::Table).and_then(|text| table(text));
    let (Some(mut entries), Some(entry)) = (entries, ask.card.entry(flow)) else {
        let limit = ask.card.why_not().unwrap_or("the adapter computes no hash of this flow");
        wish.refuse("a queue of its own for the flow", limit, "ETHTOOL_GRSSH");
        return;
    };
    let queues = ask.queues();
    if queues < 2 {
        wish.refuse("a queue of its own for the flow", "there is one queue", "ETHTOOL_GCHANNELS");
        return;
    }
    let own = entries[entry];
    let others: Vec<u32> = (0..queues).filter(|queue| *queue != own).collect();
    let mut turn = others.iter().copied().cycle();
    let mut moved = 0;
    for (at, queue) in entries.iter_mut().enumerate() {
        if *queue == own && at != entry {
            *queue = turn.next().unwrap_or(own);
            moved += 1;
        }
    }
    let why =
        format!("queue {own} keeps entry {entry}, which the flow uses; {moved} entries leave it");
    wish.change(Setting::Table, table_text(&entries), &why);
    let same = ask.traffic.flows().iter().filter(|other| ask.card.entry(&other.key) == Some(entry));
    let same = same.filter(|other| other.key.to_string() != flow.to_string()).count();
    if same > 0 {
        wish.notes.push(format!(
            "{same} other flows of the traffic use the same entry {entry} and stay in queue {own}. Only a rule \
             (ethtool -N) separates them."
        ));
    }
    if own == 0 {
        wish.notes.push("Frames without a hash, such as ARP, stay in queue 0, too.".to_owned());
    }
}
