//! Exact table: key under a fixed mask to action, fixed in size (a perfect-match filter table).
//!
//! ```text
//!  hash ──> first bucket   tags [t0 t1 t2 t3 t4 t5 t6 t7]   see the cuckoo index
//!                                   │ equal
//!                      entry [ key, 48 bytes | action ]      one cache line
//!                      rest  [ 16 bytes more of the key ]    only if the mask has them
//! ```
//!
//! A lookup goes over the lanes in short loops: hash, compare the tags, fetch the entries, compare
//! the keys. The fetches of different lanes do not wait for each other, so 32 cache misses cost
//! about as much as a few. Lanes that missed and whose first bucket has spilled then look at their
//! second bucket in the same way.
//!
//! Invariants: a key has at most one entry; no allocation after `new`.

use flowyard_frame::{Action, Batch, Edit, FlowKey, LANES, Lanes};

use super::cuckoo::{self, Buckets, Cuckoo, Place, Tags, WAYS, tag};
use super::{Reason, Refusal, Table};
use crate::mix::{Mix, unwords, words};

/// The share of the places that is taken when the table is full, in percent: few keys are then in
/// their second bucket.
const TAKEN_PERCENT: usize = 50;

#[cfg(test)]
thread_local! {
    /// How often changes and single lookups of tables have read the tags of a bucket.
    pub(crate) static READS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The slim words of a key, and its action: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Entry {
    key: [u64; 6],
    action: Action,
}

/// The memory of the table: way `w` of bucket `b` is entry `b * WAYS + w`.
#[derive(Clone, Debug)]
struct Columns {
    tags: Box<[Tags]>,
    spilled: Box<[u32]>,
    entries: Box<[Entry]>,
    /// Words 5 and 7 of each entry's key; empty when the mask has neither.
    rest: Box<[[u64; 2]]>,
}

/// A fixed-size table from keys to actions.
#[derive(Clone, Debug)]
pub struct Exact {
    mask: [u64; 6],
    rest_mask: [u64; 2],
    mix: Mix,
    capacity: usize,
    len: usize,
    index: Cuckoo<Columns>,
}

/// The words of a key under the mask, and their hash.
struct Wanted {
    key: [u64; 6],
    rest: [u64; 2],
    hash: u64,
}

impl Buckets for Columns {
    #[inline]
    fn count(&self) -> usize {
        self.tags.len()
    }

    #[inline]
    fn tags(&self, bucket: usize) -> &Tags {
        #[cfg(test)]
        READS.set(READS.get() + 1);
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
        let (from, to) = (from.number(), to.number());
        self.entries[to] = self.entries[from];
        if !self.rest.is_empty() {
            self.rest[to] = self.rest[from];
        }
    }
}

impl Exact {
    /// A table for `capacity` keys (at most 2^28) that matches on the fields of `mask`. `seed`
    /// decides where keys are placed; keep it from those who choose the keys.
    #[must_use]
    pub fn new(capacity: usize, mask: &FlowKey, seed: u64) -> Self {
        let capacity = capacity.min(1 << 28);
        Self::with_buckets(capacity, cuckoo::buckets_for(capacity, TAKEN_PERCENT), mask, seed)
    }

    fn with_buckets(capacity: usize, buckets: usize, mask: &FlowKey, seed: u64) -> Self {
        let (mask, rest_mask) = words(mask);
        let rest = if rest_mask == [0; 2] { 0 } else { buckets * WAYS };
        let empty = Entry { key: [0; 6], action: Action::default() };
        let columns = Columns {
            tags: vec![Tags::default(); buckets].into(),
            spilled: vec![0; buckets].into(),
            entries: vec![empty; buckets * WAYS].into(),
            rest: vec![[0; 2]; rest].into(),
        };
        let index = Cuckoo::new(columns);
        Self { mask, rest_mask, mix: Mix::new(seed), capacity, len: 0, index }
    }

    /// The memory that a table for `capacity` keys with the slim words of a key takes, in bytes.
    #[must_use]
    pub const fn bytes(capacity: usize) -> usize {
        let capacity = if capacity < 1 << 28 { capacity } else { 1 << 28 };
        let bucket = size_of::<Tags>() + size_of::<u32>() + WAYS * size_of::<Entry>();
        cuckoo::buckets_for(capacity, TAKEN_PERCENT) * bucket
    }

    /// Number of keys in the table.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The largest number of keys.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The action of `key` under the table's mask.
    #[must_use]
    pub fn get(&self, key: &FlowKey) -> Option<&Action> {
        let place = self.find(&self.wanted(key))?;
        Some(&self.index.buckets().entries[place.number()].action)
    }

    /// Adds the entry, or replaces the action of an equal key.
    ///
    /// # Errors
    /// When the key has bits outside the mask, or there is no place for it.
    pub fn put(&mut self, key: &FlowKey, action: Action) -> Result<(), Reason> {
        let wanted = self.wanted(key);
        if (wanted.key, wanted.rest) != words(key) {
            return Err(Reason::OutsideMask);
        }
        if let Some(place) = self.find(&wanted) {
            self.index.buckets_mut().entries[place.number()].action = action;
            return Ok(());
        }
        let capacity = self.capacity;
        if self.len == capacity {
            return Err(Reason::Full { capacity });
        }
        let place = self.index.insert(wanted.hash).ok_or(Reason::Crowded { capacity })?;
        let Columns { entries, rest, .. } = self.index.buckets_mut();
        entries[place.number()] = Entry { key: wanted.key, action };
        if let Some(rest) = rest.get_mut(place.number()) {
            *rest = wanted.rest;
        }
        self.len += 1;
        Ok(())
    }

    /// Removes the entry with this key; returns whether there was one.
    pub fn del(&mut self, key: &FlowKey) -> bool {
        let Some(place) = self.find(&self.wanted(key)) else { return false };
        self.index.remove(place);
        self.len -= 1;
        true
    }

    /// Removes every entry.
    pub fn clear(&mut self) {
        self.index.clear();
        self.len = 0;
    }

    /// The first bucket of a key, and its tag there.
    #[cfg(test)]
    pub(crate) fn spot(&self, key: &FlowKey) -> (usize, u16) {
        let hash = self.wanted(key).hash;
        (self.index.first(hash), tag(hash))
    }

    fn wanted(&self, key: &FlowKey) -> Wanted {
        let (key, rest) = self.masked::<false>(key);
        let slim = self.index.buckets().rest.is_empty();
        let hash = if slim { self.mix.slim(&key) } else { self.mix.whole(&key, &rest) };
        Wanted { hash, key, rest }
    }

    fn find(&self, wanted: &Wanted) -> Option<Place> {
        self.index.find(wanted.hash, |columns, place| {
            let rest = columns.rest.get(place.number()).is_none_or(|rest| *rest == wanted.rest);
            rest && columns.entries[place.number()].key == wanted.key
        })
    }

    /// Looks up the lanes of `want`, compiled for kinds of masks: `ADDRESSES` if the mask has both whole
    /// addresses (words 0 to 3), `SLIM` if it has neither word 5 nor 7. Returns the lanes that missed.
    #[inline]
    fn lookup_by<const ADDRESSES: bool, const SLIM: bool>(
        &self,
        batch: &mut Batch,
        want: Lanes,
    ) -> Lanes {
        let (mut buckets, mut tags) = ([0; LANES], [0; LANES]);
        want.each(|lane| {
            let (w, rest) = self.masked::<ADDRESSES>(&batch.keys[lane]);
            let hash = if SLIM { self.mix.slim(&w) } else { self.mix.whole(&w, &rest) };
            buckets[lane] = self.index.first(hash) as u32;
            tags[lane] = tag(hash);
        });
        let missed = self.round::<ADDRESSES, SLIM>(batch, want, &buckets, &tags);
        let spilled = |&lane: &usize| self.index.buckets().spilled[buckets[lane] as usize] != 0;
        let again = missed.filter(spilled).fold(Lanes::NONE, Lanes::with);
        if again.is_empty() {
            return missed;
        }
        for lane in again {
            buckets[lane] = self.index.other(buckets[lane] as usize, tags[lane]) as u32;
            tags[lane] = cuckoo::second(tags[lane]);
        }
        let never = self.round::<ADDRESSES, SLIM>(batch, again, &buckets, &tags);
        missed.without(again.without(never))
    }

    /// Looks for the keys of `want` in these buckets; returns the lanes that missed. The loops are short,
    /// so that a processor fetches for all lanes at the same time.
    #[inline]
    fn round<const ADDRESSES: bool, const SLIM: bool>(
        &self,
        batch: &mut Batch,
        want: Lanes,
        buckets: &[u32; LANES],
        tags: &[u16; LANES],
    ) -> Lanes {
        let columns = self.index.buckets();
        let mut places = [0; LANES];
        let mut maybe = Lanes::NONE;
        want.each(|lane| {
            let bucket = buckets[lane] as usize;
            // No branch depends on the fetched tags, so the next lane's fetch does not wait for them.
            let ways = columns.tags[bucket].ways(tags[lane]);
            places[lane] = (bucket * WAYS + ways.lowest()) as u32;
            maybe.0 |= u32::from(!ways.is_empty()) << lane;
        });
        // One word of an entry fetches its line; the comparison starts with it.
        let mut ports = [0; LANES];
        maybe.each(|lane| ports[lane] = columns.entries[places[lane] as usize].key[4]);
        let mut missed = want.without(maybe);
        maybe.each(|lane| {
            let (w, rest) = self.masked::<ADDRESSES>(&batch.keys[lane]);
            if let Some(Entry { key, action }) = columns.entries.get(places[lane] as usize)
                && w[4] == ports[lane]
                && [0, 1, 2, 3, 5].iter().fold(0, |differ, &i| differ | (w[i] ^ key[i])) == 0
                && (SLIM || rest == columns.rest[places[lane] as usize])
            {
                batch.actions[lane] = *action;
            } else if let Some(action) = self.get_again(&batch.keys[lane]) {
                batch.actions[lane] = *action;
            } else {
                missed = missed.with(lane);
            }
        });
        missed
    }

    /// The words of `key` under the table's mask.
    #[inline]
    fn masked<const ADDRESSES: bool>(&self, key: &FlowKey) -> ([u64; 6], [u64; 2]) {
        let (key, rest) = words(key);
        let (m, r) = (&self.mask, &self.rest_mask);
        let kept = |i: usize| if ADDRESSES && i < 4 { key[i] } else { key[i] & m[i] };
        (std::array::from_fn(kept), [rest[0] & r[0], rest[1] & r[1]])
    }

    /// The slow path of the rare lane whose tag is equal to that of another key.
    #[cold]
    fn get_again(&self, key: &FlowKey) -> Option<&Action> {
        self.get(key)
    }
}

impl Table for Exact {
    #[inline]
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes {
        if self.len == 0 {
            want
        } else if !self.index.buckets().rest.is_empty() {
            self.lookup_by::<false, false>(batch, want)
        } else if self.mask[..4] == [u64::MAX; 4] {
            self.lookup_by::<true, true>(batch, want)
        } else {
            self.lookup_by::<false, true>(batch, want)
        }
    }

    fn apply(&mut self, edits: &[Edit], refused: &mut Vec<Refusal>) {
        for &edit in edits {
            match edit {
                Edit::Put(key, action) => {
                    if let Err(reason) = self.put(&key, action) {
                        refused.push(Refusal { edit, reason });
                    }
                }
                Edit::Del(key) => {
                    self.del(&key);
                }
            }
        }
    }

    fn occupancy(&self) -> Option<(usize, usize)> {
        Some((self.len, self.capacity))
    }

    fn each(&self, show: &mut dyn FnMut(&FlowKey, &Action)) {
        let Columns { entries, rest, .. } = self.index.buckets();
        for place in self.index.taken() {
            let Entry { key, action } = &entries[place.number()];
            show(&unwords(key, &rest.get(place.number()).copied().unwrap_or_default()), action);
        }
    }
}

#[cfg(test)]
mod tests;
