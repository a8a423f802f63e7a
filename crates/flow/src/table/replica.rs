//! Entries of other machines: for a hash, a value with the time until which it holds.
//!
//! ```text
//!  hash ──> two sets, a cache line each: [ hash ^ value << 24 | value << 24 ^ end ] x 4
//!                                                            └ value: 40 bits, end: 24 bits of seconds
//! ```
//!
//! One thread writes entries that other machines report, and all cores look entries up, without a lock. An entry is two atomic
//! numbers, so a reader may see the first of one entry and the second of another. The first is the exclusive or of the
//! hash and the value, so such a pair does not have the hash that the reader searches (Hyatt and Mann, "A lockless
//! transposition table implementation for parallel search", ICGA Journal 25(1), 2002). A new end changes only the second
//! number, so an entry that is extended is found at any time.
//!
//! The end is a time modulo 2^24 seconds: 97 days after it was reached, it would be in the future again. A thread that
//! stores an entry therefore removes all entries whose end was reached, every 12 days, and 97 days after it was done last
//! no entry is found.
//!
//! Hashes must be keyed with a secret, so that nobody who sends packets can choose equal ones.
//!
//! Invariants: a value that is found was stored for this hash; nothing is allocated after `new`.
//! Thread-safety: any thread may read; threads that write exclude each other by a lock.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use flowyard_frame::Nanos;

use crate::fold;

/// Entries of a set. The model checker takes a time that is exponential in it.
const WAYS: usize = if cfg!(loom) { 1 } else { 4 };
/// Bits of the end.
const END_BITS: u32 = 24;
const ENDS: u64 = (1 << END_BITS) - 1;
/// Seconds after which the entries whose end was reached are removed.
const SWEEP: u32 = Replica::LONGEST / 8;

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Set([(AtomicU64, AtomicU64); WAYS]);

/// Values of other machines by hash.
#[derive(Debug)]
pub struct Replica {
    sets: Box<[Set]>,
    key: u64,
    /// The time in seconds when the entries whose end was reached were removed last.
    swept: AtomicU32,
    /// Excludes other writers. The number of entries that were replaced before their end.
    evicted: Mutex<u64>,
}

impl Replica {
    /// The largest value.
    pub const MOST: u64 = (1 << 40) - 1;
    /// The longest time for which an entry can hold, in seconds: 97 days.
    pub const LONGEST: u32 = 1 << (END_BITS - 1);

