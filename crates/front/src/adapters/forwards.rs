//! Entries whose frames an adapter sends out by another port of its embedded switch: these frames never reach the yard.
//!
//! ```text
//!  start:   entry of the user that names port B ──> rule of port A: out by B
//!  reload:  the same entry, still uncontested ──> the rule stays;  else ──> it is removed before the tables change
//! ```
//!
//! *Order.* A frame that the adapter sends on passes those that the yard holds. So such rules are made only before the yard
//! receives. After a rule is removed, frames take the longer way through the yard, which lets none of them pass another.
//!
//! Invariants: no two rules of one adapter can match the same frame.
//! Thread-safety: as of [`Adapters`](super::Adapters).

use std::collections::{BTreeMap, HashMap};

use flowyard_dpdk::rules::{RuleId, SwitchPort};
use flowyard_frame::{FlowKey, To};

use super::pattern::overlap;

/// A rule that sends frames out.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    key: FlowKey,
    mask: FlowKey,
    /// The yard's port, its name, and its place in the switch.
    to: To,
    name: String,
    by: SwitchPort,
    rule: RuleId,
    /// Whether an entry of the present tables has it.
    is_claimed: bool,
}

impl Forward {
    /// The rule of an entry with this key and mask.
    pub(super) fn new(
        (key, mask): (&FlowKey, &FlowKey),
        to: To,
        (name, by): &(String, SwitchPort),
        rule: RuleId,
    ) -> Self {
        let (key, mask, name) = (*key, *mask, name.clone());
        Self { key, mask, to, name, by: *by, rule, is_claimed: true }
    }
}

/// All ports that are in embedded switches, by their numbers in the yard, with their names.
pub(super) type SwitchPorts = BTreeMap<u16, (String, SwitchPort)>;

/// The rules of one adapter. Exact entries are apart because two different ones share no frame.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    exact: HashMap<FlowKey, Forward>,
    others: Vec<Forward>,
}

/// What an entry finds in front of it.
pub(super) enum Found {
    /// The rule of the entry itself, which was kept, and the name of the port.
    Own(RuleId, String),
    /// The rule of another entry that can match some of its frames.
    Other,
}

impl Forwards {
    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.others.is_empty()
    }

    pub(super) fn add(&mut self, forward: Forward) {
        if forward.mask == FlowKey::FLOW {
            self.exact.insert(forward.key, forward);
        } else {
            self.others.push(forward);
        }
    }

    /// Claims the rule of an entry with this filter, if there is one.
    pub(super) fn claim(&mut self, key: &FlowKey, mask: &FlowKey) -> Option<Found> {
        let is_exact = *mask == FlowKey::FLOW;
        let exact = match self.exact.get_mut(key) {
            Some(same) if is_exact => Some(same),
            _ if is_exact => None,
            _ => self.exact.values_mut().find(|one| overlap((&one.key, &one.mask), (key, mask))),
        };
        let found = exact.or_else(|| {
            self.others.iter_mut().find(|one| overlap((&one.key, &one.mask), (key, mask)))
        })?;
        if found.key != *key || found.mask != *mask || found.is_claimed {
            return Some(Found::Other);
        }
        found.is_claimed = true;
        Some(Found::Own(found.rule, found.name.clone()))
    }

    /// Keeps the rules of entries for which `is_wanted` holds, which are claimed again, and returns the others.
    pub(super) fn keep(
        &mut self,
        is_wanted: impl Fn(&FlowKey, &FlowKey, To) -> bool,
    ) -> Vec<RuleId> {
        self.retain(|one| {
            one.is_claimed = false;
            is_wanted(&one.key, &one.mask, one.to)
        })
    }

    /// Keeps the rules whose output port is one of `ports`, and returns the others.
    pub(super) fn keep_ports(&mut self, ports: &SwitchPorts) -> Vec<RuleId> {
        self.retain(|one| {
            let To::Port(port) = one.to else { return false };
            ports.get(&port).is_some_and(|(_, by)| *by == one.by)
        })
    }

    fn retain(&mut self, mut stays: impl FnMut(&mut Forward) -> bool) -> Vec<RuleId> {
        let mut gone = Vec::new();
        let mut stay = |one: &mut Forward| {
            let stays = stays(one);
            if !stays {
                gone.push(one.rule);
            }
            stays
        };
        self.exact.retain(|_, one| stay(one));
        self.others.retain_mut(stay);
        gone
    }
}
