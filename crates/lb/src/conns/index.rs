//! The index: from a hash to the slots that may have its key.
//!
//! A tag has 15 bits of the hash, and one that says in which of its two buckets it stands.
//!
//! Invariants: tag 0 is a free place; `spilled` of a bucket is the number of entries whose first
//! bucket it is and that stand in their second; the second bucket of the second is the first.

/// Places of a bucket.
const WAYS: usize = 8;
/// Of the places that are made, so many in a hundred are taken when the table is full.
const TAKEN: usize = 80;
/// So many buckets at least: of few, too many keys have one and the same for both of theirs, and a small
/// table would be full before it is.
const LEAST: usize = 64;
/// How many moves may make room for one entry.
const MOVES: u32 = 4;
/// The bit of a tag that stands in its second bucket.
const SECOND: u16 = 1 << 15;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u16; WAYS],
    slots: [u32; WAYS],
    spilled: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Index {
    buckets: Box<[Bucket]>,
}

impl Index {
    pub(super) fn new(capacity: usize) -> Self {
        let empty = Bucket { tags: [0; WAYS], slots: [0; WAYS], spilled: 0 };
        Self { buckets: vec![empty; Self::buckets(capacity)].into() }
    }

    const fn buckets(capacity: usize) -> usize {
        let buckets = (capacity * 100).div_ceil(TAKEN * WAYS);
        if buckets < LEAST { LEAST } else { buckets }
    }

    pub(super) const fn bytes(capacity: usize) -> usize {
        Self::buckets(capacity) * size_of::<Bucket>()
    }

    #[inline]
    fn first(&self, hash: u64) -> usize {
        // The low half: whoever chooses by the high half leaves all of these bits.
        (((hash & 0xffff_ffff) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The bucket that is `at`'s partner for this tag.
    #[inline]
    fn other(&self, at: usize, tag: u16) -> usize {
        let count = self.buckets.len() as u64;
        let mixed = u64::from(tag & !SECOND).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let sum = (mixed * count) >> 32;
        let other = sum + count - at as u64;
        (if other >= count { other - count } else { other }) as usize
    }

    /// One word of the first bucket of `hash`: to have its line on the way.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) -> u32 {
        self.buckets.get(self.first(hash)).map_or(0, |bucket| bucket.spilled)
    }

    /// A slot that may have the key of `hash`.
    #[inline]
    pub(super) fn candidate(&self, hash: u64) -> Option<u32> {
        let (at, tag) = (self.first(hash), tag(hash));
        let bucket = self.buckets.get(at)?;
        if let Some(way) = ways(bucket, tag).next() {
            return Some(bucket.slots[way]);
        }
        if bucket.spilled == 0 {
            return None;
        }
        let other = self.buckets.get(self.other(at, tag))?;
        ways(other, tag | SECOND).next().map(|way| other.slots[way])
    }

    /// The slot of `hash` that `is` the one.
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let (at, tag) = (self.first(hash), tag(hash));
        let look = |at: usize, tag: u16| {
            let bucket = &self.buckets[at];
            ways(bucket, tag).map(|way| bucket.slots[way]).find(|&slot| is(slot))
        };
        let second = || {
            let spilled = self.buckets[at].spilled != 0;
            spilled.then(|| look(self.other(at, tag), tag | SECOND)).flatten()
        };
        look(at, tag).or_else(second)
    }

    /// Adds an entry; whether there was room.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) -> bool {
        let (at, tag) = (self.first(hash), tag(hash));
        let other = self.other(at, tag);
        let place = (self.free(at).map(|way| (at, way)))
            .or_else(|| self.free(other).map(|way| (other, way)))
            .or_else(|| self.make_room(at, MOVES).map(|way| (at, way)))
            .or_else(|| self.make_room(other, MOVES).map(|way| (other, way)));
        let Some((bucket, way)) = place else { return false };
        // A key whose two buckets are one stands in its first.
        let tag = if bucket == at { tag } else { tag | SECOND };
        self.set(bucket, way, tag, slot);
        true
    }

    /// Removes the entry of `slot`.
    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let (at, tag) = (self.first(hash), tag(hash));
        for (bucket, tag) in [(at, tag), (self.other(at, tag), tag | SECOND)] {
            let line = &self.buckets[bucket];
            if let Some(way) = ways(line, tag).find(|&way| line.slots[way] == slot) {
                self.unset(bucket, way);
                return;
            }
        }
    }

    fn free(&self, at: usize) -> Option<usize> {
        ways(&self.buckets[at], 0).next()
    }

    fn set(&mut self, at: usize, way: usize, tag: u16, slot: u32) {
        let bucket = &mut self.buckets[at];
        (bucket.tags[way], bucket.slots[way]) = (tag, slot);
        if tag & SECOND != 0 {
            let first = self.other(at, tag);
            self.buckets[first].spilled += 1;
        }
    }

    fn unset(&mut self, at: usize, way: usize) -> (u16, u32) {
        let bucket = &mut self.buckets[at];
        let tag = std::mem::take(&mut bucket.tags[way]);
        let slot = bucket.slots[way];
        if tag & SECOND != 0 {
            let first = self.other(at, tag);
            self.buckets[first].spilled -= 1;
        }
        (tag, slot)
    }

    /// Frees a place of a full bucket: one of its entries moves to its other bucket, after that
    /// bucket's own have made room if need be.
    fn make_room(&mut self, at: usize, moves: u32) -> Option<usize> {
        for moves in [1, moves] {
            for way in 0..WAYS {
                let to = self.other(at, self.buckets[at].tags[way]);
                if to == at {
                    continue;
                }
                let mut spot = self.free(to);
                if spot.is_none() && moves > 1 {
                    spot = self.make_room(to, moves - 1);
                    // The moves further on may have come by here.
                    if let Some(free) = self.free(at) {
                        return Some(free);
                    }
                    if to != self.other(at, self.buckets[at].tags[way]) {
                        continue;
                    }
                }
                if let Some(spot) = spot.filter(|&spot| self.buckets[to].tags[spot] == 0) {
                    let (tag, slot) = self.unset(at, way);
                    self.set(to, spot, tag ^ SECOND, slot);
                    return Some(way);
                }
            }
        }
        None
    }
}

/// The tag of a hash, never 0: bits that choose no bucket of a table this side of 2^32 entries.
#[inline]
const fn tag(hash: u64) -> u16 {
    let tag = (hash >> 32) as u16 & !SECOND;
    if tag == 0 { 1 } else { tag }
}

/// The places of a bucket with this tag.
#[inline]
fn ways(bucket: &Bucket, tag: u16) -> impl Iterator<Item = usize> + use<> {
    let mut equal = 0u32;
    for (way, other) in bucket.tags.iter().enumerate() {
        equal |= u32::from(*other == tag) << way;
    }
    std::iter::from_fn(move || {
        let way = equal.trailing_zeros() as usize;
        equal &= equal.wrapping_sub(1);
        (way < WAYS).then_some(way)
    })
}