    /// An empty table with room for `entries` at least; if more are stored, some are replaced. `key` decides which hashes share a set.
    #[must_use]
    pub fn new(entries: usize, key: u64) -> Self {
        let sets = Self::sets(entries);
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            key,
            swept: AtomicU32::new(0),
            evicted: Mutex::new(0),
        }
    }

    /// Memory in bytes of a table for this number of entries.
    #[must_use]
    pub const fn bytes(entries: usize) -> usize {
        Self::sets(entries) * size_of::<Set>()
    }

    /// With two sets to choose from, and twice as many places as entries, hardly any entry finds both full.
    const fn sets(entries: usize) -> usize {
        (entries * 2).div_ceil(WAYS).next_power_of_two()
    }

    /// Stores `value` (1 to [`Self::MOST`]) for `hash` until `lifetime` seconds after `now`. It replaces the value that
    /// `hash` had; in a full set, the entry that ends first.
    pub fn put(&self, hash: u64, value: u64, now: Nanos, lifetime: u32) {
        let now = seconds(now);
        let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        self.sweep(now);
        let lifetime = lifetime.clamp(1, Self::LONGEST - 1);
        let end = u64::from(now.wrapping_add(lifetime)) & ENDS;
        let word = (value & Self::MOST) << END_BITS | end;
        let left = |(check, word): &(AtomicU64, AtomicU64)| {
            let (check, word) = (check.load(Relaxed), word.load(Relaxed));
            match check == hash ^ word & !ENDS {
                true => None, // the entry of this hash, which comes before all others
                false => Some(if word == 0 { 0 } else { rest(word, now) }),
            }
        };
        // Of two free places, the one in the set that has more of them.
        let used = |set: &[_; WAYS]| set.iter().filter(|place| left(place) != Some(0)).count();
        let places = self.pair(hash).into_iter().flat_map(|set| {
            let used = used(set);
            set.iter().map(move |place| (used, place))
        });
        let Some((_, place)) = places.min_by_key(|(used, place)| (left(place), *used)) else {
            return;
        };
        *evicted += u64::from(left(place).is_some_and(|left| left > 0));
        place.1.store(word, Relaxed);
        place.0.store(hash ^ word & !ENDS, Relaxed);
    }

    /// Removes the entry of `hash`, if there is one.
    pub fn remove(&self, hash: u64) {
        let _alone = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        for (check, word) in self.places(hash) {
            let old = word.load(Relaxed);
            if old != 0 && check.load(Relaxed) == hash ^ old & !ENDS {
                word.store(0, Relaxed);
            }
        }
    }

    /// The value of `hash` at the time `now`; `None` if there is none or its end was reached.
    #[must_use]
    pub fn get(&self, hash: u64, now: Nanos) -> Option<u64> {
        let now = seconds(now);
        let words =
            self.places(hash).map(|(check, word)| (check.load(Relaxed), word.load(Relaxed)));
        let mut found = words.filter(|(check, word)| *word != 0 && *check == hash ^ *word & !ENDS);
        let (_, word) = found.next()?;
        (rest(word, now) > 0 && self.is_swept(now, Self::LONGEST)).then_some(word >> END_BITS)
    }

    /// The number of entries whose end was not reached at the time `now`. Reads the whole table.
    #[must_use]
    pub fn len(&self, now: Nanos) -> usize {
        let now = seconds(now);
        if !self.is_swept(now, Self::LONGEST) {
            return 0;
        }
        let words = self.sets.iter().flat_map(|set| &set.0).map(|(_, word)| word.load(Relaxed));
        words.filter(|&word| word != 0 && rest(word, now) > 0).count()
    }

    /// How many entries were replaced by others before their end.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        *self.evicted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the entries whose end was reached were removed in the `seconds` before `now`.
    fn is_swept(&self, now: u32, seconds: u32) -> bool {
        // With a sign, because another thread may have read the clock later.
        (now.wrapping_sub(self.swept.load(Relaxed)) as i32) < seconds as i32
    }

    /// Removes the entries whose end was reached, if that was not done for long. The caller holds the lock.
    fn sweep(&self, now: u32) {
        if self.is_swept(now, SWEEP) {
            return;
        }
        // All ends are later than the last sweep: if that was less than `LONGEST` seconds ago, none of them seems to be ahead
        // although it was reached.
        let is_valid = self.is_swept(now, Self::LONGEST);
        for (_, word) in self.sets.iter().flat_map(|set| &set.0) {
            if !is_valid || rest(word.load(Relaxed), now) == 0 {
                word.store(0, Relaxed);
            }
        }
        self.swept.store(now, Relaxed);
    }

    /// The sets in which an entry can be.
    fn pair(&self, hash: u64) -> [&[(AtomicU64, AtomicU64); WAYS]; 2] {
        let mixed = fold(hash ^ self.key, 0x9e37_79b9_7f4a_7c15);
        [mixed, mixed.rotate_left(32)]
            .map(|bits| &self.sets[bits as usize & (self.sets.len() - 1)].0)
    }

    /// The places where an entry can be.
    fn places(&self, hash: u64) -> impl Iterator<Item = &(AtomicU64, AtomicU64)> {
        self.pair(hash).into_iter().flatten()
    }
}

/// The clock of entries.
const fn seconds(now: Nanos) -> u32 {
    (now / 1_000_000_000) as u32
}

/// The seconds from `now` until the end of an entry; 0 if it was reached.
const fn rest(word: u64, now: u32) -> u32 {
    let rest = (word & ENDS).wrapping_sub(now as u64) & ENDS;
    if rest < Replica::LONGEST as u64 { rest as u32 } else { 0 }
}

#[cfg(all(test, not(loom)))]
mod tests;
