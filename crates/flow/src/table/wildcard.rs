//! Wildcard table: rules with masks and priorities, by tuple space search.
//!
//! ```text
//!            mask                    highest rule   hash table of the keys under this mask
//!  tuple 0   dst/32 proto dport      priority 90    [slot][slot][    ][slot] ...
//!  tuple 1   src/8                   priority 50    [slot][    ]      │
//!  tuple 2   (nothing)               priority 0     [slot]            └─> rule ─> next lower rule
//!                                                                         with equal key and mask
//! ```
//!
//! There is one hash table for each mask (Srinivasan, Suri, Varghese, SIGCOMM 1999), and the masks are
//! in the order of their highest rule (the pruning of Open vSwitch, NSDI 2015): a lane with an answer
//! that outranks all remaining rules is not looked up further. The lanes of a batch are looked up in a
//! tuple together, so that their cache misses overlap. Only the words in which a mask has bits are
//! read and hashed.
//!
//! A lookup costs at most one probe for each mask, and [`Wildcard::new`] bounds their number. No
//! traffic can raise this cost, unlike that of a wildcard cache which packets fill (tuple space
//! explosion, CoNEXT 2019).
//!
//! Invariants: a tuple has at least one rule; tuples are in descending order of `top`; a slot refers
//! to the highest rule of its key, and each rule to the next lower one; lookups do not allocate.
//! Thread-safety: plain data; lookup takes `&self`, so that cores may share an immutable table.

use std::collections::BTreeSet;

use flowyard_frame::{Action, Batch, FlowKey, LANES, Lanes, Rng};

use super::rules::{Rule, priority, rank};
use super::{Reason, Table};
use crate::mix::fold;

/// No rule.
const NONE: u32 = u32::MAX;

/// Rules by key, mask and priority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wildcard {
    capacity: usize,
    masks: usize,
    seed: [u64; 8],
    puts: u64,
    tuples: Vec<Tuple>,
    /// The key of each rule.
    keys: Vec<FlowKey>,
    /// The other fields of each rule.
    rest: Vec<Rest>,
    /// Free rule numbers.
    free: Vec<u32>,
}

/// The fields of a rule except key and mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rest {
    rank: u64,
    action: Action,
    /// The next lower rule with the same key and mask.
    below: u32,
}

/// All rules with one mask.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Tuple {
    mask: FlowKey,
    /// The indexes of the words in which the mask has bits, with those bits; padded with an empty word
    /// to an even number.
    words: [(u8, u64); 8],
    used: usize,
    /// The highest rank in this tuple.
    top: u64,
    ranks: BTreeSet<u64>,
    /// Hash (32 bits) and rule number + 1 (32 bits); 0 is a free slot. Linear probing, at most half
    /// full.
    slots: Box<[u64]>,
    /// Number of slots taken.
    keys: usize,
}

