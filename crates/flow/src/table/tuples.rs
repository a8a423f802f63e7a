//! The matching kit: tuple space search over keys of `N` 64-bit words. The yard's rules and the
//! tables of an OpenFlow switch are both found by it.
//!
//! ```text
//!            mask (fewer bits than its rules have)    slots by hash      rules, falling rank
//!  tuple 0   eth_type dst/24                 top 90   [ ][.][ ][.] ───> /32 tcp 80 ─> /24 ─> ..
//!  tuple 1   eth_type src/8                  top 50   [.][ ]            at most LIMIT of them
//!  tuple 2   (nothing)                       top  0   [.]
//! ```
//!
//! A tuple is one hash table for all rules that are hashed under one mask (Srinivasan, Suri,
//! Varghese, SIGCOMM 1999). The tuples are ordered by their highest rule, so that a lookup ends at
//! the first tuple that cannot outrank the answer found so far (Open vSwitch, NSDI 2015). The keys
//! of a batch go through a tuple together, so that their cache misses overlap. Only the words that
//! a mask has bits in are read and hashed.
//!
//! A rule is compared in full, so it may be stored in any tuple whose mask is part of its own mask.
//! The caller decides which: without [coarser masks](TupleSpace::insert) a rule is stored under its
//! own mask, which is plain tuple space search. With them, rules of several masks share a tuple
//! (TupleMerge, ToN 2019): a new rule goes to the tuple that hashes most of its bits and in which
//! fewer than [`LIMIT`] rules share its slot. If there is none, a new tuple is made, under the
//! coarsest mask that is not in use.
//!
//! A lookup probes each tuple at most once, and [`TupleSpace::new`] bounds their number. Packets
//! add no tuples, so no stream of packets can make a lookup more expensive. A cache of wildcards
//! that packets fill has no such bound (tuple space explosion, CoNEXT 2019).
//!
//! Invariants: each rule is in one chain; a chain falls in rank and has the rules of one hash;
//! tuples in use are ordered by falling `top`; a tuple in use has at least one rule; no allocation
//! on lookup.
//! Thread-safety: plain data. A lookup takes `&self`, so cores may share an immutable
//! space.

use std::collections::{BTreeSet, HashMap};

use flowyard_frame::{LANES, Lanes};

use self::identity::{Identities, identity};
use self::slots::Slots;
pub use self::words::{Words, seeds};
use super::rank::rank;

mod identity;
mod slots;
mod words;

/// Rules of one hash that a tuple takes before another tuple is made for a new one.
pub const LIMIT: usize = 10;

/// No rule.
const NONE: u32 = u32::MAX;
/// Words of a rule that are stored beside its rank; of even number. A rule that matches on the
/// input port, Ethernet, IPv4 and transport fields has no more.
const NEAR: usize = 6;

/// Derives a mask with fewer bits from a rule's mask.
pub type Coarser<const N: usize> = fn(&[u64; N]) -> [u64; N];

/// What a rule matches, and with which priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a, const N: usize> {
    /// The words of the key; zero outside `mask`.
    pub value: &'a [u64; N],
    /// The bits that are compared.
    pub mask: &'a [u64; N],
    /// Of all rules that match a key, one with the highest priority answers. At most 2^18 - 1.
    pub priority: u32,
}

/// The rule that answers a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Priority, then age: unique within a space and never 0.
    pub rank: u64,
    /// The number that the caller gave the rule.
    pub number: u32,
}

impl Found {
    /// No rule: every rule outranks it.
    pub const NOTHING: Self = Self { rank: 0, number: NONE };
}

/// Rules by value, mask and priority. `N` is a power of two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TupleSpace<const N: usize> {
    /// The most tuples, apart from the one that hashes nothing.
    most: usize,
    seeds: [u64; N],
    tuples: Vec<Tuple<N>>,
    /// The tuples in use, ordered by falling `top`.
    order: Vec<u32>,
    free_tuples: Vec<u32>,
    rules: Vec<Rule>,
    patterns: Vec<Pattern<N>>,
    /// Places in `rules` and `patterns` that no rule has.
    free: Vec<u32>,
    known: HashMap<u128, u32, Identities>,
    /// Rules that were ever added.
    added: u64,
}

/// What a lookup reads of a rule: the first cache line, and the second one in a mixed tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(128))]
struct Rule {
    rank: u64,
    /// The next rule of this hash, in falling rank.
    next: u32,
    /// The caller's.
    number: u32,
    /// The words that the mask has bits in.
    values: [u64; NEAR],
    masks: [u64; NEAR],
    tuple: u32,
    at: [u8; NEAR],
    /// How many words the mask has bits in. Above [`NEAR`] the pattern is compared instead.
    used: u8,
}

