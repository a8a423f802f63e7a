//! Linear table: rules in a list, the highest first. It is slow and simple: the reference model for
//! [`super::Wildcard`], and the linear table of the OpenFlow reference switch.
//!
//! Invariants: the list is in descending order of ranks.
//! Thread-safety: plain data.

use flowyard_frame::{Batch, FlowKey, Lanes};

use super::rank::rank;
use super::rules::Rule;
use super::{Reason, Table};

/// A list of rules.
#[derive(Clone, Debug)]
pub struct Linear {
    capacity: usize,
    puts: u64,
    /// Rules with their ranks.
    list: Vec<(u64, Rule)>,
}

impl Linear {
    /// A list for `capacity` rules.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, puts: 0, list: Vec::new() }
    }

    /// Number of rules.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no rule.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds the rule. If there is a rule with equal key, mask and priority, its action is replaced and
    /// it keeps its position.
    ///
    /// # Errors
    /// When the key has bits outside the mask, or the list is full.
    pub fn put(&mut self, rule: &Rule) -> Result<(), Reason> {
        if !rule.key.is_within(&rule.mask) {
            return Err(Reason::OutsideMask);
        }
        if let Some(at) = self.position(&rule.key, &rule.mask, rule.priority) {
            self.list[at].1.action = rule.action;
            return Ok(());
        }
        if self.list.len() == self.capacity {
            return Err(Reason::Full { capacity: self.capacity });
        }
        let rank = rank(rule.priority.into(), self.puts);
        self.puts += 1;
        let at = self.list.partition_point(|(other, _)| *other > rank);
        self.list.insert(at, (rank, *rule));
        Ok(())
    }

    /// Removes the rule with this key, mask and priority; returns whether there was one.
    pub fn del(&mut self, key: &FlowKey, mask: &FlowKey, priority: u16) -> bool {
        let at = self.position(key, mask, priority);
        at.map(|at| self.list.remove(at)).is_some()
    }

    /// The rule that answers a frame with this key.
    #[must_use]
    pub fn get(&self, key: &FlowKey) -> Option<&Rule> {
        self.list.iter().map(|(_, rule)| rule).find(|rule| rule.matches(key))
    }

    fn position(&self, key: &FlowKey, mask: &FlowKey, priority: u16) -> Option<usize> {
        let same = |rule: &Rule| (&rule.key, &rule.mask, rule.priority) == (key, mask, priority);
        self.list.iter().position(|(_, rule)| same(rule))
    }
}

impl Table for Linear {
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes {
        let mut missed = Lanes::NONE;
        for lane in want {
            match self.get(&batch.keys[lane]) {
                Some(Rule { action, .. }) => batch.actions[lane] = *action,
                None => missed = missed.with(lane),
            }
        }
        missed
    }
}
