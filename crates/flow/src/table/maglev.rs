//! Maglev hashing: maps a hash to one of several weighted choices. Every machine computes the same
//! table, and few entries change when a choice is added or removed (Eisenbud et al., "Maglev", NSDI
//! 2016, section 3.4).
//!
//! ```text
//!  every choice has its own order of all entries:   a: 3 0 4 1 2   b: 0 2 4 1 3
//!  in turns, each takes the first entry of its order that is still free:
//!     a takes 3, b takes 0, a takes 4, b takes 2, a takes 1 ──> b a b a a
//!  hash 0x51ccc178... ──> entry 2 ──> b
//! ```
//!
//! The order of a choice is `(offset + i * skip) mod entries`; both numbers come from its name and a
//! seed, and choices take turns in the order of their names, so the order of insertion has no effect.
//! With weights, a choice has a turn in a fraction of the rounds: in each round its weight is added to
//! a credit, and a turn costs the heaviest weight.
//!
//! Invariants: the number of entries is prime, so that every order contains all entries; every entry
//! has a choice unless all weights are 0; the number of entries of a choice is less than two below its
//! exact share `entries * weight / sum`, and at most `choices * weight / sum + 1` above it.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// A Maglev lookup table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Maglev {
    /// For each entry, the index of its choice; empty if no choice has a weight.
    entries: Box<[u16]>,
    checksum: u64,
}

/// One of the choices of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice<'a> {
    /// The name, which must be unique.
    pub name: &'a str,
    /// The weight; a choice with weight 0 is never chosen.
    pub weight: u32,
}

/// Why a table cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMaglev {
    /// The number of entries is not prime, so that the orders would miss entries.
    #[error(
        "{entries} is not a prime number from 2 to 16777213; write 251, 2039, 16381, 65537 or 655373"
    )]
    Entries {
        /// The requested number.
        entries: u32,
    },
    /// An entry holds 16 bits.
    #[error("there are {choices} choices, and a table takes at most 65536; remove some")]
    Choices {
        /// The number of choices given.
        choices: usize,
    },
    /// Two choices with the same name would have the same order.
    #[error("'{name}' is there twice; give each choice its own name")]
    Twice {
        /// The duplicate name.
        name: String,
    },
}

impl Maglev {
    /// The default number of entries, as in the paper: 650 choices of equal weight get equal shares
    /// within one per cent.
    pub const ENTRIES: u32 = 65_537;

    /// A table of `entries` entries for `choices`, in any order; [`Maglev::get`] returns an index into
    /// `choices`. Machines that must agree use the same `seed`.
    ///
    /// # Errors
    /// When `entries` is not prime, two names are equal, or there are too many choices.
    pub fn new(choices: &[Choice<'_>], entries: u32, seed: u64) -> Result<Self, BadMaglev> {
        if entries > 16_777_213 || !is_prime(entries) {
            return Err(BadMaglev::Entries { entries });
        }
        if choices.len() > 1 << 16 {
            return Err(BadMaglev::Choices { choices: choices.len() });
        }
        let mut turns: Vec<Turns> = (0..=u16::MAX)
            .zip(choices)
            .map(|(index, choice)| Turns::new(index, choice, entries, seed))
            .collect();
        turns.sort_unstable_by_key(|turn| choices[usize::from(turn.index)].name);
        let name = |turn: &Turns| choices[usize::from(turn.index)].name;
        if let Some(pair) = turns.windows(2).find(|pair| name(&pair[0]) == name(&pair[1])) {
            return Err(BadMaglev::Twice { name: name(&pair[0]).into() });
        }
        turns.retain(|turn| turn.weight > 0);
        let table = fill(&mut turns, entries);
        let checksum = checksum(&table, choices);
        Ok(Self { entries: table, checksum })
    }

    /// The index of the choice for the high 32 bits of `hash`; `None` if no choice has a weight.
    #[must_use]
    #[inline]
    pub fn get(&self, hash: u64) -> Option<u16> {
        self.entries.get(self.entry(hash)).copied()
    }

    /// The number of the entry for `hash`.
    #[must_use]
    #[inline]
    pub fn entry(&self, hash: u64) -> usize {
        (((hash >> 32) * self.entries.len() as u64) >> 32) as usize
    }

    /// The entries, which are indexes of choices; empty if no choice has a weight.
    #[must_use]
    pub fn entries(&self) -> &[u16] {
        &self.entries
    }

    /// A checksum of the names of all entries. On two machines it is equal if every entry has the same
    /// choice, and otherwise differs except with a probability of 2^-64.
    #[must_use]
    pub const fn checksum(&self) -> u64 {
        self.checksum
    }
}

/// The position of a choice in its order, and its credit.
struct Turns {
    index: u16,
    weight: u32,
    credit: u64,
    at: u32,
    skip: u32,
}

impl Turns {
    fn new(index: u16, choice: &Choice<'_>, entries: u32, seed: u64) -> Self {
        let hash = |part: u64| {
            let mut hasher = SipHasher24::new_with_keys(seed, part);
            hasher.write(choice.name.as_bytes());
            hasher.finish()
        };
        let entries = u64::from(entries);
        let (at, skip) = ((hash(0) % entries) as u32, (hash(1) % (entries - 1)) as u32 + 1);
        Self { index, weight: choice.weight, credit: 0, at, skip }
    }

    /// The next entry of the order.
    fn step(&mut self, entries: u32) {
        let next = self.at + self.skip; // both less than 2^24
        self.at = if next >= entries { next - entries } else { next };
    }
}

/// Lets the choices take turns until every entry is taken.
fn fill(turns: &mut [Turns], entries: u32) -> Box<[u16]> {
    let Some(heaviest) = turns.iter().map(|turn| turn.weight).max() else { return Box::default() };
    let mut table: Box<[Option<u16>]> = vec![None; entries as usize].into();
    let mut left = entries;
    while left > 0 {
        for turn in &mut *turns {
            turn.credit += u64::from(turn.weight);
            if turn.credit < u64::from(heaviest) {
                continue;
            }
            turn.credit -= u64::from(heaviest);
            // This ends, because an entry is free and the order contains all entries.
            while table[turn.at as usize].is_some() {
                turn.step(entries);
            }
            table[turn.at as usize] = Some(turn.index);
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    table.iter().flatten().copied().collect()
}

/// The checksum is over names, not indexes: machines may list the choices in different order.
fn checksum(table: &[u16], choices: &[Choice<'_>]) -> u64 {
    let hash = |choice: &Choice<'_>| {
        let mut hasher = SipHasher24::new();
        hasher.write(choice.name.as_bytes());
        hasher.finish()
    };
    let names: Vec<u64> = choices.iter().map(hash).collect();
    let mut hasher = SipHasher24::new();
    for &index in table {
        hasher.write_u64(names[usize::from(index)].to_le());
    }
    hasher.finish()
}

fn is_prime(number: u32) -> bool {
    let no_divisor = |by: u32| !number.is_multiple_of(by);
    number == 2
        || number > 2
            && !number.is_multiple_of(2)
            && (3..).step_by(2).take_while(|by| by * by <= number).all(no_divisor)
}

#[cfg(test)]
mod tests;
