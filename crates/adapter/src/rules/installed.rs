//! The rules that a driver has accepted so far, with the indexes that its checks need.
//!
//! Invariants: `by_filter` has one of the locations of each filter; `top` is one above the highest
//! free location.
//! Thread-safety: plain data.

use std::collections::{BTreeMap, HashMap};

use flowyard_frame::FlowKey;

use super::rule::{FlowType, Rule};
use super::target::Target;

/// The installed rules.
pub(super) struct Installed<'a> {
    target: Target,
    by_loc: BTreeMap<u32, (usize, &'a Rule)>,
    /// One location of each filter.
    by_filter: HashMap<(FlowType, FlowKey, FlowKey), u32>,
    /// The number of rules of each flow type, and one of them; all have the same input set.
    by_type: HashMap<FlowType, (u32, &'a Rule)>,
    /// One above the highest free location.
    top: u32,
}

impl<'a> Installed<'a> {
    pub(super) fn new(target: Target) -> Self {
        let top = target.locations();
        let (by_filter, by_type) = (HashMap::new(), HashMap::new());
        Self { target, by_loc: BTreeMap::new(), by_filter, by_type, top }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &'a Rule)> + '_ {
        self.by_loc.iter().map(|(&loc, &(_, rule))| (loc, rule))
    }

    /// Any rule of this flow type.
    pub(super) fn of_type(&self, flow_type: FlowType) -> Option<&'a Rule> {
        self.by_type.get(&flow_type).map(|&(_, rule)| rule)
    }

    pub(super) fn filter(&self, rule: &Rule) -> (FlowType, FlowKey, FlowKey) {
        let (key, mask) = self.target.filter(rule);
        (rule.flow_type, key, mask)
    }

    /// The location and the rule of an equal filter that is not at `loc`.
    pub(super) fn same(&self, rule: &Rule, loc: u32) -> Option<(u32, &'a Rule)> {
        let at = *self.by_filter.get(&self.filter(rule)).filter(|&&at| at != loc)?;
        Some((at, self.by_loc.get(&at)?.1))
    }

    /// The location that ethtool chooses if the driver cannot: the highest free one.
    pub(super) fn free(&self) -> Option<u32> {
        self.top.checked_sub(1)
    }

    /// Installs a rule at `loc`, and returns the index of the rule that it overwrites.
    pub(super) fn insert(&mut self, loc: u32, index: usize, rule: &'a Rule) -> Option<usize> {
        let old = self.by_loc.insert(loc, (index, rule));
        if let Some((_, old)) = old {
            let filter = self.filter(old);
            if self.by_filter.get(&filter) == Some(&loc) {
                self.by_filter.remove(&filter);
            }
            if let Some((count, _)) = self.by_type.get_mut(&old.flow_type) {
                *count -= 1;
                if *count == 0 {
                    self.by_type.remove(&old.flow_type);
                }
            }
        }
        let filter = self.filter(rule);
        self.by_filter.entry(filter).or_insert(loc);
        self.by_type.entry(rule.flow_type).or_insert((0, rule)).0 += 1;
        while self.top > 0 && self.by_loc.contains_key(&(self.top - 1)) {
            self.top -= 1;
        }
        old.map(|(index, _)| index)
    }

    /// After the rule `of` was overwritten: makes a copy of its filter the one that applies, and
    /// returns the location and index of the copy. `None` if there is none.
    pub(super) fn promote_copy(&mut self, of: &Rule) -> Option<(u32, usize)> {
        let filter = self.filter(of);
        if self.by_filter.contains_key(&filter) {
            return None;
        }
        let (&loc, &(index, _)) =
            self.by_loc.iter().find(|(_, (_, rule))| self.filter(rule) == filter)?;
        self.by_filter.insert(filter, loc);
        Some((loc, index))
    }
}
