//! Wildcard table: rules with masks and priorities, found by tuple space search.
//!
//! ```text
//!  key, mask, priority ──> TupleSpace: one hash table for each mask ──> number ──> action
//! ```
//!
//! The matching is that of [`TupleSpace`], with one tuple for each mask. A lookup costs at most one
//! probe for each mask, and [`Wildcard::new`] bounds their number: a rule that would need one more
//! mask is refused.
//!
//! Invariants: the rules of the space number the actions; no allocation on lookup.
//! Thread-safety: plain data; lookup takes `&self`, so that cores may share an immutable table.

use flowyard_frame::{Action, Batch, FlowKey, LANES, Lanes};

use super::rank::priority;
use super::rules::Rule;
use super::tuples::{Entry, Found, TupleSpace};
use super::{Reason, Table};

/// Rules by key, mask and priority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wildcard {
    capacity: usize,
    masks: usize,
    space: TupleSpace<8>,
    /// By number of a rule.
    actions: Vec<Action>,
    /// Numbers that no rule has.
    free: Vec<u32>,
}

/// The key as words.
#[inline]
fn words(key: &FlowKey) -> &[u64; 8] {
    zerocopy::transmute_ref!(key)
}

fn entry<'a>(key: &'a FlowKey, mask: &'a FlowKey, priority: u16) -> Entry<'a, 8> {
    Entry { value: words(key), mask: words(mask), priority: priority.into() }
}

impl Wildcard {
    /// A table for `capacity` rules (at most 2^28) with at most `masks` different masks; a lookup costs
    /// up to one probe for each mask. `seed` decides where keys are placed; keep it from those who choose
    /// the keys.
    #[must_use]
    pub fn new(capacity: usize, masks: usize, seed: u64) -> Self {
        Self {
            capacity: capacity.min(1 << 28),
            masks,
            space: TupleSpace::new(usize::MAX, seed),
            actions: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.space.len()
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.space.is_empty()
    }

    /// Number of different masks.
    #[must_use]
    pub const fn masks(&self) -> usize {
        self.space.tuples()
    }

    /// Adds the rule. If there is a rule with equal key, mask and priority, its action is replaced and
    /// it keeps its position among those of its priority.
    ///
    /// # Errors
    /// When the key has bits outside the mask, or the limit of rules or masks is reached.
    pub fn put(&mut self, rule: &Rule) -> Result<(), Reason> {
        if !rule.key.is_within(&rule.mask) {
            return Err(Reason::OutsideMask);
        }
        let entry = entry(&rule.key, &rule.mask, rule.priority);
        if let Some(number) = self.space.find(&entry) {
            self.actions[number as usize] = rule.action;
            return Ok(());
        }
        if self.len() == self.capacity {
            return Err(Reason::Full { capacity: self.capacity });
        }
        if self.masks() >= self.masks && !self.space.has_tuple(entry.mask) {
            return Err(Reason::Masks { limit: self.masks });
        }
        let number = self.free.pop().unwrap_or(self.actions.len() as u32);
        if number as usize == self.actions.len() {
            self.actions.push(rule.action);
        } else {
            self.actions[number as usize] = rule.action;
        }
        self.space.insert(&entry, number, &[]);
        Ok(())
    }

    /// Removes the rule with this key, mask and priority; returns whether there was one. Bits of the
    /// key outside the mask are ignored.
    pub fn del(&mut self, key: &FlowKey, mask: &FlowKey, priority: u16) -> bool {
        let number = self.space.remove(&entry(&key.masked(mask), mask, priority));
        self.free.extend(number);
        number.is_some()
    }

    /// The action of the rule that answers a frame with this key, and its priority.
    #[must_use]
    pub fn get(&self, key: &FlowKey) -> Option<(Action, u16)> {
        let found = self.space.lookup(words(key));
        found.map(|found| (self.actions[found.number as usize], priority(found.rank)))
    }

    /// The highest rank of the rules that match on more than `mask` has; 0 if none does.
    pub(super) fn doubt(&self, mask: &FlowKey) -> u64 {
        self.space.top_beyond(words(mask))
    }

    /// Writes the actions of the lanes that match; returns those that missed, and those whose
    /// rules have a higher rank than `doubt`.
    pub(super) fn search(&self, batch: &mut Batch, want: Lanes, doubt: u64) -> (Lanes, Lanes) {
        let keys = &batch.keys;
        let mut found = [Found::NOTHING; LANES];
        let hit = self.space.lookup_all(move |lane| words(&keys[lane]), want, &mut found);
        let mut sure = Lanes::NONE;
        for lane in hit {
            let Found { rank, number } = found[lane];
            batch.actions[lane] = self.actions[number as usize];
            if rank > doubt {
                sure = sure.with(lane);
            }
        }
        (want.without(hit), sure)
    }
}

impl Table for Wildcard {
    #[inline]
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes {
        self.search(batch, want, u64::MAX).0
    }
}

#[cfg(test)]
mod tests;
