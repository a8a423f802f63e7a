//! Maglev: a hash to one of some choices, by weight, the same on every machine, and almost the same
//! when a choice comes or goes (Eisenbud et al., "Maglev", NSDI 2016, section 3.4).
//!
//! ```text
//!  every choice has an order of all entries of its own:   a: 3 0 4 1 2   b: 0 2 4 1 3
//!  in turns, each takes the first entry of its order that is still free:
//!     a takes 3, b takes 0, a takes 4, b takes 2, a takes 1 ──> b a b a a
//!  hash 0x51ccc178... ──> entry 2 ──> b
//! ```
//!
//! The order of a choice is `(offset + i * skip) mod entries`; both come from its name and a seed, so
//! nothing depends on who came first: choices take turns in the order of their names. With
//! weights a choice has a turn in as many rounds as its weight is of the heaviest one: in each
//! round its weight is added to what it has saved, and a turn costs the heaviest weight.
//!
//! Invariants: the number of entries is a prime (so every order has all of them); every entry has
//! a choice unless all weights are 0; the number of entries of a choice is less than two below
//! its exact share `entries * weight / sum`, and at most `choices * weight / sum + 1` above it.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// A lookup table by Maglev's hashing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Maglev {
    /// By entry: the index of the choice; empty where there is none.
    entries: Box<[u16]>,
    checksum: u64,
}

/// One that a table may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice<'a> {
    /// Its name; no two may be equal.
    pub name: &'a str,
    /// Its weight; 0 is never chosen.
    pub weight: u32,
}

/// Why there can be no such table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMaglev {
    /// With a number that is no prime, some entries are in no choice's order.
    #[error("{entries} is no prime from 2 to 16777213; write 251, 2039, 16381, 65537 or 655373")]
    Entries {
        /// The number asked for.
        entries: u32,
    },
    /// An entry holds 16 bits.
    #[error("there are {choices} choices, and a table takes 65536 at most; leave some out")]
    Choices {
        /// How many were given.
        choices: usize,
    },
    /// Two choices of one name would have the same order.
    #[error("'{name}' is there twice; give each its own name")]
    Twice {
        /// The name.
        name: String,
    },
}

impl Maglev {
    /// Entries of a table if nobody says otherwise: as in the paper, good for 650 choices of equal
    /// weight within one per cent.
    pub const ENTRIES: u32 = 65_537;

    /// A table of `entries` entries for `choices`, which may stand in any order: [`Maglev::get`]
    /// answers with an index into them. `seed` is the same on all machines that shall agree.
    ///
    /// # Errors
    /// When `entries` is no prime, two names are equal, or there are too many choices.
    pub fn new(choices: &[Choice<'_>], entries: u32, seed: u64) -> Result<Self, BadMaglev> {
        if !is_prime(entries) || entries > 16_777_213 {
            return Err(BadMaglev::Entries { entries });
        }
        if choices.len() > 1 << 16 {
            return Err(BadMaglev::Choices { choices: choices.len() });
        }
        let mut turns: Vec<Turns> = (0..)
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

    /// The index of the choice for `hash`, of which the high 32 bits count; `None` if there is no
    /// choice with a weight.
    #[must_use]
    #[inline]
    pub fn get(&self, hash: u64) -> Option<u16> {
        self.entries.get(self.entry(hash)).copied()
    }

    /// The number of the entry that answers for `hash`.
    #[must_use]
    #[inline]
    pub fn entry(&self, hash: u64) -> usize {
        (((hash >> 32) * self.entries.len() as u64) >> 32) as usize
    }

    /// The entries: indexes of choices. None if no choice has a weight.
    #[must_use]
    pub fn entries(&self) -> &[u16] {
        &self.entries
    }

    /// A number that is equal on two machines if, and (but for one case in 2^64) only if, each
    /// entry names the same choice on both.
    #[must_use]
    pub const fn checksum(&self) -> u64 {
        self.checksum
    }
}

/// Where a choice stands in its order, and whether it has a turn.
struct Turns {
    index: u16,
    weight: u32,
    saved: u64,
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
        Self { index, weight: choice.weight, saved: 0, at, skip }
    }

    /// The next entry of the order.
    fn step(&mut self, entries: u32) {
        let next = self.at + self.skip; // both less than 2^24
        self.at = if next >= entries { next - entries } else { next };
    }
}

/// The turns.
fn fill(turns: &mut [Turns], entries: u32) -> Box<[u16]> {
    let Some(heaviest) = turns.iter().map(|turn| turn.weight).max() else { return Box::default() };
    let mut table: Box<[Option<u16>]> = vec![None; entries as usize].into();
    let mut left = entries;
    while left > 0 {
        for turn in &mut *turns {
            turn.saved += u64::from(turn.weight);
            if turn.saved < u64::from(heaviest) {
                continue;
            }
            turn.saved -= u64::from(heaviest);
            // Some entry is free and the order has all of them: this ends.
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

/// By names, not indexes: machines may know the choices in different order.
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
