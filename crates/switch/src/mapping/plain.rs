//! Plain: an exact table of the keys of plain frames, with the frames of each entry that are not counted yet.
//!
//! ```text
//!  hash ──> first bucket   tags [t0 t1 t2 t3 t4 t5 t6 t7]   see the cuckoo index
//!                                   │ equal
//!                      entry [ key, 40 bytes | port, path | frames, bytes, time ]      one cache line
//! ```
//!
//! A plain frame has an IPv4 packet without a tag, so twelve bytes of each address are zero and are not stored. What is
//! left is small enough for the entry to keep its counts as well: a frame that hits touches this one line, and the
//! counters of its flow entries are written once for many frames. `noted` lists the entries with such counts.
//!
//! A lookup goes over the lanes in short loops, so that the fetches of different lanes do not wait for each other.
//!
//! Invariants: a key has at most one entry; an entry is in `noted` if and only if it has frames that are not counted, and
//! is in it once; no entry is added, moved or removed while `noted` has any; no allocation after `new`.
//! Thread-safety: owned by one core.

use flowyard_flow::fold;
use flowyard_flow::table::Reason;
use flowyard_flow::table::cuckoo::{self, Buckets, Cuckoo, Place, Tags, WAYS, tag};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Rng};

use super::Mapped;

/// The share of the places that is taken when the table is full, in percent.
const TAKEN_PERCENT: usize = 50;
/// When an entry has this number of frames, they are counted. Before that, their bytes fit into 32 bits.
pub(super) const MOST: u32 = 1 << 15;
/// The words of a plain key.
const WORDS: usize = 5;

type Words = [u64; WORDS];

