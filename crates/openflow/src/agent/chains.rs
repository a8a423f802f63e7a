//! Chains of groups: which groups refer to which, and what a chain costs a frame.
//!
//! ```text
//!   group 1 (all) ── bucket ──> group 2 (all) ── bucket ──> output     depth 1, 2 + 2 * 2 = 6 buckets
//!                └── bucket ──> group 2          └── bucket ──> output
//! ```
//!
//! The cost of a group is computed once, when the group changes, from the costs of the groups that
//! its buckets name. A group that is named in many places is therefore never walked twice.
//!
//! Invariants: no chain leads back to its start; no chain is longer than [`CHAIN`] groups below its
//! first; no frame meets more than [`WORK`] buckets in a chain. A change costs time linear in the
//! buckets of the groups that it affects: those above it, and, if there are any, those below it.
//! Thread-safety: plain data.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::GroupState;
use crate::act::Action;
use crate::group::{Bucket, GroupType};
use crate::problem::{self, Problem};

/// The largest number of groups in a chain below its first.
pub(super) const CHAIN: u32 = 32;
/// The largest number of buckets that a frame meets in a chain of groups. Data planes have the same
/// limit for all chains that a frame meets, as Open vSwitch has for its resubmit actions.
pub(super) const WORK: u32 = 4096;

/// The groups of a switch, by number.
pub(super) type Groups = BTreeMap<u32, GroupState>;

/// What a group costs a frame, at worst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cost {
    /// The number of groups in the longest chain below it.
    depth: u32,
    /// The number of buckets that are applied, in it and below it.
    buckets: u32,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Chains {
    costs: BTreeMap<u32, Cost>,
    /// The groups whose buckets name a group.
    users: BTreeMap<u32, BTreeSet<u32>>,
    /// The number of buckets of all groups.
    buckets: usize,
    /// The weight of all groups: see [`super::memory`].
    bytes: usize,
    /// The number of buckets that were looked at, for tests of the cost of changes.
    #[cfg(test)]
    pub(super) looked_at: std::cell::Cell<u64>,
}

fn named(buckets: &[Bucket]) -> impl Iterator<Item = u32> {
    buckets.iter().flat_map(|bucket| &bucket.actions).filter_map(|action| match action {
        Action::Group(group) => Some(*group),
        _ => None,
    })
}

impl Chains {
    /// The number of buckets of all groups.
    pub(super) const fn buckets(&self) -> usize {
        self.buckets
    }

    /// What the groups take, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether buckets of other groups name this one.
    pub(super) fn is_named(&self, group: u32) -> bool {
        self.users.get(&group).is_some_and(|users| users.iter().any(|user| *user != group))
    }