/// A rule in full.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pattern<const N: usize> {
    value: [u64; N],
    mask: [u64; N],
}

#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)] // what a lookup reads comes first
struct Tuple<const N: usize> {
    /// The highest rank of its rules.
    top: u64,
    slots: Slots,
    /// Some of its rules have had a mask other than its own.
    is_mixed: bool,
    words: Words<N>,
    mask: [u64; N],
    ranks: BTreeSet<u64>,
}

fn is_within<const N: usize>(mask: &[u64; N], other: &[u64; N]) -> bool {
    mask.iter().zip(other).all(|(bits, other)| bits & !other == 0)
}

impl<const N: usize> TupleSpace<N> {
    /// A space without rules and with at most `most` tuples, to which one is added for rules that
    /// find no place in them: it hashes nothing. `seed` decides where rules are stored; it must be
    /// kept from those who choose the keys.
    #[must_use]
    pub fn new(most: usize, seed: u64) -> Self {
        Self {
            most,
            seeds: seeds(seed),
            tuples: Vec::new(),
            order: Vec::new(),
            free_tuples: Vec::new(),
            rules: Vec::new(),
            patterns: Vec::new(),
            free: Vec::new(),
            known: HashMap::default(),
            added: 0,
        }
    }

    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Number of tuples in use; a lookup makes at most as many probes.
    #[must_use]
    pub const fn tuples(&self) -> usize {
        self.order.len()
    }

    /// Whether a tuple has this mask.
    #[must_use]
    pub fn has_tuple(&self, mask: &[u64; N]) -> bool {
        self.in_use().any(|(_, tuple)| tuple.mask == *mask)
    }

    /// The highest rank of the tuples whose masks have bits outside `mask`; 0 if there is none.
    #[must_use]
    pub fn top_beyond(&self, mask: &[u64; N]) -> u64 {
        let mut beyond = self.in_use().filter(|(_, tuple)| !is_within(&tuple.mask, mask));
        beyond.next().map_or(0, |(_, tuple)| tuple.top)
    }

    /// The rule that answers a key: one with the highest priority, and of those the first added.
    #[must_use]
    #[inline]
    pub fn lookup(&self, key: &[u64; N]) -> Option<Found> {
        let mut found = Found::NOTHING;
        for &tuple in &self.order {
            let tuple = &self.tuples[tuple as usize];
            if found.rank > tuple.top {
                break;
            }
            self.walk(tuple, self.first(tuple, key), key, &mut found);
        }
        (found != Found::NOTHING).then_some(found)
    }

