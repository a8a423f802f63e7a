//! Classifier: finds the rule of a table that matches a key.
//!
//! The matching is done by [`TupleSpace`] of `flowyard-flow`. This module chooses the masks under which
//! the rules of an OpenFlow table share a tuple, see [`coarse`] and [`fine`], and offers four kinds of
//! lookup.
//!
//! A merged lookup costs at most [`TUPLES`] + 1 probes, whatever the rules are: when there are [`TUPLES`]
//! tuples, new rules share existing tuples, although more rules are then compared.
//!
//! [`Lookup::Linear`] and [`Lookup::Hash`] are the two tables of the first OpenFlow switches, with which
//! the KTH paper compares. They use the same code: the first has only the tuple that hashes nothing, the
//! second also has one for the rules with the first rule's mask. [`Lookup::Space`] is plain tuple space
//! search.
//!
//! Thread-safety: plain data; lookup takes `&self`.

use flowyard_flow::table::tuples::{Coarser, Entry, Found, TupleSpace};
use flowyard_frame::{LANES, Lanes};
use flowyard_openflow::Field;

use crate::key::{Key, Pattern, WORDS};

/// The greatest number of tuples, without the one that hashes nothing.
pub const TUPLES: usize = 64;

/// How a table looks up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lookup {
    /// Tuple space search with merged tuples (TupleMerge, ToN 2019).
    #[default]
    Merged,
    /// A list in falling priority.
    Linear,
    /// A hash table for the rules with the mask of the first one; a list for the others.
    Hash,
    /// A hash table for each mask, without a limit on their number.
    Space,
}

/// The rules of one table.
#[derive(Clone, Debug)]
pub struct Classifier {
    space: TupleSpace<WORDS>,
    coarser: &'static [Coarser<WORDS>],
}

const fn entry(pattern: &Pattern, priority: u32) -> Entry<'_, WORDS> {
    Entry { value: &pattern.value.0, mask: &pattern.mask.0, priority }
}

impl Classifier {
    /// A table without rules. `seed` decides where rules are stored; it must be kept from those
    /// who send frames.
    #[must_use]
    pub fn new(lookup: Lookup, seed: u64) -> Self {
        let (most, coarser): (_, &[Coarser<WORDS>]) = match lookup {
            Lookup::Merged => (TUPLES, &[coarse, fine]),
            Lookup::Linear => (0, &[]),
            Lookup::Hash => (1, &[]),
            Lookup::Space => (usize::MAX, &[]),
        };
        Self { space: TupleSpace::new(most, seed), coarser }
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

    /// Number of tuples; a lookup makes at most as many probes.
    #[must_use]
    pub const fn tuples(&self) -> usize {
        self.space.tuples()
    }

    /// The number of the rule that matches a key. If several match, it is the one with the highest priority,
    /// and of equal priorities the one added first.
    #[must_use]
    #[inline]
    pub fn lookup(&self, key: &Key) -> Option<u32> {
        self.space.lookup(&key.0).map(|found| found.number)
    }

    /// As [`Classifier::lookup`] for several keys: writes `found` of each lane of `lanes`. The
    /// memory of all keys is requested before any of it is waited for.
    pub fn lookup_all(&self, keys: &[Key], lanes: Lanes, found: &mut [Option<u32>]) {
        let mut rules = [Found::NOTHING; LANES];
        let hit = self.space.lookup_all(move |lane| &keys[lane].0, lanes, &mut rules);
        for lane in lanes {
            found[lane] = hit.has(lane).then_some(rules[lane].number);
        }
    }

    /// The number of the rule with this pattern and priority.
    #[must_use]
    pub fn find(&self, pattern: &Pattern, priority: u32) -> Option<u32> {
        self.space.find(&entry(pattern, priority))
    }

    /// Adds a rule that lookups name by `number`. A rule with the same pattern and priority keeps
    /// its rank and gets the new number; the old one is returned.
    pub fn insert(&mut self, pattern: &Pattern, priority: u32, number: u32) -> Option<u32> {
        self.space.insert(&entry(pattern, priority), number, self.coarser)
    }

    /// Removes the rule with this pattern and priority; returns its number.
    pub fn remove(&mut self, pattern: &Pattern, priority: u32) -> Option<u32> {
        self.space.remove(&entry(pattern, priority))
    }
}

/// The prefix in a field's mask, with its length rounded down to a multiple of `step`.
fn prefix(mask: u128, bits: u32, step: u32) -> u128 {
    let ones = (mask << (128 - bits)).leading_ones() / step * step;
    if ones == 0 { 0 } else { (u128::MAX << (128 - ones)) >> (128 - bits) }
}

/// The mask that most rules share: prefixes are cut to whole bytes, and transport ports and the
/// protocol are left out where the addresses have 16 bits or more.
fn coarse(mask: &[u64; WORDS]) -> [u64; WORDS] {
    relax(mask, 8, true)
}

/// A mask between [`coarse`] and the rule's own: prefixes are cut to multiples of 4 bits.
fn fine(mask: &[u64; WORDS]) -> [u64; WORDS] {
    relax(mask, 4, false)
}

/// A mask with fewer bits, which more rules share. It does not include the bits of word 0 that say which
/// fields are present, because EtherType and protocol say nearly the same, nor fields whose mask is not a
/// prefix.
fn relax(mask: &[u64; WORDS], step: u32, coarse: bool) -> [u64; WORDS] {
    let mask = Key(*mask);
    let mut out = mask;
    out.0[0] &= !0 << 44;
    let mut kept = 0;
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
        kept += cut.count_ones();
        out.write(field, cut, u128::MAX);
    }
    let specific = coarse && kept >= 16;
    for field in [Field::TcpSrc, Field::TcpDst] {
        if specific || mask.bits(field) != field.full() {
            out.write(field, 0, u128::MAX);
        }
    }
    if specific {
        out.write(Field::IpProto, 0, u128::MAX);
    }
    if out == Key::ZERO { mask.0 } else { out.0 }
}

#[cfg(test)]
mod tests;
