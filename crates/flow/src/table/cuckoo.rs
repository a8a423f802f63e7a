//! Cuckoo index: where the entries of an exact-match table are placed.
//!
//! ```text
//!  hash ──> first bucket   tags [t0 t1 t2 t3 t4 t5 t6 t7]   16 bits each, 0 = free
//!                                   │ equal
//!                          place (bucket, way): the entry itself, or the number of its slot
//! ```
//!
//! Every entry has two buckets of eight places. It is placed in its first bucket unless that was
//! full when the entry was added. Each bucket counts the entries whose first bucket it is and that
//! are placed in their second, so most misses look at one bucket. Where both buckets are full, a
//! entry or two move to their other bucket (cuckoo hashing, Pagh and Rodler 2004, with buckets as in
//! Dietzfelbinger and Weidling 2007). The other bucket follows from the bucket and the tag
//! (partial-key cuckoo hashing, Fan et al., "Cuckoo Filter", CoNEXT 2014), so entries move without
//! their keys being read.
//!
//! A tag has 14 bits of the hash, a bit that is always set, and a bit that says in which of its two
//! buckets the entry is.
//! An insertion reads its two buckets and at most [`LOOKS`] others, whatever hashes its entries have: an
//! adversary who knows the hash function can keep entries out of two buckets that he fills, and cannot
//! make an insertion more expensive.
//!
//! The table that uses the index chooses how tags, counts and entries lie in memory ([`Buckets`]).
//!
//! Invariants: a place is free if and only if its tag is 0; `spilled` of a bucket is the number of
//! entries whose first bucket it is and that are in their second; the other bucket of the other
//! bucket is the bucket itself.
//! Thread-safety: plain data.

/// Places in a bucket.
pub const WAYS: usize = 8;
/// The fewest buckets: with fewer, too many keys have the same two, and a small table would refuse
/// keys before it is full.
const LEAST: usize = 64;
/// The most other buckets that an insertion looks at when both buckets of its entry are full. With random
/// hashes and 80 % of the places taken, no more than 21 were needed in 10^8 insertions.
pub const LOOKS: u32 = 32;
/// The bit of the tag of an entry that is in its second bucket.
const SECOND: u16 = 1 << 15;

/// The tags of one bucket, by way; 0 is a free place.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
pub struct Tags([u16; WAYS]);

/// One place of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number of the bucket.
    pub bucket: usize,
    /// The place in the bucket, below [`WAYS`].
    pub way: usize,
}

impl Place {
    /// The number of the place, for tables that keep their entries in one array.
    #[inline]
    #[must_use]
    pub const fn number(self) -> usize {
        self.bucket * WAYS + self.way
    }
}

/// The memory of an index: tags and counts of the buckets, and what the table keeps at each place.
pub trait Buckets {
    /// The number of buckets, at least 1 and below 2^32. It never changes.
    fn count(&self) -> usize;
    /// The tags of a bucket.
    fn tags(&self, bucket: usize) -> &Tags;
    /// The tags of a bucket; only the index writes them.
    fn tags_mut(&mut self, bucket: usize) -> &mut Tags;
    /// The number of entries with this first bucket that are in their second.
    fn spilled(&self, bucket: usize) -> u32;
    /// As [`Buckets::spilled`]; only the index writes it.
    fn spilled_mut(&mut self, bucket: usize) -> &mut u32;
    /// Moves what the table keeps at `from` to `to`, which is free.
    fn relocate(&mut self, from: Place, to: Place);
}

/// The number of buckets of an index for `capacity` entries that take `percent` of its places when
/// the table is full.
#[must_use]
pub const fn buckets_for(capacity: usize, percent: usize) -> usize {
    let buckets = (capacity * 100).div_ceil(percent * WAYS);
    if buckets < LEAST { LEAST } else { buckets }
}

/// A cuckoo index over the buckets `B`.
#[derive(Clone, Debug)]
pub struct Cuckoo<B> {
    buckets: B,
}

impl<B: Buckets> Cuckoo<B> {
    /// An empty index: every tag and every count in `buckets` is 0.
    #[must_use]
    pub const fn new(buckets: B) -> Self {
        Self { buckets }
    }

    /// The memory of the index.
    #[inline]
    pub const fn buckets(&self) -> &B {
        &self.buckets
    }