    /// As [`TupleSpace::lookup`] for several keys: that of each lane of `lanes` is `key(lane)`.
    /// Returns the lanes that were answered; their answers are in `found`.
    #[inline]
    pub fn lookup_all<'k>(
        &self,
        key: impl Fn(usize) -> &'k [u64; N],
        lanes: Lanes,
        found: &mut [Found; LANES],
    ) -> Lanes {
        *found = [Found::NOTHING; LANES];
        let mut hashes = [0; LANES];
        let (mut left, mut answered) = (lanes, Lanes::NONE);
        for &tuple in &self.order {
            let tuple = &self.tuples[tuple as usize];
            for lane in Lanes(left.0 & answered.0) {
                if found[lane].rank > tuple.top {
                    left = left.without(Lanes::NONE.with(lane)); // nothing from here on outranks it
                }
            }
            if left.is_empty() {
                break;
            }
            let mut maybe = Lanes::NONE;
            for lane in left {
                hashes[lane] = self.slot_hash(tuple, key(lane));
                maybe.0 |= u32::from(tuple.slots.may_have(hashes[lane])) << lane;
            }
            for lane in maybe {
                let first = tuple.slots.get(hashes[lane]);
                if self.walk(tuple, first, key(lane), &mut found[lane]) {
                    answered = answered.with(lane);
                }
            }
        }
        answered
    }

    #[inline]
    fn slot_hash(&self, tuple: &Tuple<N>, key: &[u64; N]) -> u32 {
        tuple.words.slot_hash(key, &self.seeds)
    }

    /// The highest rule of a key's hash.
    #[inline]
    fn first(&self, tuple: &Tuple<N>, key: &[u64; N]) -> u32 {
        tuple.slots.get(self.slot_hash(tuple, key))
    }

    /// Follows a chain to the first rule that matches, as far as its rules outrank `found`. Returns
    /// whether there is such a rule; then it is `found`.
    #[inline]
    fn walk(&self, tuple: &Tuple<N>, mut at: u32, key: &[u64; N], found: &mut Found) -> bool {
        while let Some(rule) = self.rules.get(at as usize) {
            if rule.rank < found.rank {
                return false;
            }
            if self.matches(tuple, at, rule, key) {
                *found = Found { rank: rule.rank, number: rule.number };
                return true;
            }
            at = rule.next;
        }
        false
    }

    #[inline]
    fn matches(&self, tuple: &Tuple<N>, at: u32, rule: &Rule, key: &[u64; N]) -> bool {
        if !tuple.is_mixed && tuple.words.len() <= NEAR {
            let words = tuple.words.of(key).zip(rule.values);
            return words.fold(0, |sum, (word, value)| sum | word ^ value) == 0;
        }
        if usize::from(rule.used) > NEAR {
            return self.matches_wide(at, key);
        }
        let words = rule.at.iter().zip(rule.masks).zip(rule.values).take(rule.used.into());
        words.fold(0, |sum, ((at, mask), value)| {
            sum | key[usize::from(*at) & (N - 1)] & mask ^ value
        }) == 0
    }

    #[inline(never)] // rare
    fn matches_wide(&self, at: u32, key: &[u64; N]) -> bool {
        let Pattern { value, mask } = &self.patterns[at as usize];
        // Without a branch for each word: 16 words are four vector operations.
        (0..N).fold(0, |sum, at| sum | (key[at] ^ value[at]) & mask[at]) == 0
    }

    fn in_use(&self) -> impl Iterator<Item = (u32, &Tuple<N>)> {
        self.order.iter().map(|at| (*at, &self.tuples[*at as usize]))
    }

    /// The number of the rule with this value, mask and priority.
    #[must_use]
    pub fn find(&self, entry: &Entry<'_, N>) -> Option<u32> {
        let rule = *self.known.get(&identity(entry, &self.seeds))?;
        Some(self.rules[rule as usize].number)
    }

    /// Adds a rule that lookups name by `number`. A rule with equal value, mask and priority keeps
    /// its rank and gets the new number; the old one is returned.
    ///
    /// `coarser` has the masks under which rules with different masks may share a tuple, the
    /// coarsest first. If it is empty, rules are stored under their own masks.
    pub fn insert(
        &mut self,
        entry: &Entry<'_, N>,
        number: u32,
        coarser: &[Coarser<N>],
    ) -> Option<u32> {
        let identity = identity(entry, &self.seeds);
        if let Some(rule) = self.known.get(&identity) {
            let old = &mut self.rules[*rule as usize].number;
            return Some(std::mem::replace(old, number));
        }
        let tuple = self.choose(entry, coarser);
        self.tuples[tuple as usize].is_mixed |= self.tuples[tuple as usize].mask != *entry.mask;
        let rank = rank(entry.priority, self.added);
        self.added += 1;
        let rule = Rule::new(entry, rank, number, tuple);
        let pattern = Pattern { value: *entry.value, mask: *entry.mask };
        let at = self.free.pop().unwrap_or(self.rules.len() as u32);
        if at as usize == self.rules.len() {
            self.rules.push(rule);
            self.patterns.push(pattern);
        } else {
            (self.rules[at as usize], self.patterns[at as usize]) = (rule, pattern);
        }
        self.known.insert(identity, at);
        self.link(at);
        None
    }

    /// Removes the rule with this value, mask and priority; returns its number.
    pub fn remove(&mut self, entry: &Entry<'_, N>) -> Option<u32> {
        let at = self.known.remove(&identity(entry, &self.seeds))?;
        self.unlink(at);
        self.free.push(at);
        Some(self.rules[at as usize].number)
    }

    fn chain(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |at: u32| Some(at).filter(|at| *at != NONE);
        std::iter::successors(some(head), move |at| some(self.rules[*at as usize].next))
    }

    /// The tuple for a new rule; makes one if necessary.
    fn choose(&mut self, entry: &Entry<'_, N>, coarser: &[Coarser<N>]) -> u32 {
        let bits = |mask: &[u64; N]| mask.iter().map(|word| word.count_ones()).sum::<u32>();
        // The tuple that hashes most of the rule's bits, and the one of those with few rules at
        // the rule's slot.
        let (mut best, mut with_capacity) = (None, None);
        for (number, tuple) in self.in_use() {
            let own = tuple.mask == *entry.mask;
            if !own && (coarser.is_empty() || !is_within(&tuple.mask, entry.mask)) {
                continue;
            }
            let found = Some((bits(&tuple.mask), number));
            best = best.max(found);
            let full = || self.chain(self.first(tuple, entry.value)).nth(LIMIT - 1).is_some();
            if own || !full() {
                with_capacity = with_capacity.max(found);
            }
        }
        if let Some((_, tuple)) = with_capacity {
            return tuple;
        }
        if self.in_use().filter(|(_, tuple)| tuple.mask != [0; N]).count() < self.most {
            let masks = coarser.iter().map(|coarser| coarser(entry.mask));
            // A tuple that exists already has too many rules at this slot.
            let new = masks.chain([*entry.mask]).find(|mask| !self.has_tuple(mask));
            if let Some(mask) = new {
                return self.add_tuple(&mask);
            }
        }
        let list = self.in_use().find(|(_, tuple)| tuple.mask == [0; N]).map(|(number, _)| number);
        let any = best.map(|(_, number)| number).or(list);
        any.unwrap_or_else(|| self.add_tuple(&[0; N]))
    }

    fn add_tuple(&mut self, mask: &[u64; N]) -> u32 {
        let tuple = Tuple {
            top: 0,
            slots: Slots::default(),
            is_mixed: false,
            words: Words::new(mask),
            mask: *mask,
            ranks: BTreeSet::new(),
        };
        let at = self.free_tuples.pop().unwrap_or(self.tuples.len() as u32);
        if at as usize == self.tuples.len() {
            self.tuples.push(tuple);
        } else {
            self.tuples[at as usize] = tuple;
        }
        self.order.push(at);
        at
    }

    fn link(&mut self, at: u32) {
        let Rule { rank, tuple: number, .. } = self.rules[at as usize];
        let tuple = &self.tuples[number as usize];
        let hash = self.slot_hash(tuple, &self.patterns[at as usize].value);
        let head = tuple.slots.get(hash);
        let above = self.chain(head).take_while(|r| self.rules[*r as usize].rank > rank).last();
        if let Some(above) = above {
            let next = std::mem::replace(&mut self.rules[above as usize].next, at);
            self.rules[at as usize].next = next;
        } else {
            self.rules[at as usize].next = head;
            self.tuples[number as usize].slots.set(hash, at);
        }
        self.tuples[number as usize].ranks.insert(rank);
        self.arrange(number);
    }

    fn unlink(&mut self, at: u32) {
        let Rule { rank, next, tuple: number, .. } = self.rules[at as usize];
        let tuple = &self.tuples[number as usize];
        let hash = self.slot_hash(tuple, &self.patterns[at as usize].value);
        let above = self.chain(tuple.slots.get(hash)).find(|r| self.rules[*r as usize].next == at);
        match above {
            Some(above) => self.rules[above as usize].next = next,
            None if next == NONE => self.tuples[number as usize].slots.clear(hash),
            None => self.tuples[number as usize].slots.set(hash, next),
        }
        self.tuples[number as usize].ranks.remove(&rank);
        self.arrange(number);
    }

    /// Moves a tuple to its place in the order after a change of its rules, or takes it out.
    fn arrange(&mut self, number: u32) {
        let tuple = &mut self.tuples[number as usize];
        let Some(&top) = tuple.ranks.last() else {
            self.order.retain(|other| *other != number);
            self.free_tuples.push(number);
            return;
        };
        if std::mem::replace(&mut tuple.top, top) != top {
            let tuples = &self.tuples;
            self.order.sort_by_key(|at| std::cmp::Reverse(tuples[*at as usize].top));
        }
    }
}

impl Rule {
    fn new<const N: usize>(entry: &Entry<'_, N>, rank: u64, number: u32, tuple: u32) -> Self {
        let (values, masks, at) = ([0; NEAR], [0; NEAR], [0; NEAR]);
        let mut rule = Self { rank, next: NONE, number, values, masks, tuple, at, used: 0 };
        for (word, mask) in (0_u8..).zip(*entry.mask).filter(|(_, mask)| *mask != 0) {
            let used = usize::from(rule.used);
            if used < NEAR {
                rule.values[used] = entry.value[usize::from(word)];
                (rule.masks[used], rule.at[used]) = (mask, word);
            }
            rule.used += 1;
        }
        rule
    }
}

#[cfg(test)]
pub(super) mod tests;
