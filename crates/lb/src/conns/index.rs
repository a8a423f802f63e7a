//! Cuckoo index: from a hash to the slots that may contain its key.
//!
//! A tag has 15 bits of the hash, and one bit that tells whether the entry is in its first or second
//! bucket.
//!
//! Invariants: tag 0 is a free way; `spilled` of a bucket is the number of entries whose first
//! bucket it is and that are in their second bucket; the second bucket of the second is the first.

/// Entries of a bucket.
const WAYS: usize = 8;
/// Load factor in percent when the table is full.
const TAKEN: usize = 80;
/// The smallest number of buckets. With fewer, too many keys have the same first and second bucket,
/// and a small table would refuse keys before it has reached its capacity.
const LEAST: usize = 64;
/// The most entries that are moved to insert one.
const MOVES: u32 = 4;
/// The bit of a tag whose entry is in its second bucket.
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
        // The low half of the hash. Callers that select cores by the high half do not reduce it.
        (((hash & 0xffff_ffff) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The alternative bucket of an entry with this tag in bucket `at`.
    #[inline]
    fn other(&self, at: usize, tag: u16) -> usize {
        let count = self.buckets.len() as u64;
        let mixed = u64::from(tag & !SECOND).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let sum = (mixed * count) >> 32;
        let other = sum + count - at as u64;
        (if other >= count { other - count } else { other }) as usize
    }

    /// Reads a word of the first bucket of `hash`, to load its cache line.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) -> u32 {
        self.buckets.get(self.first(hash)).map_or(0, |bucket| bucket.spilled)
    }

    /// A slot that may contain the key of `hash`.
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

    /// The slot among the candidates of `hash` for which `is` returns true.
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

    /// Adds an entry. Returns false if both buckets are full and no entry could be moved.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) -> bool {
        let (at, tag) = (self.first(hash), tag(hash));
        let other = self.other(at, tag);
        let place = (self.free(at).map(|way| (at, way)))
            .or_else(|| self.free(other).map(|way| (other, way)))
            .or_else(|| self.make_room(at, MOVES).map(|way| (at, way)))
            .or_else(|| self.make_room(other, MOVES).map(|way| (other, way)));
        let Some((bucket, way)) = place else { return false };
        // If both buckets of a key are the same, it counts as the first.
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

    /// Frees a way of a full bucket by moving one of its entries to its alternative bucket. If that is
    /// full too, one of its entries is moved first, up to `moves` deep.
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
                    // The nested moves may have changed this bucket.
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

/// The tag of a hash, never 0. It uses bits of the high half, which do not select the bucket.
#[inline]
const fn tag(hash: u64) -> u16 {
    let tag = (hash >> 32) as u16 & !SECOND;
    if tag == 0 { 1 } else { tag }
}

/// The ways of a bucket that have this tag.
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
