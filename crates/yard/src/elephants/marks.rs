//! Promoted flows that adapters mark, so that no table is searched for their frames.
//!
//! ```text
//!  promote ──put──> front: a rule for each port ──> number ──Name──> table of marked entries of every core
//!  demote  ──remove──> front                        Promote(Del) ──> the cores forget the number with the entry
//!  reload: the flow keeps its number if no entry of the user matches any of its frames
//! ```
//!
//! A mark goes past the user's entries. So a flow is named only with the generation of entries of which none can match one
//! of its frames; a core with other entries ignores it ([`flowyard_flow::table::marked::Named`]).
//!
//! Thread-safety: belongs to the core that decides.

use std::collections::VecDeque;
use std::sync::Arc;

use flowyard_flow::table::marked::Named;
use flowyard_frame::{Action, FlowKey, Nanos};

use crate::front::{AFTER, Change, Entry, Front};
use crate::mail::Message;

/// The promoted flows.
#[derive(Debug)]
pub(super) struct Marks {
    front: Arc<dyn Front>,
    /// The number of ports.
    ports: u16,
    flows: Vec<Flow>,
    /// Numbers that were removed, and when.
    leaving: VecDeque<(Nanos, u32)>,
}

#[derive(Debug)]
struct Flow {
    key: FlowKey,
    action: Action,
    /// One for each port whose adapter has a rule.
    numbers: Vec<u32>,
}

impl Marks {
    pub(super) const fn new(front: Arc<dyn Front>, ports: u16) -> Self {
        Self { front, ports, flows: Vec::new(), leaving: VecDeque::new() }
    }

    /// A flow was promoted; returns messages to all cores that receive.
    pub(super) fn promoted(&mut self, key: FlowKey, action: Action, now: Nanos) -> Vec<Message> {
        self.demoted(&key, now);
        let mut flow = Flow { key: key.flow(), action, numbers: Vec::new() };
        let messages = self.offer(&mut flow, now);
        self.flows.push(flow);
        messages
    }

    /// A flow is not promoted any more. The cores forget its numbers with its entry.
    pub(super) fn demoted(&mut self, key: &FlowKey, now: Nanos) {
        let key = key.flow();
        while let Some(at) = self.flows.iter().position(|flow| flow.key == key) {
            let flow = self.flows.swap_remove(at);
            self.remove(&flow.numbers, now);
        }
    }

    /// The user's entries have changed; returns messages to all cores that receive.
    pub(super) fn reloaded(&mut self, now: Nanos) -> Vec<Message> {
        let mut messages = Vec::new();
        for mut flow in std::mem::take(&mut self.flows) {
            if self.front.uncontested(&flow.key).is_none() {
                messages.extend(flow.numbers.iter().map(|number| forget(*number)));
                self.remove(&flow.numbers, now);
                flow.numbers.clear();
            } else {
                messages.extend(self.offer(&mut flow, now));
            }
            self.flows.push(flow);
        }
        messages
    }

    /// Frees numbers that were removed long ago.
    pub(super) fn free(&mut self, now: Nanos) {
        while self.leaving.front().is_some_and(|(since, _)| now.saturating_sub(*since) > AFTER)
            && let Some((_, number)) = self.leaving.pop_front()
        {
            self.front.free(number);
        }
    }

    /// Asks the adapters for rules, unless they have them, and names the flow to the cores.
    fn offer(&self, flow: &mut Flow, now: Nanos) -> Vec<Message> {
        let Some(generation) = self.front.uncontested(&flow.key) else { return Vec::new() };
        if flow.numbers.is_empty() {
            let ports = (0..self.ports).filter(|port| self.front.takes(*port, *port));
            let put = ports.filter_map(|port| {
                let key = FlowKey { in_port: port, ..flow.key };
                let (macs, change) = (None, Change::None);
                self.front.put(&[Entry { key, port, macs, hop: false, change, mtu: 0 }], now)
            });
            flow.numbers = put.collect();
        }
        let name = |number: &u32| {
            let named = Named { number: *number, generation, key: flow.key, action: flow.action };
            Message::Name { number: *number, flow: Some(named) }
        };
        flow.numbers.iter().map(name).collect()
    }

    fn remove(&mut self, numbers: &[u32], now: Nanos) {
        for number in numbers {
            self.front.remove(*number);
            self.leaving.push_back((now, *number));
        }
    }
}

/// The message that a number names nothing.
const fn forget(number: u32) -> Message {
    Message::Name { number, flow: None }
}
