//! Answers to queries on the control socket, assembled from published counters and from the cores'
//! own answers.

use std::collections::HashMap;
use std::time::Duration;

use flowyard_flow::learn::elephant::Decision;
use flowyard_frame::{Action, FlowKey, Nanos};
use flowyard_queue::Order;
use flowyard_yard::ask::{Answer, Question};
use flowyard_yard::{Counters, DropReason, Full, Handle, Place};

use crate::fix::fix_in;
use crate::names::name;
use crate::protocol::{
    CoreState, CoreTables, Cores, DecisionState, DropState, DroppedState, Drops, Elephants, Entry,
    QueueState, Queues, TableState, Tables,
};

/// The longest wait for the cores to answer. A core answers between batches, and after waking up if it
/// sleeps.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Whether the client of a request has gone, so that the work for it can end.
pub(crate) type Gone<'a> = &'a dyn Fn() -> bool;

pub(crate) fn seconds(at: Nanos) -> f64 {
    at as f64 / 1e9
}

/// Counters of all cores.
#[must_use]
pub fn cores(yard: &Handle) -> Cores {
    let alive = yard.ask(&Question::Alive, PATIENCE);
    let states = (0..).zip(yard.counters()).zip(&alive);
    Cores {
        at_s: seconds(yard.now()),
        cores: states
            .map(|((core, counters), alive)| state(core, &counters, alive.is_some()))
            .collect(),
    }
}

fn state(core: u16, counters: &Counters, alive: bool) -> CoreState {
    let numbers = Counters::NAMES.into_iter().zip(counters.values());
    CoreState {
        core,
        alive,
        counters: numbers.map(|(name, value)| (name.into(), value)).collect(),
        drops: counters.drops.iter().map(|(reason, n)| (reason.name().into(), n)).collect(),
    }
}

/// All queues, including the tx queues of ports.
#[must_use]
pub fn queues(yard: &Handle) -> Queues {
    let places = yard.places();
    let queues = places.queues.iter().map(|place| queue(place, false));
    let ports = places.ports.iter().map(|place| queue(place, true));
    Queues { at_s: seconds(yard.now()), queues: queues.chain(ports).collect() }
}

fn queue(place: &Place, tx: bool) -> QueueState {
    let order = match place.queue.order() {
        Order::Direct => "direct",
        Order::Unordered => "unordered",
        Order::Ordered => "ordered",
        Order::Atomic => "atomic",
    };
    let full = if place.full == Full::Hold { "hold" } else { "drop" };
    let completed = place.queue.head(); // read before the tail, which is never behind it
    QueueState {
        name: place.name.clone(),
        order: order.into(),
        tx,
        enqueued: place.queue.tail().max(completed),
        completed,
        full: full.into(),
        consumers: place.consumers.clone(),
        oldest_held_by: place.queue.holder(),
    }
}

/// Tables of the cores that receive frames, with at most `entries` entries of each.
#[must_use]
pub fn tables(yard: &Handle, entries: usize) -> Tables {
    let mut tables = Tables::default();
    let entry = |(key, action): &(FlowKey, Action)| self::entry(yard, key, action);
    for (core, answer) in (0..).zip(yard.ask(&Question::Tables { entries }, PATIENCE)) {
        let Some(Answer::Tables(answer)) = answer else {
            tables.silent_cores.push(core);
            continue;
        };
        if !answer.receives {
            continue;
        }
        let front = answer.front.iter().map(|table| {
            let mut listed: Vec<_> = table.listed.iter().map(entry).collect();
            listed.sort_by(|a, b| a.flow.cmp(&b.flow));
            TableState {
                name: table.name.clone(),
                entries: table.entries,
                capacity: table.capacity,
                hits: table.hits,
                listed,
            }
        });
        tables.cores.push(CoreTables {
            core,
            tables: front.collect(),
            indirection: answer.spread.iter().map(|to| name(yard.places(), *to)).collect(),
            indirection_hits: answer.spread_hits,
        });
    }
    tables
}

fn entry(yard: &Handle, key: &FlowKey, action: &Action) -> Entry {
    Entry { flow: key.to_string(), to: name(yard.places(), action.to), mark: action.mark }
}

/// The flows that are split over cores, and the recent decisions about elephants.
#[must_use]
pub fn elephants(yard: &Handle) -> Elephants {
    let all = tables(yard, 1000);
    let mut promoted: Vec<Entry> = Vec::new();
    for table in all.cores.iter().flat_map(|core| &core.tables).filter(|t| t.name == "promoted") {
        let new = table.listed.iter().filter(|entry| !promoted.contains(entry));
        promoted.extend(new.cloned().collect::<Vec<_>>());
    }
    Elephants { promoted, decisions: yard.elephants().last().iter().map(decision).collect() }
}

/// A decision of the elephant detector, in the protocol's form.
#[must_use]
pub fn decision(decision: &Decision) -> DecisionState {
    DecisionState {
        at_s: seconds(decision.at),
        core: decision.core,
        busy: decision.load.busy,
        waiting: decision.load.queue_len,
        dropped: decision.load.drops,
        kind: decision.what.kind().into(),
        flow: decision.what.flow().map(ToString::to_string),
        text: decision.what.to_string(),
    }
}

/// Drop counters by core and reason, and the last dropped frames.
#[must_use]
pub fn drops(yard: &Handle) -> Drops {
    let mut drops = Drops { at_s: seconds(yard.now()), ..Drops::default() };
    let mut keys: HashMap<&str, (Nanos, FlowKey)> = HashMap::new();
    for (core, answer) in (0..).zip(yard.ask(&Question::Drops, PATIENCE)) {
        match answer {
            Some(Answer::Drops(last)) => {
                for drop in last.iter() {
                    let is_newer =
                        keys.get(drop.reason.name()).is_none_or(|(at, _)| *at <= drop.at);
                    if let Some(key) = drop.key.filter(|_| is_newer) {
                        keys.insert(drop.reason.name(), (drop.at, key));
                    }
                }
                drops.last.extend(last.iter().map(|drop| DroppedState {
                    at_s: seconds(drop.at),
                    core: drop.core,
                    reason: drop.reason.name().into(),
                    place: name(yard.places(), drop.place),
                    flow: drop.key.map(|key| key.to_string()),
                    frames: drop.frames,
                }));
            }
            _ => drops.silent_cores.push(core),
        }
    }
    drops.last.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let counters = yard.counters();
    for reason in DropReason::ALL {
        let cores: Vec<_> = counters.iter().map(|core| core.drops.get(reason)).collect();
        let frames = cores.iter().sum();
        if frames > 0 {
            let last = drops.last.iter().rfind(|drop| drop.reason == reason.name());
            let place = last.map_or("its destination", |drop| drop.place.as_str());
            let fix = fix_in(yard, reason, place, keys.get(reason.name()).map(|(_, key)| key));
            drops.reasons.push(DropState { reason: reason.name().into(), cores, frames, fix });
        }
    }
    drops
}
