//! Classifier: which rule of a table answers a key.
//!
//! ```text
//!            mask (fewer bits than its rules have)    slots by hash      rules, falling rank
//!  tuple 0   eth_type dst/24                 top 90   [ ][.][ ][.] ───> /32 tcp 80 ─> /24 ─> ..
//!  tuple 1   eth_type src/8                  top 50   [.][ ]            at most LIMIT of them
//!  tuple 2   (nothing)                       top  0   [.]
//! ```
//!
//! Tuple space search with merged tuples (TupleMerge, ToN 2019): a rule may stand in any tuple whose
//! mask is part of its own, and is compared in full there; so there are few tuples. They stand in
//! the order of their highest rule, and a lookup ends when nothing behind can outrank its answer.
//! A new rule goes where most of its bits are hashed and fewer than [`LIMIT`] rules share its place;
//! else it gets a tuple of its own, first a coarse one, then one with its own mask.
//!
//! A lookup costs at most [`TUPLES`] + 1 probes, whatever rules there are: beyond that number rules
//! are merged although their chains get longer. No frame adds a tuple, so no stream of frames makes a
//! lookup dearer (unlike a cache of wildcards: tuple space explosion, CoNEXT 2019).
//!
//! [`Lookup::Linear`] and [`Lookup::Hash`] are the two tables of the first OpenFlow switches, which
//! the KTH paper compares with: the same code with one tuple that hashes nothing, and with one more for
//! the rules that share the first one's mask. [`Lookup::Space`] is plain tuple space search.
//!
//! Invariants: every rule is in one chain; a chain falls in rank; tuples fall in `top`; no allocation
//! on lookup.
//! Thread-safety: plain data; lookup takes `&self`.

use std::collections::{BTreeMap, HashMap};

use flowyard_openflow::Field;

use crate::key::{Key, Pattern, WORDS};

/// Tuples, but for the one that hashes nothing.
pub const TUPLES: usize = 64;
/// Rules that share a place before another tuple is made.
pub const LIMIT: usize = 10;
/// Keys that are looked up together.
pub const AHEAD: usize = 32;

const NONE: u32 = u32::MAX;
/// Words of a rule that stand beside its rank: as many as a rule over ports, Ethernet, IPv4 and
/// transport has.
const NEAR: usize = 6;

/// How a table looks up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lookup {
    /// Merged tuples.
    #[default]
    Merged,
    /// A list in falling priority.
    Linear,
    /// A hash table for the rules with the mask of the first one; a list for the others.
    Hash,
    /// A hash table for each mask, however many there are.
    Space,
}

/// The rules of one table.
#[derive(Clone, Debug)]
pub struct Classifier {
    lookup: Lookup,
    seeds: [u64; WORDS],
    tuples: Vec<Tuple>,
    /// Tuples in use, the highest top first.
    order: Vec<u32>,
    free_tuples: Vec<u32>,
    rules: Vec<Rule>,
    patterns: Vec<Pattern>,
    free: Vec<u32>,
    /// The rule of a pattern and priority.
    known: HashMap<u128, u32>,
    added: u64,
}

/// What a lookup reads of a rule: two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
struct Rule {
    /// Mask and value.
    near: [(u64, u64); NEAR],
    /// Priority, and the earlier first.
    rank: u64,
    next: u32,
    tuple: u32,
    /// The caller's.
    number: u32,
    at: [u8; NEAR],
    /// How many of `near`; more than there are: the pattern is compared.
    used: u8,
}

#[derive(Clone, Debug)]
struct Tuple {
    mask: Key,
    /// The words that the mask has bits in; of even number.
    words: Vec<(u8, u64)>,
    top: u64,
    /// How many rules of each rank's priority.
    priorities: BTreeMap<u16, u32>,
    /// The highest rank of each priority is expensive to maintain: `top` is by priority alone.
    rules: u32,
    /// Hash (32 bits) and rule + 1 (32 bits); 0 is free. Linear probing, at most half full.
    slots: Vec<u64>,
    taken: usize,
}