    /// The memory of the index, to write what the table keeps at its places.
    #[inline]
    pub const fn buckets_mut(&mut self) -> &mut B {
        &mut self.buckets
    }

    /// The first bucket of a hash: by its low half, scaled rather than divided.
    #[inline]
    pub fn first(&self, hash: u64) -> usize {
        (((hash & 0xffff_ffff) * self.buckets.count() as u64) >> 32) as usize
    }

    /// The other bucket of an entry with tag `tag` in bucket `bucket`.
    #[inline]
    pub fn other(&self, bucket: usize, tag: u16) -> usize {
        let count = self.buckets.count() as u64;
        let mixed = u64::from(tag & !SECOND).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let sum = (mixed * count) >> 32;
        let other = sum + count - bucket as u64;
        (if other >= count { other - count } else { other }) as usize
    }

    /// A place whose entry may have this hash: the lowest with its tag. `None` is certain; a place
    /// may belong to an entry with another key.
    #[inline]
    pub fn candidate(&self, hash: u64) -> Option<Place> {
        let (first, tag) = (self.first(hash), tag(hash));
        if let Some(way) = self.buckets.tags(first).ways(tag).next() {
            return Some(Place { bucket: first, way });
        }
        if self.buckets.spilled(first) == 0 {
            return None;
        }
        let bucket = self.other(first, tag);
        let way = self.buckets.tags(bucket).ways(tag | SECOND).next()?;
        Some(Place { bucket, way })
    }

    /// The place with the tag of `hash` for which `is` holds.
    pub fn find(&self, hash: u64, is: impl Fn(&B, Place) -> bool) -> Option<Place> {
        let (first, tag) = (self.first(hash), tag(hash));
        let look = |bucket: usize, tag: u16| {
            let ways = self.buckets.tags(bucket).ways(tag);
            ways.map(|way| Place { bucket, way }).find(|place| is(&self.buckets, *place))
        };
        let second = || {
            let spilled = self.buckets.spilled(first) != 0;
            spilled.then(|| look(self.other(first, tag), tag | SECOND)).flatten()
        };
        look(first, tag).or_else(second)
    }

    /// Takes a place for an entry with this hash, for the caller to write the entry to; `None` if
    /// no place could be freed. Does not look whether the entry is there already.
    pub fn insert(&mut self, hash: u64) -> Option<Place> {
        let (first, tag) = (self.first(hash), tag(hash));
        let other = self.other(first, tag);
        let mut looks = LOOKS;
        let place = (self.free(first))
            .or_else(|| self.free(other))
            .or_else(|| self.move_one(first, &mut looks))
            .or_else(|| self.move_one(other, &mut looks))
            .or_else(|| self.move_two(first, &mut looks))
            .or_else(|| self.move_two(other, &mut looks))?;
        // An entry whose two buckets are the same is in its first.
        self.set(place, if place.bucket == first { tag } else { tag | SECOND });
        Some(place)
    }

    /// Frees a place that is taken.
    pub fn remove(&mut self, place: Place) {
        self.unset(place);
    }