    /// Counts buckets that are looked at.
    fn look(&self, buckets: &[Bucket]) {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + buckets.len() as u64);
        let _ = (self, buckets);
    }

    /// The cost of a group with these buckets. `of` is the cost of a group that they name.
    fn cost(&self, kind: GroupType, buckets: &[Bucket], mut of: impl FnMut(u32) -> Cost) -> Cost {
        self.look(buckets);
        let (mut depth, mut all, mut most) = (0, 0_u32, 0_u32);
        for bucket in buckets {
            let mut below = 0;
            // The actions of a bucket are a set: of several groups, the last one is applied.
            for group in named(std::slice::from_ref(bucket)) {
                let cost = of(group);
                depth = depth.max(cost.depth.saturating_add(1));
                below = cost.buckets;
            }
            let here = below.saturating_add(1);
            (all, most) = (all.saturating_add(here), most.max(here));
        }
        // Groups of the other types apply one of their buckets.
        Cost { depth, buckets: if kind == GroupType::All { all } else { most } }
    }

    fn of(&self, group: u32) -> Cost {
        self.costs.get(&group).copied().unwrap_or_default()
    }

    /// Whether a chain from one of these buckets leads to `to`.
    fn leads_to(&self, groups: &Groups, buckets: &[Bucket], to: u32) -> bool {
        self.look(buckets);
        let mut seen: BTreeSet<u32> = named(buckets).collect();
        if seen.contains(&to) {
            return true;
        }
        // A group that nothing names is at the end of no chain.
        if !self.is_named(to) {
            return false;
        }
        let mut open: Vec<u32> = seen.iter().copied().collect();
        while let Some(group) = open.pop() {
            let Some(state) = groups.get(&group) else { continue };
            self.look(&state.group.desc.buckets);
            for next in named(&state.group.desc.buckets) {
                if next == to {
                    return true;
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        false
    }

    /// Whether a group may have these buckets.
    ///
    /// # Errors
    /// When a chain would lead to its start, would be too long, or would cost a frame too much.
    pub(super) fn check(
        &self,
        groups: &Groups,
        group: u32,
        kind: GroupType,
        buckets: &[Bucket],
    ) -> Result<(), Problem> {
        if self.leads_to(groups, buckets, group) {
            return Err(problem::GROUP_LOOP);
        }
        let new = self.cost(kind, buckets, |named| self.of(named));
        for (_, Cost { depth, buckets }) in self.affected(groups, group, new) {
            if depth > CHAIN {
                return Err(problem::GROUP_CHAIN_TOO_LONG);
            }
            if buckets > WORK {
                return Err(problem::GROUP_TOO_MUCH_WORK);
            }
        }
        Ok(())
    }

    /// The costs of a group and of those above it, if it costs `new`.
    fn affected(&self, groups: &Groups, group: u32, new: Cost) -> BTreeMap<u32, Cost> {
        let mut done = BTreeMap::from([(group, new)]);
        if new == self.of(group) {
            return done;
        }
        let mut above = BTreeSet::new();
        let mut open = vec![group];
        while let Some(one) = open.pop() {
            for user in self.users.get(&one).into_iter().flatten() {
                if *user != group && above.insert(*user) {
                    open.push(*user);
                }
            }
        }
        for one in &above {
            self.renew(groups, &above, *one, &mut done);
        }
        done
    }

    /// The new cost of a group above a changed one. No chain is longer than two of [`CHAIN`] groups
    /// here, which limits the depth of the calls.
    fn renew(
        &self,
        groups: &Groups,
        above: &BTreeSet<u32>,
        group: u32,
        done: &mut BTreeMap<u32, Cost>,
    ) -> Cost {
        if let Some(cost) = done.get(&group) {
            return *cost;
        }
        let Some(state) = groups.get(&group).filter(|_| above.contains(&group)) else {
            return self.of(group);
        };
        let desc = &state.group.desc;
        let cost =
            self.cost(desc.kind, &desc.buckets, |named| self.renew(groups, above, named, done));
        done.insert(group, cost);
        cost
    }

    /// A group has changed from `old` to what `groups` has now, or was added or removed.
    pub(super) fn changed(&mut self, groups: &Groups, group: u32, old: Option<&GroupState>) {
        let now = groups.get(&group);
        let buckets =
            |state: Option<&GroupState>| state.map_or(0, |one| one.group.desc.buckets.len());
        let of = |state: Option<&GroupState>| state.map_or(0, GroupState::weight);
        self.buckets = (self.buckets + buckets(now)).saturating_sub(buckets(old));
        self.bytes = (self.bytes + of(now)).saturating_sub(of(old));
        for to in old.iter().flat_map(|state| named(&state.group.desc.buckets)) {
            if let Some(users) = self.users.get_mut(&to) {
                users.remove(&group);
                if users.is_empty() {
                    self.users.remove(&to);
                }
            }
        }
        let Some(state) = now else {
            self.costs.remove(&group);
            return;
        };
        let desc = &state.group.desc;
        for to in named(&desc.buckets) {
            self.users.entry(to).or_default().insert(group);
        }
        let new = self.cost(desc.kind, &desc.buckets, |named| self.of(named));
        let affected = self.affected(groups, group, new);
        self.costs.extend(affected);
    }
}