/// How coarse a tuple's mask is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grain {
    Coarse,
    Fine,
    Own,
}

#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Odd multipliers of the hash, which cannot be guessed without knowing `seed`.
pub(crate) fn seeds(seed: u64) -> [u64; WORDS] {
    let mut random = flowyard_frame::Rng::new(seed);
    std::array::from_fn(|_| random.bits() | 1)
}

/// The words of a mask, and one without bits where they are odd.
pub(crate) fn words(mask: &Key) -> Vec<(u8, u64)> {
    let mut words: Vec<(u8, u64)> = (0..).zip(mask.0).filter(|(_, bits)| *bits != 0).collect();
    if !words.len().is_multiple_of(2) {
        words.push((0, 0));
    }
    words
}

/// A hash of the words of a key.
#[inline]
pub(crate) fn hash(words: &[(u8, u64)], key: &Key, seeds: &[u64; WORDS]) -> u64 {
    let mut sum = 0;
    for (pair, seed) in words.as_chunks::<2>().0.iter().zip(seeds.as_chunks::<2>().0) {
        let word = |(at, mask): (u8, u64)| key.0[usize::from(at) & (WORDS - 1)] & mask;
        sum ^= fold(word(pair[0]) ^ seed[0], word(pair[1]) ^ seed[1]);
    }
    fold(sum, seeds[15])
}