impl Wildcard {
    /// A table for `capacity` rules (at most 2^28) with at most `masks` different masks; a lookup costs
    /// up to one probe for each mask. `seed` decides where keys are placed; keep it from those who choose
    /// the keys.
    #[must_use]
    pub fn new(capacity: usize, masks: usize, seed: u64) -> Self {
        let mut random = Rng::new(seed);
        Self {
            capacity: capacity.min(1 << 28),
            masks,
            seed: std::array::from_fn(|_| random.bits() | 1),
            puts: 0,
            tuples: Vec::new(),
            keys: Vec::new(),
            rest: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Number of rules.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keys.len() - self.free.len()
    }

    /// Whether there is no rule.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of different masks.
    #[must_use]
    pub const fn masks(&self) -> usize {
        self.tuples.len()
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
        let known = self.tuple(&rule.mask);
        let head = known.and_then(|at| self.head(&self.tuples[at], &rule.key));
        let equal = self.chain(head).find(|&(_, rest)| priority(rest.rank) == rule.priority);
        if let Some((number, _)) = equal {
            self.rest[number as usize].action = rule.action;
            return Ok(());
        }
        if self.len() == self.capacity {
            return Err(Reason::Full { capacity: self.capacity });
        }
        if known.is_none() && self.tuples.len() == self.masks {
            return Err(Reason::Masks { limit: self.masks });
        }
        let at = known.unwrap_or_else(|| {
            self.tuples.push(Tuple::new(&rule.mask));
            self.tuples.len() - 1
        });
        let rank = rank(rule.priority, self.puts);
        self.puts += 1;
        let above = self.chain(head).take_while(|(_, rest)| rest.rank > rank).last();
        let below = above.map_or(head, |(_, rest)| Some(rest.below)).unwrap_or(NONE);
        let number = self.store(&rule.key, Rest { rank, action: rule.action, below });
        let tuple = &mut self.tuples[at];
        tuple.ranks.insert(rank);
        match (above, head) {
            (Some((above, _)), _) => self.rest[above as usize].below = number,
            (None, Some(old)) => tuple.rename(tuple.hash(&self.seed, &rule.key), old, number),
            (None, None) => tuple.insert(tuple.hash(&self.seed, &rule.key), number),
        }
        self.arrange(at);
        Ok(())
    }

    /// Removes the rule with this key, mask and priority; returns whether there was one.
    pub fn del(&mut self, key: &FlowKey, mask: &FlowKey, priority: u16) -> bool {
        let Some(at) = self.tuple(mask) else { return false };
        let head = self.head(&self.tuples[at], key);
        let mut above = None;
        let found = self.chain(head).find(|(number, rest)| {
            let equal = self::priority(rest.rank) == priority;
            above = if equal { above } else { Some(*number) };
            equal
        });
        let Some((number, Rest { rank, below, .. })) = found else { return false };
        let tuple = &mut self.tuples[at];
        let hash = tuple.hash(&self.seed, key);
        match (above, below) {
            (Some(above), _) => self.rest[above as usize].below = below,
            (None, NONE) => tuple.remove(hash, number),
            (None, _) => tuple.rename(hash, number, below),
        }
        tuple.ranks.remove(&rank);
        self.free.push(number);
        self.arrange(at);
        true
    }

    /// The action of the rule that answers a frame with this key, and its priority.
    #[must_use]
    pub fn get(&self, key: &FlowKey) -> Option<(Action, u16)> {
        let mut best: Option<Rest> = None;
        for tuple in &self.tuples {
            if best.is_some_and(|best| best.rank > tuple.top) {
                break;
            }
            let rest = self.head(tuple, key).map(|number| self.rest[number as usize]);
            best = best.into_iter().chain(rest).max_by_key(|rest| rest.rank);
        }
        best.map(|rest| (rest.action, priority(rest.rank)))
    }

    /// The highest rank of the rules that match on fields outside `mask`; 0 if none does.
    pub(super) fn doubt(&self, mask: &FlowKey) -> u64 {
        let beyond = self.tuples.iter().find(|tuple| !tuple.mask.is_within(mask));
        beyond.map_or(0, |tuple| tuple.top)
    }

    /// Writes the actions of the lanes that match; returns those that missed, and those whose
    /// rules have a higher rank than `doubt`.
    pub(super) fn search(&self, batch: &mut Batch, want: Lanes, doubt: u64) -> (Lanes, Lanes) {
        let mut best = [(0_u64, NONE); LANES];
        let (mut left, mut found) = (want, Lanes::NONE);
        for tuple in &self.tuples {
            // Lanes with an answer that outranks this tuple and all later ones are finished.
            for lane in Lanes(left.0 & found.0) {
                if best[lane].0 > tuple.top {
                    left = left.without(Lanes::NONE.with(lane));
                }
            }
            if left.is_empty() {
                break;
            }
            let mut hashes = [0; LANES];
            for lane in left {
                hashes[lane] = tuple.hash(&self.seed, &batch.keys[lane]);
            }
            // Most lanes need one probe: they find a free slot, or one with their hash.
            let mut maybe = Lanes::NONE;
            let end = tuple.slots.len() - 1;
            for lane in left {
                if tuple.slots[hashes[lane] as usize & end] != 0 {
                    maybe = maybe.with(lane);
                }
            }
            for lane in maybe {
                let Some(number) = tuple.find(hashes[lane], |number| {
                    tuple.equal(&self.keys[number as usize], &batch.keys[lane])
                }) else {
                    continue;
                };
                let rank = self.rest[number as usize].rank;
                if rank > best[lane].0 {
                    best[lane] = (rank, number);
                    found = found.with(lane);
                }
            }
        }
        let mut sure = Lanes::NONE;
        for lane in found {
            let (rank, number) = best[lane];
            batch.actions[lane] = self.rest[number as usize].action;
            if rank > doubt {
                sure = sure.with(lane);
            }
        }
        (want.without(found), sure)
    }

    fn tuple(&self, mask: &FlowKey) -> Option<usize> {
        self.tuples.iter().position(|tuple| tuple.mask == *mask)
    }

    /// The highest rule of a tuple that matches a key.
    fn head(&self, tuple: &Tuple, key: &FlowKey) -> Option<u32> {
        let hash = tuple.hash(&self.seed, key);
        tuple.find(hash, |number| tuple.equal(&self.keys[number as usize], key))
    }

    /// A rule and all lower rules with the same key and mask.
    fn chain(&self, head: Option<u32>) -> impl Iterator<Item = (u32, Rest)> + '_ {
        let step = |number: u32| self.rest.get(number as usize).map(|rest| (number, *rest));
        std::iter::successors(head.and_then(step), move |(_, rest)| step(rest.below))
    }

