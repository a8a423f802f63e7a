//! Flow entries of the switch itself: the table miss of 1.0, and the operation without a
//! controller.

use std::sync::Arc;

use super::peers::Peer;
use super::table::Rule;
use super::{Agent, counts};
use crate::act::{Action, Instruction};
use crate::change::{Change, Entry};
use crate::{Match, Version};

impl Agent {
    /// A flow entry that no controller has added.
    fn own_flow(&mut self, priority: u16, to: u32) -> Arc<Entry> {
        self.next_entry += 1;
        let output = Action::Output { port: to, max_len: u16::MAX };
        Arc::new(Entry {
            id: self.next_entry,
            table: 0,
            priority,
            cookie: u64::MAX,
            flags: 0,
            matching: Match::default(),
            instructions: vec![Instruction::ApplyActions(vec![output])],
            counts: counts(self.cores),
        })
    }

    /// Adds or removes the switch's own entry for frames without a match (1.0).
    pub(super) fn refresh_miss(&mut self) {
        let old = |peer: &Peer| peer.version == Version::V10;
        let wanted = match &self.miss {
            // After the last controller has disconnected, nothing changes.
            Some(_) => self.peers.is_empty() || self.peers.values().any(old),
            None => self.peers.values().any(old),
        };
        if wanted == self.miss.is_some() || self.tables.is_empty() {
            return;
        }
        let place = Rule::new(0, &Match::default());
        let taken = self.tables[0].get(&place).is_some();
        let miss = match self.miss.take() {
            Some(miss) if !taken => Change::FlowGone(miss),
            Some(_) => return,
            None => {
                let miss = self.own_flow(0, crate::port::reserved::CONTROLLER);
                self.miss = Some(Arc::clone(&miss));
                if taken {
                    return;
                }
                Change::Flow(miss)
            }
        };
        self.emit(miss);
    }

    /// While `on`, every frame is handled as by the port `OFPP_NORMAL` (fail-standalone, 1.3.5,
    /// section 6.3.2). The other flow entries stay, and answer again when it is off.
    pub fn standalone(&mut self, on: bool) {
        if on == self.alone.is_some() || self.tables.is_empty() {
            return;
        }
        let top: Vec<Arc<Entry>> =
            self.tables[0].of_priority(u16::MAX).map(|flow| Arc::clone(&flow.entry)).collect();
        if let Some(alone) = self.alone.take() {
            self.emit(Change::FlowGone(alone));
            top.into_iter().for_each(|entry| self.emit(Change::Flow(entry)));
        } else {
            top.into_iter().for_each(|entry| self.emit(Change::FlowGone(entry)));
            let alone = self.own_flow(u16::MAX, crate::port::reserved::NORMAL);
            self.alone = Some(Arc::clone(&alone));
            self.emit(Change::Flow(alone));
        }
    }
}