    /// The places that are taken.
    pub fn taken(&self) -> impl Iterator<Item = Place> + '_ {
        (0..self.buckets.count()).flat_map(move |bucket| {
            let tags = self.buckets.tags(bucket).0;
            (0..WAYS).filter(move |&way| tags[way] != 0).map(move |way| Place { bucket, way })
        })
    }

    /// Frees every place.
    pub fn clear(&mut self) {
        for bucket in 0..self.buckets.count() {
            *self.buckets.tags_mut(bucket) = Tags::default();
            *self.buckets.spilled_mut(bucket) = 0;
        }
    }

    /// Panics if a count of spilled entries is wrong.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut spilled = vec![0; self.buckets.count()];
        for place in self.taken() {
            let tag = self.buckets.tags(place.bucket).0[place.way];
            if tag & SECOND != 0 {
                spilled[self.other(place.bucket, tag)] += 1;
            }
        }
        assert!((0..spilled.len()).all(|bucket| spilled[bucket] == self.buckets.spilled(bucket)));
    }

    fn free(&self, bucket: usize) -> Option<Place> {
        self.buckets.tags(bucket).ways(0).next().map(|way| Place { bucket, way })
    }

    fn set(&mut self, place: Place, tag: u16) {
        self.buckets.tags_mut(place.bucket).0[place.way] = tag;
        if tag & SECOND != 0 {
            let first = self.other(place.bucket, tag);
            *self.buckets.spilled_mut(first) += 1;
        }
    }

    /// Frees a place and returns its tag.
    fn unset(&mut self, place: Place) -> u16 {
        let tag = std::mem::take(&mut self.buckets.tags_mut(place.bucket).0[place.way]);
        if tag & SECOND != 0 {
            let first = self.other(place.bucket, tag);
            *self.buckets.spilled_mut(first) -= 1;
        }
        tag
    }

    /// Frees a place of a full bucket: one of its entries moves to its other bucket.
    fn move_one(&mut self, bucket: usize, looks: &mut u32) -> Option<Place> {
        let tags = self.buckets.tags(bucket).0;
        for (way, tag) in (0..WAYS).zip(tags) {
            let to = self.other(bucket, tag);
            if to == bucket {
                continue;
            }
            *looks = looks.checked_sub(1)?;
            if let Some(spot) = self.free(to) {
                return Some(self.relocate(Place { bucket, way }, spot));
            }
        }
        None
    }

    /// As [`Cuckoo::move_one`] where the other buckets are full too: an entry of one of them moves first.
    fn move_two(&mut self, bucket: usize, looks: &mut u32) -> Option<Place> {
        let tags = self.buckets.tags(bucket).0;
        for (way, tag) in (0..WAYS).zip(tags) {
            let to = self.other(bucket, tag);
            if *looks == 0 || to == bucket {
                continue;
            }
            // No entry moves to `bucket`, because it is full: its tags are still `tags`.
            if let Some(spot) = self.move_one(to, looks) {
                return Some(self.relocate(Place { bucket, way }, spot));
            }
        }
        None
    }

    /// Moves an entry from `from` to `to`, a free place of its other bucket, and returns `from`.
    fn relocate(&mut self, from: Place, to: Place) -> Place {
        let tag = self.unset(from);
        self.set(to, tag ^ SECOND);
        self.buckets.relocate(from, to);
        from
    }
}

/// The tag of a hash in its first bucket, never 0: bits 33 to 46, which do not choose the bucket.
#[inline]
#[must_use]
pub const fn tag(hash: u64) -> u16 {
    (hash >> 32) as u16 & !SECOND | 1
}

/// The tag of the same entry in its second bucket.
#[inline]
#[must_use]
pub const fn second(tag: u16) -> u16 {
    tag | SECOND
}

impl Tags {
    /// The ways with this tag, lowest first.
    #[inline]
    #[must_use]
    pub fn ways(&self, tag: u16) -> Ways {
        Ways(equal(&self.0, tag))
    }
}

/// Bit `w` is set if word `w` equals `word`. Compilers do not generate these four instructions.
#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "vector instructions of every x86-64 processor")]
fn equal(words: &[u16; WAYS], word: u16) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi16, _mm_set1_epi16,
        _mm_setzero_si128,
    };
    let [a, b, c, d, e, f, g, h] = words.map(u16::cast_signed);
    // SAFETY: these functions need SSE2, which is part of x86-64, and nothing else.
    let bits = unsafe {
        let words = _mm_set_epi16(h, g, f, e, d, c, b, a);
        let equal = _mm_cmpeq_epi16(words, _mm_set1_epi16(word.cast_signed()));
        _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128()))
    };
    bits.cast_unsigned()
}

/// Bit `w` is set if word `w` equals `word`.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn equal(words: &[u16; WAYS], word: u16) -> u32 {
    (0..WAYS).fold(0, |bits, way| bits | u32::from(words[way] == word) << way)
}

/// Ways of a bucket: bit `w` is set if way `w` is among them.
#[derive(Clone, Copy, Debug)]
pub struct Ways(u32);

impl Ways {
    /// Whether there is no such way.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest way, or 32 if there is none.
    #[inline]
    #[must_use]
    pub const fn lowest(self) -> usize {
        self.0.trailing_zeros() as usize
    }
}

impl Iterator for Ways {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let way = self.lowest();
        self.0 &= self.0.wrapping_sub(1);
        (way < WAYS).then_some(way)
    }
}

#[cfg(test)]
mod tests;