/// Frames of a path that are not counted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Noted {
    pub(crate) path: u32,
    pub(crate) frames: u32,
    pub(crate) bytes: u32,
    /// When the last of them came.
    pub(crate) last: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Entry {
    key: Words,
    path: u32,
    port: u16,
    /// The lower half of the path's generation.
    half: u16,
    frames: u32,
    bytes: u32,
    last: u64,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// The memory of the table: way `w` of bucket `b` is entry `b * WAYS + w`.
#[derive(Debug)]
struct Columns {
    tags: Box<[Tags]>,
    spilled: Box<[u32]>,
    entries: Box<[Entry]>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Plain {
    mask: Words,
    seeds: [u64; WORDS + 1],
    capacity: usize,
    len: usize,
    index: Cuckoo<Columns>,
    noted: Vec<u32>,
}

impl Buckets for Columns {
    #[inline]
    fn count(&self) -> usize {
        self.tags.len()
    }

    #[inline]
    fn tags(&self, bucket: usize) -> &Tags {
        &self.tags[bucket]
    }

    fn tags_mut(&mut self, bucket: usize) -> &mut Tags {
        &mut self.tags[bucket]
    }

    #[inline]
    fn spilled(&self, bucket: usize) -> u32 {
        self.spilled[bucket]
    }

    fn spilled_mut(&mut self, bucket: usize) -> &mut u32 {
        &mut self.spilled[bucket]
    }

    fn relocate(&mut self, from: Place, to: Place) {
        self.entries[to.number()] = self.entries[from.number()];
    }
}

/// The words of a plain key.
#[inline]
fn words(key: &FlowKey) -> Words {
    let w: [u64; 8] = zerocopy::transmute!(*key);
    let low = |word: u64| word & LOW;
    [low(w[0]) | low(w[2]).rotate_left(32), w[4], w[5], w[6], w[7]]
}

/// The key with these words.
fn unwords(w: &Words) -> FlowKey {
    let all = [w[0] & LOW, 0, w[0].rotate_left(32) & LOW, 0, w[1], w[2], w[3], w[4]];
    zerocopy::transmute!(all)
}

/// The bits of a word that has the first four bytes of an address.
const LOW: u64 = u64::from_le(0xffff_ffff);

impl Plain {
    /// A table for `capacity` keys (at most 2^28) that compares the bits of `mask`. `seed` decides where keys are placed.
    pub(super) fn new(capacity: usize, mask: &FlowKey, seed: u64) -> Self {
        let capacity = capacity.min(1 << 28);
        let buckets = cuckoo::buckets_for(capacity, TAKEN_PERCENT);
        let columns = Columns {
            tags: vec![Tags::default(); buckets].into(),
            spilled: vec![0; buckets].into(),
            entries: vec![Entry::default(); buckets * WAYS].into(),
        };
        let mut random = Rng::new(seed);
        Self {
            mask: words(mask),
            seeds: std::array::from_fn(|_| random.bits() | 1),
            capacity,
            len: 0,
            index: Cuckoo::new(columns),
            noted: Vec::with_capacity(capacity),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The words of a key under the mask.
    #[inline]
    fn masked(&self, key: &FlowKey) -> Words {
        let key = words(key);
        std::array::from_fn(|word| key[word] & self.mask[word])
    }

    /// The words are combined with the seeds before any product, so that a sender who does not know the seeds cannot
    /// choose a flow that makes a factor 0.
    #[inline]
    fn hash(&self, w: &Words) -> u64 {
        let s = &self.seeds;
        let sum = fold(w[0] ^ s[0], w[1] ^ s[1]) ^ fold(w[2] ^ s[2], w[3] ^ s[3]);
        fold(sum ^ w[4].wrapping_mul(s[4]), s[5])
    }

    fn find(&self, key: &Words) -> Option<Place> {
        self.index
            .find(self.hash(key), |columns, place| columns.entries[place.number()].key == *key)
    }

    /// Looks for `lanes`. Returns those with an entry, and writes the entry's number to `places`.
    #[inline]
    pub(super) fn lookup(&self, batch: &Batch, lanes: Lanes, places: &mut [u32; LANES]) -> Lanes {
        if self.len == 0 {
            return Lanes::NONE;
        }
        let Columns { tags, entries, .. } = self.index.buckets();
        let mut keys = [[0; WORDS]; LANES];
        let mut spots = [(0, 0); LANES];
        lanes.each(|lane| {
            keys[lane] = self.masked(&batch.keys[lane]);
            let hash = self.hash(&keys[lane]);
            spots[lane] = (self.index.first(hash) as u32, tag(hash));
        });
        // No branch depends on the fetched tags, so the next lane's fetch does not wait for them.
        let mut maybe = Lanes::NONE;
        lanes.each(|lane| {
            let (bucket, tag) = spots[lane];
            let ways = tags[bucket as usize].ways(tag);
            places[lane] = bucket * WAYS as u32 + (ways.lowest() % WAYS) as u32;
            maybe.0 |= u32::from(!ways.is_empty()) << lane;
        });
        // One word of an entry fetches its line; the comparison starts with it.
        let mut first = [0; LANES];
        maybe.each(|lane| first[lane] = entries[places[lane] as usize].key[0] ^ keys[lane][0]);
        let mut found = 0;
        maybe.each(|lane| {
            let (kept, key) = (&entries[places[lane] as usize].key, &keys[lane]);
            let differ = (1..WORDS).fold(first[lane], |differ, w| differ | (kept[w] ^ key[w]));
            found |= u32::from(differ == 0) << lane;
        });
        let mut found = Lanes(found);
        for lane in lanes.without(found) {
            let is_spilled = self.index.buckets().spilled[spots[lane].0 as usize] != 0;
            if (maybe.has(lane) || is_spilled)
                && let Some(place) = self.find(&keys[lane])
            {
                places[lane] = place.number() as u32;
                found = found.with(lane);
            }
        }
        found
    }

    /// What the entry with this number, of [`Plain::lookup`], says.
    #[inline]
    pub(super) fn mapped(&self, place: u32) -> Mapped {
        let Entry { port, path, half, .. } = self.index.buckets().entries[place as usize];
        Mapped { port, path, half }
    }

    /// Notes a frame of `len` bytes for the entry with this number. Returns whether it has to be counted now.
    #[inline]
    pub(super) fn note(&mut self, place: u32, len: u32, now: u64) -> bool {
        let entry = &mut self.index.buckets_mut().entries[place as usize];
        if entry.frames == 0 {
            self.noted.push(place);
        }
        entry.frames += 1;
        entry.bytes += len;
        entry.last = now;
        entry.frames >= MOST
    }

    /// Whether frames are noted.
    #[inline]
    pub(super) const fn has_noted(&self) -> bool {
        !self.noted.is_empty()
    }

    /// The noted frames, which stay noted.
    pub(super) fn noted(&self) -> impl Iterator<Item = Noted> + '_ {
        let entries = &self.index.buckets().entries;
        self.noted.iter().map(|place| {
            let Entry { path, frames, bytes, last, .. } = entries[*place as usize];
            Noted { path, frames, bytes, last }
        })
    }

    /// Takes noted frames of as many entries as `into` has room for. Returns of how many; 0 if there are none.
    pub(super) fn take_noted(&mut self, into: &mut [Noted]) -> usize {
        let from = self.noted.len().saturating_sub(into.len());
        let entries = &mut self.index.buckets_mut().entries;
        let taken = self.noted.drain(from..).zip(into).map(|(place, into)| {
            let Entry { path, frames, bytes, last, .. } = &mut entries[place as usize];
            let (frames, bytes) = (std::mem::take(frames), std::mem::take(bytes));
            *into = Noted { path: *path, frames, bytes, last: *last };
        });
        taken.count()
    }

    /// Adds an entry, or replaces what an equal key's says.
    pub(super) fn put(&mut self, key: &FlowKey, mapped: Mapped) -> Result<(), Reason> {
        debug_assert!(!self.has_noted(), "noted frames are counted before entries change");
        let key = self.masked(key);
        let Mapped { port, path, half } = mapped;
        let entry = Entry { key, path, port, half, ..Entry::default() };
        if let Some(place) = self.find(&key) {
            self.index.buckets_mut().entries[place.number()] = entry;
            return Ok(());
        }
        let capacity = self.capacity;
        if self.len == capacity {
            return Err(Reason::Full { capacity });
        }
        let place = self.index.insert(self.hash(&key)).ok_or(Reason::Crowded { capacity })?;
        self.index.buckets_mut().entries[place.number()] = entry;
        self.len += 1;
        Ok(())
    }

    /// Removes an entry.
    pub(super) fn del(&mut self, key: &FlowKey) {
        debug_assert!(!self.has_noted(), "noted frames are counted before entries change");
        if let Some(place) = self.find(&self.masked(key)) {
            self.index.remove(place);
            self.len -= 1;
        }
    }

    /// Removes every entry.
    pub(super) fn clear(&mut self) {
        debug_assert!(!self.has_noted(), "noted frames are counted before entries change");
        self.index.clear();
        self.len = 0;
    }

    /// Shows every entry.
    pub(super) fn each(&self, show: &mut dyn FnMut(&FlowKey, Mapped)) {
        for place in self.index.taken() {
            let key = unwords(&self.index.buckets().entries[place.number()].key);
            show(&key, self.mapped(place.number() as u32));
        }
    }
}

#[cfg(test)]
mod tests;
