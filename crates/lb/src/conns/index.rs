//! The index of the connection table: from a hash to the slots that may have its key.
//!
//! It is the cuckoo index of the exact table ([`flowyard_flow::table::cuckoo`]), with the tags, the
//! slot numbers and the count of one bucket in one cache line.
//!
//! The hash of a connection chooses its backend too. All machines of a cluster have the same one, and a client
//! learns something about it when he sees which backend answers. So the index does not use it as it is: a key
//! of this process alone decides which connections share a bucket.

use flowyard_flow::fold;
use flowyard_flow::table::cuckoo::{Buckets, Cuckoo, Place, Tags, WAYS, buckets_for};
use flowyard_frame::Rng;

/// The share of the places that is taken when the table is full, in percent.
const TAKEN_PERCENT: usize = 80;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    tags: Tags,
    slots: [u32; WAYS],
    spilled: u32,
}

#[derive(Clone, Debug)]
struct Lines(Box<[Bucket]>);

impl Buckets for Lines {
    #[inline]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn tags(&self, bucket: usize) -> &Tags {
        #[cfg(test)]
        tests::READS.set(tests::READS.get() + 1);
        &self.0[bucket].tags
    }

    fn tags_mut(&mut self, bucket: usize) -> &mut Tags {
        &mut self.0[bucket].tags
    }

    #[inline]
    fn spilled(&self, bucket: usize) -> u32 {
        self.0[bucket].spilled
    }

    fn spilled_mut(&mut self, bucket: usize) -> &mut u32 {
        &mut self.0[bucket].spilled
    }

    fn relocate(&mut self, from: Place, to: Place) {
        self.0[to.bucket].slots[to.way] = self.slot(from);
    }
}

impl Lines {
    #[inline]
    fn slot(&self, place: Place) -> u32 {
        self.0[place.bucket].slots[place.way]
    }
}

#[derive(Clone, Debug)]
pub(super) struct Index {
    cuckoo: Cuckoo<Lines>,
    keys: [u64; 2],
}

impl Index {
    /// An empty index for `capacity` slots.
    pub(super) fn new(capacity: usize) -> Self {
        let empty = Bucket { tags: Tags::default(), slots: [0; WAYS], spilled: 0 };
        let buckets = buckets_for(capacity, TAKEN_PERCENT);
        Self { cuckoo: Cuckoo::new(Lines(vec![empty; buckets].into())), keys: keys(0) }
    }

    /// From now on, `key` decides which hashes share a bucket. The index must be empty.
    pub(super) fn rekey(&mut self, key: u64) {
        self.keys = keys(key);
    }

    #[inline]
    const fn place(&self, hash: u64) -> u64 {
        fold(hash ^ self.keys[0], self.keys[1])
    }

    /// The memory that an index for `capacity` slots takes, in bytes.
    pub(super) const fn bytes(capacity: usize) -> usize {
        buckets_for(capacity, TAKEN_PERCENT) * size_of::<Bucket>()
    }

    /// Reads one word of the first bucket of `hash`, so that its cache line is fetched.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) -> u32 {
        self.cuckoo.buckets().spilled(self.cuckoo.first(self.place(hash)))
    }

    /// A slot that may have the key of `hash`; `None` is certain.
    #[inline]
    pub(super) fn candidate(&self, hash: u64) -> Option<u32> {
        self.cuckoo.candidate(self.place(hash)).map(|place| self.cuckoo.buckets().slot(place))
    }

    /// The slot with this hash for which `is` holds.
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let place = self.cuckoo.find(self.place(hash), |lines, place| is(lines.slot(place)))?;
        Some(self.cuckoo.buckets().slot(place))
    }

    /// Adds a slot with this hash; `false` if there was no place for it.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) -> bool {
        let Some(place) = self.cuckoo.insert(self.place(hash)) else { return false };
        self.cuckoo.buckets_mut().0[place.bucket].slots[place.way] = slot;
        true
    }

    /// Removes a slot that was added with this hash.
    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let hash = self.place(hash);
        if let Some(place) = self.cuckoo.find(hash, |lines, place| lines.slot(place) == slot) {
            self.cuckoo.remove(place);
        }
    }
}

fn keys(key: u64) -> [u64; 2] {
    let mut random = Rng::new(key);
    [random.bits(), random.bits() | 1]
}

#[cfg(test)]
mod tests;
