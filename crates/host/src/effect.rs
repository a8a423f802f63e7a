//! The predicted effect of settings on traffic.

use std::collections::BTreeMap;

use flowyard_frame::FlowKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card::{Card, Place};
use crate::plan::Change;
use crate::state::State;
use crate::traffic::Traffic;

/// The effect of settings on the traffic of a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// The share of the received frames that each CPU processes, by its number. Where a secret hash decides, the
    /// expected share.
    pub cpus: BTreeMap<u32, f64>,
    /// The share of the received frames whose CPU is not predictable.
    pub unknown: f64,
    /// The share of the received frames in each receive queue; empty if it is not predictable.
    pub queues: BTreeMap<u32, f64>,
    /// The load of the busiest CPU in relation to the mean over the CPUs that today's settings or the planned ones
    /// use; 1 is even.
    pub imbalance: Option<f64>,
    /// The share of the flows for which the adapter chooses one CPU for both directions, if it receives both.
    pub both_directions: Option<f64>,
    /// The share of the received frames whose CPU is on another NUMA node than the adapter.
    pub numa_crossings: Option<f64>,
    /// The share of the received frames that are processed on the CPU where the application reads them. Captures
    /// do not tell that, so it is `null` here; RFS makes it 1 for applications that stay on their CPUs.
    pub locality: Option<f64>,
    /// Why the queues are not predictable, if they are not.
    pub why_unknown: Option<String>,
}

/// The effect of a card on traffic.
#[must_use]
pub(crate) fn effect(state: &State, card: &Card, traffic: &Traffic) -> Effect {
    let all = traffic.frames().max(1) as f64;
    let (mut cpus, mut queues) = (BTreeMap::new(), BTreeMap::new());
    let (mut unknown, mut both, mut decided) = (0.0, 0_u64, 0_u64);
    let mut add = |key: &FlowKey, frames: u64| {
        let share = frames as f64 / all;
        if let Some(queue) = card.queue(key) {
            *queues.entry(queue).or_insert(0.0) += share;
        }
        match card.place(key) {
            Place::Cpu(cpu) => *cpus.entry(cpu).or_insert(0.0) += share,
            Place::OneOf(some) => {
                for &cpu in &some {
                    *cpus.entry(cpu).or_insert(0.0) += share / some.len() as f64;
                }
            }
            Place::Unknown => unknown += share,
        }
    };
    for flow in traffic.flows() {
        add(&flow.key, flow.frames);
        match (card.place(&flow.key), card.place(&flow.key.reversed())) {
            (Place::Cpu(one), Place::Cpu(other)) => {
                decided += 1;
                both += u64::from(one == other);
            }
            // The kernel's own hash is the same for both directions.
            (Place::OneOf(one), Place::OneOf(other)) => {
                decided += 1;
                both += u64::from(one == other);
            }
            _ => {}
        }
    }
    if traffic.others > 0 {
        add(&FlowKey::ZERO, traffic.others);
    }
    let node = state.numa_node.value().and_then(|node| u32::try_from(*node).ok());
    let near = |cpu: &u32| {
        let all = state.cpus.value()?;
        Some(all.iter().find(|one| one.cpu == *cpu)?.node == node?)
    };
    let far: Option<f64> =
        cpus.iter().map(|(cpu, share)| near(cpu).map(|near| if near { 0.0 } else { *share })).sum();
    Effect {
        imbalance: None,
        both_directions: (decided > 0).then(|| rounded(both as f64 / decided as f64)),
        numa_crossings: far.filter(|_| unknown == 0.0).map(rounded),
        locality: None,
        why_unknown: card.why_not().map(str::to_owned),
        cpus: cpus.into_iter().map(|(cpu, share)| (cpu, rounded(share))).collect(),
        queues: queues.into_iter().map(|(queue, share)| (queue, rounded(share))).collect(),
        unknown: rounded(unknown),
    }
}

/// Six digits, so that a plan that is read again is equal to the one that was written.
pub(crate) fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// Sets the imbalance of two effects, in relation to the mean over the CPUs that either of them can use.
pub(crate) fn compare(effects: [(&mut Effect, &Card); 2]) {
    let mut used: Vec<u32> = Vec::new();
    for (effect, card) in &effects {
        used.extend(effect.cpus.keys());
        used.extend((0..card.queues()).filter_map(|queue| card.cpu_of(queue)));
    }
    used.sort_unstable();
    used.dedup();
    for (effect, _) in effects {
        let most = effect.cpus.values().copied().reduce(f64::max);
        let sum: f64 = effect.cpus.values().sum();
        let ratio = most.filter(|_| sum > 0.0).map(|most| most * used.len() as f64 / sum);
        effect.imbalance = ratio.map(rounded);
    }
}

/// The longest time for which a frame is assumed to wait in its queue, in seconds.
const WAIT: f64 = 0.001;

/// What changing from one card to another does to flows.
#[must_use]
pub(crate) fn change(from: &Card, to: &Card, traffic: &Traffic) -> Change {
    let (mut moved, mut frames) = (0, 0.0);
    let seconds = traffic.seconds().max(WAIT);
    for flow in traffic.flows() {
        match (from.place(&flow.key), to.place(&flow.key)) {
            (Place::Cpu(old), Place::Cpu(new)) => {
                if old != new {
                    moved += 1;
                    frames += flow.frames as f64 / seconds * WAIT;
                }
            }
            (old, new) if old == new && old != Place::Unknown => {}
            _ => return Change::default(),
        }
    }
    Change { moved_flows: Some(moved), frames_at_risk: Some(rounded(frames)) }
}
