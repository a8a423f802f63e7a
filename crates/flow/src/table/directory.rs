//! Which cores may have an entry: a directory of tables of which each core has its own.
//!
//! ```text
//!  hash ──> bucket, half a cache line: [ unlisted | tag, core x 15 ]
//!                                        │            └ equal tag: that core may have it
//!                                        └ not 0: any core may have it
//! ```
//!
//! A core adds a word when it adds an entry to its table, and removes it with the entry. An entry that finds its
//! bucket full is counted there instead, until it is removed: meanwhile a lookup in this bucket cannot exclude any
//! core. A core that does not have an entry reads one bucket to know which other tables it must search, instead of
//! searching all of them.
//!
//! The table itself has a lock of its core, under which its entries and their words change. So a word that is not 0
//! is changed only by the core that it names, words never move, and no order of memory accesses is needed: who has
//! learnt that a core has added an entry (because it got the lock, or a frame, after that) finds its word. A word may
//! be removed later than its entry: then a table is searched that does not have it.
//!
//! Four words are one atomic number, so that a lookup compares them at once.
//!
//! Invariants: what is added and not removed is found; every word and every count belongs to one entry of a table.
//! Thread-safety: all cores read and write it, without locks.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowyard_frame::Rng;

use crate::fold;

/// Numbers of a bucket. The model checker takes a time that is exponential in it.
const NUMBERS: usize = if cfg!(loom) { 1 } else { 4 };
/// Words of a bucket: four in each number, but the lowest of the first number is the count.
const WAYS: usize = NUMBERS * 4 - 1;
/// The mean number of entries of a bucket when all tables are full. Of such buckets, 2 in 1,000 get more than 15.
const MEAN: usize = 7;
/// The number with 1 in each word.
const ONES: u64 = 0x0001_0001_0001_0001;
/// The count of entries for which there was no word, in the first number. It stays at this largest value once it
/// is reached.
const COUNT: u64 = 0xffff;

#[derive(Debug, Default)]
#[repr(C, align(32))]
struct Bucket([AtomicU64; NUMBERS]);

/// The cores that have an entry, by the entry's hash.
#[derive(Debug)]
pub struct Directory {
    buckets: Box<[Bucket]>,
    /// Bits of a word that are the core, from 1 on, so that 0 is no entry. The others are the tag.
    core_bits: u32,
    keys: [u64; 2],
}

/// The cores that may have an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// No core has it.
    None,
    /// The first of these, by number; the rest of the array is not used. No other core has it.
    Only([u16; WAYS], usize),
    /// Every core may have it.
    Any,
}

impl Directory {
    /// The largest number of cores.
    pub const CORES: usize = (1 << 12) - 1;

    /// An empty directory for the tables of `cores` cores with this number of entries in all. `key` decides which
    /// hashes share a bucket. `cores` above [`Self::CORES`] is taken as that.
    #[must_use]
    pub fn new(cores: usize, entries: usize, key: u64) -> Self {
        let mut random = Rng::new(key);
        let buckets = (0..Self::buckets(entries)).map(|_| Bucket::default()).collect();
        // 16 cores leave 11 bits for the tag: 7 words have an equal one in 3 of 1,000 lookups.
        let core_bits = usize::BITS - cores.min(Self::CORES).leading_zeros();
        Self { buckets, core_bits, keys: [random.bits(), random.bits() | 1] }
    }

    const fn buckets(entries: usize) -> usize {
        entries / MEAN + 1
    }

    /// The memory of a directory for this number of entries.
    #[must_use]
    pub const fn bytes(entries: usize) -> usize {
        Self::buckets(entries) * size_of::<Bucket>()
    }

    /// The bucket of a hash, and its tag.
    #[inline]
    fn place(&self, hash: u64) -> (&Bucket, u16) {
        let mixed = fold(hash ^ self.keys[0], self.keys[1]);
        let bucket = (u128::from(mixed) * self.buckets.len() as u128) >> 64;
        (&self.buckets[bucket as usize], (mixed as u16) << self.core_bits)
    }