    fn store(&mut self, key: &FlowKey, rest: Rest) -> u32 {
        if let Some(number) = self.free.pop() {
            (self.keys[number as usize], self.rest[number as usize]) = (*key, rest);
            return number;
        }
        self.keys.push(*key);
        self.rest.push(rest);
        self.keys.len() as u32 - 1
    }

    /// Restores the order of tuples after tuple `at` has changed; removes it if it is empty.
    fn arrange(&mut self, at: usize) {
        let tuple = &mut self.tuples[at];
        let Some(&top) = tuple.ranks.last() else {
            self.tuples.remove(at);
            return;
        };
        if tuple.top != top {
            tuple.top = top;
            self.tuples.sort_by_key(|tuple| std::cmp::Reverse(tuple.top));
        }
    }
}

impl Tuple {
    fn new(mask: &FlowKey) -> Self {
        let all: [u64; 8] = zerocopy::transmute!(*mask);
        let mut words = [(0, 0); 8];
        let mut used = 0;
        for (index, bits) in (0..).zip(all).filter(|(_, bits)| *bits != 0) {
            words[used] = (index, bits);
            used += 1;
        }
        let (slots, used) = (vec![0; 8].into(), used.next_multiple_of(2));
        Self { mask: *mask, words, used, top: 0, ranks: BTreeSet::new(), slots, keys: 0 }
    }

    #[inline]
    fn hash(&self, seed: &[u64; 8], key: &FlowKey) -> u32 {
        let key: &[u64; 8] = zerocopy::transmute_ref!(key);
        let word = |(index, bits): (u8, u64)| key[usize::from(index & 7)] & bits;
        let pairs = self.words[..self.used].chunks_exact(2).zip(seed.chunks_exact(2));
        let sum = pairs.fold(0, |sum, (w, s)| sum ^ fold(word(w[0]) ^ s[0], word(w[1]) ^ s[1]));
        (sum ^ sum >> 32) as u32
    }

    /// Whether a key equals a rule's key under the mask.
    #[inline]
    fn equal(&self, rule: &FlowKey, key: &FlowKey) -> bool {
        let (rule, key): (&[u64; 8], &[u64; 8]) =
            (zerocopy::transmute_ref!(rule), zerocopy::transmute_ref!(key));
        let differ = |&(index, bits): &(u8, u64)| {
            let index = usize::from(index & 7);
            (rule[index] ^ key[index]) & bits
        };
        self.words[..self.used].iter().fold(0, |sum, word| sum | differ(word)) == 0
    }

    /// The number of the rule with this hash for which `wanted` holds.
    #[inline]
    fn find(&self, hash: u32, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        self.position(hash, wanted).map(|at| self.slots[at] as u32 - 1)
    }

    #[inline]
    fn position(&self, hash: u32, wanted: impl Fn(u32) -> bool) -> Option<usize> {
        let end = self.slots.len() - 1;
        let mut at = hash as usize & end;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == hash && wanted(slot as u32 - 1) {
                return Some(at);
            }
            at = (at + 1) & end;
        }
    }

    fn insert(&mut self, hash: u32, number: u32) {
        self.keys += 1;
        if self.keys * 2 > self.slots.len() {
            let larger = vec![0; self.slots.len() * 2].into();
            let old = std::mem::replace(&mut self.slots, larger);
            old.iter().filter(|slot| **slot != 0).for_each(|slot| self.set(*slot));
        }
        self.set(u64::from(hash) << 32 | u64::from(number + 1));
    }

    fn set(&mut self, slot: u64) {
        let end = self.slots.len() - 1;
        let mut at = (slot >> 32) as usize & end;
        while self.slots[at] != 0 {
            at = (at + 1) & end;
        }
        self.slots[at] = slot;
    }

    /// Makes another rule the highest of its key.
    fn rename(&mut self, hash: u32, from: u32, to: u32) {
        if let Some(at) = self.position(hash, |number| number == from) {
            self.slots[at] = u64::from(hash) << 32 | u64::from(to + 1);
        }
    }

    /// Frees a slot; later slots move up, so that no probe ends too early.
    fn remove(&mut self, hash: u32, number: u32) {
        let Some(mut hole) = self.position(hash, |other| other == number) else { return };
        self.keys -= 1;
        let end = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & end;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            let home = (slot >> 32) as usize & end;
            // The slot may move to the hole unless its home position is after the hole.
            if (at.wrapping_sub(home) & end) >= (at.wrapping_sub(hole) & end) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = 0;
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