impl Classifier {
    /// No rules. `seed` decides where they stand; keep it from those who send frames.
    #[must_use]
    pub fn new(lookup: Lookup, seed: u64) -> Self {
        Self {
            lookup,
            seeds: seeds(seed),
            tuples: Vec::new(),
            order: Vec::new(),
            free_tuples: Vec::new(),
            rules: Vec::new(),
            patterns: Vec::new(),
            free: Vec::new(),
            known: HashMap::new(),
            added: 0,
        }
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// How many tuples there are: a lookup probes no more.
    #[must_use]
    pub const fn tuples(&self) -> usize {
        self.order.len()
    }

    /// The number of the rule that answers a key: the highest priority, then the earliest.
    #[must_use]
    #[inline]
    pub fn lookup(&self, key: &Key) -> Option<u32> {
        let (mut best, mut found) = (0, None);
        for &tuple in &self.order {
            let tuple = &self.tuples[tuple as usize];
            if best > tuple.top {
                break;
            }
            self.walk(self.first(tuple, key), key, &mut best, &mut found);
        }
        found
    }

    /// The same for the keys at `wanted`, of which [`AHEAD`] are found together: the memory of all of
    /// them is asked for before any is waited for.
    pub fn lookup_all(&self, keys: &[Key], wanted: &[u8], found: &mut [Option<u32>]) {
        for wanted in wanted.chunks(AHEAD) {
            let (mut best, mut firsts) = ([0; AHEAD], [NONE; AHEAD]);
            for lane in wanted {
                found[usize::from(*lane)] = None;
            }
            for &tuple in &self.order {
                let tuple = &self.tuples[tuple as usize];
                let mut open = false;
                for ((lane, best), first) in wanted.iter().zip(&best).zip(&mut firsts) {
                    let asks = *best <= tuple.top;
                    open |= asks;
                    *first = if asks { self.first(tuple, &keys[usize::from(*lane)]) } else { NONE };
                }
                if !open {
                    break;
                }
                for ((lane, best), first) in wanted.iter().zip(&mut best).zip(firsts) {
                    let lane = usize::from(*lane);
                    self.walk(first, &keys[lane], best, &mut found[lane]);
                }
            }
        }
    }

    #[inline]
    fn first(&self, tuple: &Tuple, key: &Key) -> u32 {
        tuple.head(match tuple.words.as_slice() {
            [] => 0,
            words => hash(words, key, &self.seeds) as u32,
        })
    }

    /// Down a chain, to the first that matches and outranks `best`.
    #[inline]
    fn walk(&self, mut at: u32, key: &Key, best: &mut u64, found: &mut Option<u32>) {
        while let Some(rule) = self.rules.get(at as usize) {
            if rule.rank < *best {
                return;
            }
            if self.matches(at, rule, key) {
                (*best, *found) = (rule.rank, Some(rule.number));
                return;
            }
            at = rule.next;
        }
    }

    #[inline]
    fn matches(&self, at: u32, rule: &Rule, key: &Key) -> bool {
        if usize::from(rule.used) > NEAR {
            return self.patterns[at as usize].matches(key);
        }
        let near = rule.near.iter().zip(rule.at).take(rule.used.into());
        near.fold(0, |sum, ((mask, value), at)| {
            sum | key.0[usize::from(at) & (WORDS - 1)] & mask ^ value
        }) == 0
    }

    fn name(&self, pattern: &Pattern, priority: u16) -> u128 {
        let mut sum = [u64::from(priority); 2];
        for at in 0..WORDS {
            let (value, mask) = (pattern.value.0[at], pattern.mask.0[at]);
            sum[0] = fold(sum[0] ^ value, self.seeds[at]) ^ mask;
            sum[1] = fold(sum[1] ^ mask ^ self.seeds[15 - at], self.seeds[at]) ^ value;
        }
        u128::from(sum[0]) << 64 | u128::from(sum[1])
    }

    /// The rule with this pattern and priority.
    #[must_use]
    pub fn find(&self, pattern: &Pattern, priority: u16) -> Option<u32> {
        let rule = *self.known.get(&self.name(pattern, priority))?;
        Some(self.rules[rule as usize].number)
    }

    /// Adds a rule; `number` is what a lookup says. One of the same pattern and priority is
    /// replaced, keeps its place, and its number is returned.
    pub fn insert(&mut self, pattern: &Pattern, priority: u16, number: u32) -> Option<u32> {
        let name = self.name(pattern, priority);
        if let Some(rule) = self.known.get(&name) {
            let old = &mut self.rules[*rule as usize].number;
            return Some(std::mem::replace(old, number));
        }
        self.added += 1;
        let rank = u64::from(priority) << 48 | ((1 << 48) - 1 - (self.added & ((1 << 48) - 1)));
        let mut rule = Rule {
            near: [(0, 0); NEAR],
            rank,
            next: NONE,
            tuple: self.choose(pattern),
            number,
            at: [0; NEAR],
            used: 0,
        };
        for (word, mask) in (0_u8..).zip(pattern.mask.0).filter(|(_, mask)| *mask != 0) {
            let used = usize::from(rule.used);
            if used < NEAR {
                rule.near[used] = (mask, pattern.value.0[usize::from(word)]);
                rule.at[used] = word;
            }
            rule.used += 1;
        }
        let at = self.free.pop().unwrap_or(self.rules.len() as u32);
        if at as usize == self.rules.len() {
            self.rules.push(rule);
            self.patterns.push(*pattern);
        } else {
            (self.rules[at as usize], self.patterns[at as usize]) = (rule, *pattern);
        }
        self.known.insert(name, at);
        self.link(at, priority);
        None
    }

    /// Removes the rule of this pattern and priority; its number.
    pub fn remove(&mut self, pattern: &Pattern, priority: u16) -> Option<u32> {
        let name = self.name(pattern, priority);
        let at = self.known.remove(&name)?;
        self.unlink(at, priority);
        self.free.push(at);
        Some(self.rules[at as usize].number)
    }

    fn place(&self, tuple: &Tuple, pattern: &Pattern) -> u32 {
        if tuple.words.is_empty() {
            0
        } else {
            hash(&tuple.words, &pattern.value, &self.seeds) as u32
        }
    }

    fn chain(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |at: u32| Some(at).filter(|at| *at != NONE);
        std::iter::successors(some(head), move |at| some(self.rules[*at as usize].next))
    }

    /// The tuple that a new rule goes to, made if need be.
    fn choose(&mut self, pattern: &Pattern) -> u32 {
        let grains: &[Grain] = match self.lookup {
            Lookup::Linear => &[],
            Lookup::Hash | Lookup::Space => &[Grain::Own],
            Lookup::Merged => &[Grain::Coarse, Grain::Fine, Grain::Own],
        };
        let bits = |key: &Key| key.0.iter().map(|word| word.count_ones()).sum::<u32>();
        // Where it may stand: the most bits, with and without room.
        let mut best: Option<(u32, u32)> = None;
        let mut roomy = None;
        for &number in &self.order {
            let tuple = &self.tuples[number as usize];
            let within = (0..WORDS).all(|at| tuple.mask.0[at] & !pattern.mask.0[at] == 0);
            let own = tuple.mask == pattern.mask;
            if !within || matches!(self.lookup, Lookup::Hash | Lookup::Space) && !own {
                continue;
            }
            let found = Some((bits(&tuple.mask), number));
            best = best.max(found);
            let head = tuple.head(self.place(tuple, pattern));
            if own || self.chain(head).take(LIMIT).count() < LIMIT {
                roomy = roomy.max(found);
            }
        }
        if self.lookup == Lookup::Linear {
            roomy = best;
        }
        if let Some((_, tuple)) = roomy {
            return tuple;
        }
        let most = match self.lookup {
            Lookup::Merged => TUPLES,
            Lookup::Hash => 1,
            Lookup::Linear => 0,
            Lookup::Space => usize::MAX,
        };
        let hashing = self.order.iter().filter(|at| self.tuples[**at as usize].mask != Key::ZERO);
        if hashing.count() < most {
            for &grain in grains {
                let mask = relax(&pattern.mask, grain);
                // One that is there already has no room.
                let there = self.order.iter().any(|at| self.tuples[*at as usize].mask == mask);
                if !there {
                    return self.tuple(mask);
                }
            }
        }
        if self.lookup == Lookup::Merged
            && let Some((_, tuple)) = best
        {
            return tuple;
        }
        let nothing = |at: &&u32| self.tuples[**at as usize].mask == Key::ZERO;
        match self.order.iter().find(nothing) {
            Some(tuple) => *tuple,
            None => self.tuple(Key::ZERO),
        }
    }

    fn tuple(&mut self, mask: Key) -> u32 {
        let tuple = Tuple {
            mask,
            words: if mask == Key::ZERO { Vec::new() } else { words(&mask) },
            top: 0,
            priorities: BTreeMap::new(),
            rules: 0,
            slots: vec![0; 8],
            taken: 0,
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

    fn link(&mut self, at: u32, priority: u16) {
        let number = self.rules[at as usize].tuple;
        let hash = self.place(&self.tuples[number as usize], &self.patterns[at as usize]);
        let head = self.tuples[number as usize].head(hash);
        let rank = self.rules[at as usize].rank;
        let before = self.chain(head).take_while(|r| self.rules[*r as usize].rank > rank).last();
        match before {
            Some(before) => {
                self.rules[at as usize].next = self.rules[before as usize].next;
                self.rules[before as usize].next = at;
            }
            None => {
                self.rules[at as usize].next = head;
                self.tuples[number as usize].set_head(hash, at);
            }
        }
        let tuple = &mut self.tuples[number as usize];
        tuple.rules += 1;
        *tuple.priorities.entry(priority).or_insert(0) += 1;
        self.sort(number);
    }

    fn unlink(&mut self, at: u32, priority: u16) {
        let Rule { tuple: number, next, .. } = self.rules[at as usize];
        let hash = self.place(&self.tuples[number as usize], &self.patterns[at as usize]);
        let head = self.tuples[number as usize].head(hash);
        let before = self.chain(head).find(|r| self.rules[*r as usize].next == at);
        match before {
            Some(before) => self.rules[before as usize].next = next,
            None if next == NONE => self.tuples[number as usize].clear_head(hash),
            None => self.tuples[number as usize].set_head(hash, next),
        }
        let tuple = &mut self.tuples[number as usize];
        tuple.rules -= 1;
        if let Some(count) = tuple.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                tuple.priorities.remove(&priority);
            }
        }
        if tuple.rules == 0 {
            self.order.retain(|other| *other != number);
            self.free_tuples.push(number);
        } else {
            self.sort(number);
        }
    }

    /// The tuple's place among the others, after a change of its rules.
    fn sort(&mut self, number: u32) {
        let tuple = &mut self.tuples[number as usize];
        let highest = tuple.priorities.last_key_value().map_or(0, |(priority, _)| *priority);
        let top = u64::from(highest) << 48 | ((1 << 48) - 1);
        if std::mem::replace(&mut tuple.top, top) != top {
            let tuples = &self.tuples;
            self.order.sort_by_key(|at| std::cmp::Reverse(tuples[*at as usize].top));
        }
    }
}

impl Tuple {
    #[inline]
    fn slot(&self, hash: u32) -> usize {
        let mut at = hash as usize & (self.slots.len() - 1);
        while self.slots[at] != 0 && (self.slots[at] >> 32) as u32 != hash {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// The first rule with this hash.
    #[inline]
    fn head(&self, hash: u32) -> u32 {
        (self.slots[self.slot(hash)] as u32).wrapping_sub(1)
    }

    fn set_head(&mut self, hash: u32, rule: u32) {
        let mut at = self.slot(hash);
        if self.slots[at] == 0 {
            self.taken += 1;
            if self.taken * 2 > self.slots.len() {
                let size = self.slots.len() * 2;
                for slot in std::mem::replace(&mut self.slots, vec![0; size]) {
                    if slot != 0 {
                        let at = self.slot((slot >> 32) as u32);
                        self.slots[at] = slot;
                    }
                }
                at = self.slot(hash);
            }
        }
        self.slots[at] = u64::from(hash) << 32 | u64::from(rule + 1);
    }

    /// Frees a slot; those behind it move up, so that none is cut off from its place.
    fn clear_head(&mut self, hash: u32) {
        let last = self.slots.len() - 1;
        let mut hole = self.slot(hash);
        self.slots[hole] = 0;
        self.taken -= 1;
        let mut at = (hole + 1) & last;
        while self.slots[at] != 0 {
            let home = (self.slots[at] >> 32) as usize & last;
            if (at.wrapping_sub(home) & last) >= (at.wrapping_sub(hole) & last) {
                self.slots[hole] = std::mem::take(&mut self.slots[at]);
                hole = at;
            }
            at = (at + 1) & last;
        }
    }
}

/// How long a prefix of a field a mask has, rounded down to a multiple of `step`.
fn prefix(mask: u128, bits: u32, step: u32) -> u128 {
    let ones = (mask << (128 - bits)).leading_ones() / step * step;
    if ones == 0 { 0 } else { (u128::MAX << (128 - ones)) >> (128 - bits) }
}

/// A mask with fewer bits, which more rules share. Presence bits say little behind EtherType and
/// protocol; prefixes are rounded; masked fields that are no prefixes go; so do transport ports where
/// addresses tell enough.
fn relax(mask: &Key, grain: Grain) -> Key {
    if grain == Grain::Own {
        return *mask;
    }
    let step = if grain == Grain::Coarse { 8 } else { 4 };
    let mut out = *mask;
    out.0[0] &= !0 << 44;
    let mut told = 0;
    let addresses = [
        Field::Ipv4Src,
        Field::Ipv4Dst,
        Field::Ipv6Src,
        Field::Ipv6Dst,
        Field::EthSrc,
        Field::EthDst,
        Field::Metadata,
        Field::TunnelId,
    ];
    for field in addresses {
        let cut = prefix(mask.bits(field), field.bits(), step);
        told += cut.count_ones();
        out.write(field, cut, u128::MAX);
    }
    for field in [Field::TcpSrc, Field::TcpDst] {
        let exact = mask.bits(field) == field.full();
        if !exact || grain == Grain::Coarse && told >= 16 {
            out.write(field, 0, u128::MAX);
        }
    }
    if grain == Grain::Coarse && told >= 16 {
        out.write(Field::IpProto, 0, u128::MAX);
    }
    if out == Key::ZERO { *mask } else { out }
}

#[cfg(test)]
mod tests;