    /// Reads a part of the bucket of a hash, so that its cache line is fetched.
    #[must_use]
    #[inline]
    pub fn fetch(&self, hash: u64) -> u64 {
        self.place(hash).0.0[0].load(Relaxed)
    }

    /// The table of `core` has another entry with this hash. Only who may change that table calls this.
    #[inline]
    pub fn add(&self, hash: u64, core: u16) {
        let (bucket, tag) = self.place(hash);
        let word = u64::from(tag | (core + 1));
        for (at, number) in bucket.0.iter().enumerate() {
            let mut old = number.load(Relaxed);
            // The count is not a free word.
            while let Some(shift) = first_zero(old | u64::from(at == 0)) {
                match number.compare_exchange(old, old | word << shift, Relaxed, Relaxed) {
                    Ok(_) => return,
                    Err(now) => old = now,
                }
            }
        }
        let more = |number: u64| (number & COUNT != COUNT).then_some(number + 1);
        let _ = bucket.0[0].fetch_update(Relaxed, Relaxed, more);
    }

    /// The table of `core` has an entry with this hash less, which was added. Only who may change that table calls this.
    #[inline]
    pub fn remove(&self, hash: u64, core: u16) {
        let (bucket, tag) = self.place(hash);
        let word = u64::from(tag | (core + 1));
        for (at, number) in bucket.0.iter().enumerate() {
            let differs = number.load(Relaxed) ^ (word * ONES);
            // The count may look like a word.
            if let Some(shift) = first_zero(differs | u64::from(at == 0)) {
                // Nobody else changes a word that names this core.
                number.fetch_and(!(COUNT << shift), Relaxed);
                return;
            }
        }
        // At its largest value, it does not tell any more how many there are.
        let less =
            |number: u64| (number & COUNT != COUNT && number & COUNT != 0).then(|| number - 1);
        let before = bucket.0[0].fetch_update(Relaxed, Relaxed, less);
        debug_assert!(
            before.is_ok() || before.is_err_and(|number| number & COUNT == COUNT),
            "an entry was removed that was not added"
        );
    }

    /// The cores that may have an entry with this hash.
    #[must_use]
    #[inline]
    pub fn find(&self, hash: u64) -> Listed {
        let (bucket, tag) = self.place(hash);
        let tags = (COUNT << self.core_bits & COUNT) * ONES;
        let (mut alike, mut count) = (false, 0);
        for (at, number) in bucket.0.iter().enumerate() {
            let number = number.load(Relaxed);
            count |= if at == 0 { number & COUNT } else { 0 };
            alike |= first_zero((number ^ (u64::from(tag) * ONES)) & tags).is_some();
        }
        match (count, alike) {
            (0, false) => Listed::None,
            (0, true) => self.cores(bucket, tag),
            _ => Listed::Any,
        }
    }

    /// The cores of the words of a bucket that have this tag.
    #[cold]
    fn cores(&self, bucket: &Bucket, tag: u16) -> Listed {
        let (mut cores, mut len) = ([0; WAYS], 0);
        let most = (1 << self.core_bits) - 1;
        for (at, number) in bucket.0.iter().enumerate() {
            let number = number.load(Relaxed);
            if at == 0 && number & COUNT != 0 {
                return Listed::Any; // since the first look
            }
            for word in [0, 16, 32, 48].map(|shift| (number >> shift) as u16) {
                let core = (word ^ tag).wrapping_sub(1); // wraps if the word and the tag are 0
                if core < most {
                    cores[len] = core;
                    len += 1;
                }
            }
        }
        cores[..len].sort_unstable();
        if len == 0 { Listed::None } else { Listed::Only(cores, len) }
    }
}

/// The position of the lowest word that is 0, in bits.
#[inline]
const fn first_zero(number: u64) -> Option<u32> {
    // A borrow passes a word only if it is 0, so the lowest mark is that of a word that is.
    let marks = number.wrapping_sub(ONES) & !number & (ONES << 15);
    if marks == 0 { None } else { Some(marks.trailing_zeros() / 16 * 16) }
}

#[cfg(all(test, not(loom)))]
mod tests;
