//! Exact table: key under a fixed mask to action, fixed in size (a perfect-match filter table).
//!
//! ```text
//!  hash ──> bucket ──> tags  [t0 t1 t2 t3 t4 t5 t6 t7]   one byte each, 0 = free: a 64-bit word
//!                                   │ equal
//!                      entry [ key, 48 bytes | action ]      one cache line
//!                      rest  [ 16 bytes more of the key ]    only if the mask has them
//! ```
//!
//! Every key has two buckets of eight; it stands in its first unless that was full when it came.
//! Each bucket counts those of its keys that stand in their second, so that most misses look at
//! one bucket. Where both are full, a few entries move to their other bucket (cuckoo hashing,
//! Pagh and Rodler 2004, with buckets as in Dietzfelbinger and Weidling 2007).
//!
//! A lookup goes over the lanes in short loops: hash, fetch the tags, fetch the entries, compare.
//! The fetches of different lanes do not wait for each other, so 32 cache misses cost about as
//! much as a few. The lanes whose keys may stand in their second bucket then go round once more.
//!
//! Invariants: a key stands at most once, in one of its two buckets; `spilled[b]` is the number
//! of keys with first bucket `b` that stand elsewhere; no allocation after `new`.

use flowyard_frame::{Action, Batch, Edit, FlowKey, LANES, Lanes};

use super::{Offload, Reason, Refusal, Table};
use crate::mix::{Mix, unwords, words};

/// Entries of a bucket.
const WAYS: usize = 8;
/// Entries of a bucket that are taken, on average, when the table is full: few keys then stand in
/// their second bucket.
const TAKEN: usize = 4;
/// So many buckets at least: of few, too many keys have the same two, and a small table would be crowded
/// before it is full.
const LEAST: usize = 64;
/// How many moves may make room for one entry.
const MOVES: u32 = 3;

/// A key's slim words, and its action: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Entry {
    key: [u64; 6],
    action: Action,
}

/// A fixed-size table from keys to actions.
#[derive(Clone, Debug)]
pub struct Exact {
    mask: [u64; 6],
    rest_mask: [u64; 2],
    mix: Mix,
    capacity: usize,
    len: usize,
    tags: Box<[u64]>,
    spilled: Box<[u32]>,
    /// Way `w` of bucket `b` is entry `b * WAYS + w`.
    entries: Box<[Entry]>,
    /// Words 5 and 7 of each entry's key; empty when the mask has neither.
    rest: Box<[[u64; 2]]>,
}

/// A key as the table sees it, and where it belongs.
struct Wanted {
    key: [u64; 6],
    rest: [u64; 2],
    hash: u64,
}

impl Exact {
    /// A table for `capacity` keys (at most 2^28) that matches on the fields of `mask`. `seed`
    /// decides where keys stand; keep it from those who choose the keys.
    #[must_use]
    pub fn new(capacity: usize, mask: &FlowKey, seed: u64) -> Self {
        let capacity = capacity.min(1 << 28);
        Self::with_buckets(capacity, capacity.div_ceil(TAKEN).max(LEAST), mask, seed)
    }

    fn with_buckets(capacity: usize, buckets: usize, mask: &FlowKey, seed: u64) -> Self {
        let (mask, rest_mask) = words(mask);
        let rest = if rest_mask == [0; 2] { 0 } else { buckets * WAYS };
        let empty = Entry { key: [0; 6], action: Action::default() };
        Self {
            mask,
            rest_mask,
            mix: Mix::new(seed),
            capacity,
            len: 0,
            tags: vec![0; buckets].into(),
            spilled: vec![0; buckets].into(),
            entries: vec![empty; buckets * WAYS].into(),
            rest: vec![[0; 2]; rest].into(),
        }
    }

    /// How many keys the table has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many keys the table takes.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The action of `key` under the table's mask.
    #[must_use]
    pub fn get(&self, key: &FlowKey) -> Option<&Action> {
        Some(&self.entries[self.find(&self.wanted(key))?].action)
    }

    /// Adds the entry, or replaces the action of an equal key.
    pub fn put(&mut self, key: &FlowKey, action: Action) -> Result<(), Reason> {
        let wanted = self.wanted(key);
        if (wanted.key, wanted.rest) != words(key) {
            return Err(Reason::OutsideMask);
        }
        if let Some(at) = self.find(&wanted) {
            self.entries[at].action = action;
            return Ok(());
        }
        let capacity = self.capacity;
        if self.len == capacity {
            return Err(Reason::Full { capacity });
        }
        let both = self.buckets(wanted.hash);
        let at = (both.into_iter().find_map(|bucket| self.free(bucket)))
            .or_else(|| both.into_iter().find_map(|bucket| self.make_room(bucket, MOVES)))
            .ok_or(Reason::Crowded { capacity })?;
        self.set(at, &wanted, action);
        self.len += 1;
        Ok(())
    }

    /// Removes the entry with this key; whether there was one.
    pub fn del(&mut self, key: &FlowKey) -> bool {
        let wanted = self.wanted(key);
        let Some(at) = self.find(&wanted) else { return false };
        self.unset(at, wanted.hash);
        self.len -= 1;
        true
    }

    /// Removes every entry.
    pub fn clear(&mut self) {
        self.tags.fill(0);
        self.spilled.fill(0);
        self.len = 0;
    }

    fn wanted(&self, key: &FlowKey) -> Wanted {
        let (key, rest) = self.masked::<false>(key);
        Wanted { hash: self.hash(&key, &rest), key, rest }
    }

    #[inline]
    fn hash(&self, key: &[u64; 6], rest: &[u64; 2]) -> u64 {
        if self.rest.is_empty() { self.mix.slim(key) } else { self.mix.whole(key, rest) }
    }

    /// The hash of an entry's key.
    fn hash_at(&self, at: usize) -> u64 {
        let rest = self.rest.get(at).copied().unwrap_or_default();
        self.hash(&self.entries[at].key, &rest)
    }

    /// A key's first and second bucket, by different halves of its hash.
    fn buckets(&self, hash: u64) -> [usize; 2] {
        [first(hash, self.tags.len()), second(hash, self.tags.len())]
    }

    fn find(&self, wanted: &Wanted) -> Option<usize> {
        self.buckets(wanted.hash).into_iter().find_map(|bucket| {
            let (tags, tag) = (self.tags[bucket], tag(wanted.hash));
            let ways = equals(tags, tag).filter(|way| (tags >> (8 * way)) as u8 == tag);
            ways.map(|way| bucket * WAYS + way).find(|&at| {
                let rest = self.rest.get(at).is_none_or(|rest| *rest == wanted.rest);
                rest && self.entries[at].key == wanted.key
            })
        })
    }

    /// The lowest free entry of a bucket.
    fn free(&self, bucket: usize) -> Option<usize> {
        equals(self.tags[bucket], 0).next().map(|way| bucket * WAYS + way)
    }

    fn set(&mut self, at: usize, wanted: &Wanted, action: Action) {
        self.tags[at / WAYS] |= u64::from(tag(wanted.hash)) << (8 * (at % WAYS));
        self.entries[at] = Entry { key: wanted.key, action };
        if let Some(rest) = self.rest.get_mut(at) {
            *rest = wanted.rest;
        }
        let first = self.buckets(wanted.hash)[0];
        self.spilled[first] += u32::from(first != at / WAYS);
    }

    fn unset(&mut self, at: usize, hash: u64) {
        self.tags[at / WAYS] &= !(0xff << (8 * (at % WAYS)));
        let first = self.buckets(hash)[0];
        self.spilled[first] -= u32::from(first != at / WAYS);
    }

    /// Frees an entry of a full bucket: one of its keys moves to its other bucket, after that
    /// bucket's own have made room if need be.
    fn make_room(&mut self, bucket: usize, moves: u32) -> Option<usize> {
        let all = bucket * WAYS..(bucket + 1) * WAYS;
        let other = |table: &Self, at: usize| {
            let hash = table.hash_at(at);
            let [first, second] = table.buckets(hash);
            (hash, if first == bucket { second } else { first })
        };
        for at in all.clone() {
            let (hash, to) = other(self, at);
            if let Some(spot) = self.free(to) {
                return Some(self.shift(at, spot, hash));
            }
        }
        for at in all {
            let (hash, to) = other(self, at);
            if moves == 1 || to == bucket {
                continue;
            }
            let spot = self.make_room(to, moves - 1);
            // The moves further on may have come by here: then look again.
            if let Some(free) = self.free(bucket) {
                return Some(free);
            }
            if let Some(spot) = spot
                && other(self, at) == (hash, to)
            {
                return Some(self.shift(at, spot, hash));
            }
        }
        None
    }

    /// Moves the key at `from` to the free entry `to`; `from` is then free.
    fn shift(&mut self, from: usize, to: usize, hash: u64) -> usize {
        let Entry { key, action } = self.entries[from];
        let rest = self.rest.get(from).copied().unwrap_or_default();
        self.unset(from, hash);
        self.set(to, &Wanted { key, rest, hash }, action);
        from
    }

    /// The lookup of a batch with what is known of the mask beforehand: `ADDRESSES` when it has
    /// both whole (words 0 to 3), `SLIM` when it has neither word 5 nor 7.
    #[inline]
    fn lookup_by<const ADDRESSES: bool, const SLIM: bool>(
        &self,
        batch: &mut Batch,
        want: Lanes,
    ) -> Lanes {
        let mut hashes = [0; LANES];
        for lane in want {
            let (w, rest) = self.masked::<ADDRESSES>(&batch.keys[lane]);
            hashes[lane] = if SLIM { self.mix.slim(&w) } else { self.mix.whole(&w, &rest) };
        }
        let missed = self.round::<ADDRESSES, SLIM>(batch, want, &hashes, first);
        let spilled = |&lane: &usize| self.spilled[first(hashes[lane], self.tags.len())] != 0;
        let again = missed.filter(spilled).fold(Lanes::NONE, Lanes::with);
        if again.is_empty() {
            return missed;
        }
        let never = self.round::<ADDRESSES, SLIM>(batch, again, &hashes, second);
        missed.without(again.without(never))
    }

    /// Looks for the keys of `want` in the buckets that `home` says; returns the lanes that
    /// missed. The loops that fetch are short, so that a processor has all lanes in flight.
    #[inline]
    fn round<const ADDRESSES: bool, const SLIM: bool>(
        &self,
        batch: &mut Batch,
        want: Lanes,
        hashes: &[u64; LANES],
        home: impl Fn(u64, usize) -> usize,
    ) -> Lanes {
        let mut tags = [0; LANES];
        for lane in want {
            tags[lane] = self.tags[home(hashes[lane], self.tags.len())];
        }
        let mut at = [0; LANES];
        let mut maybe = Lanes::NONE;
        for lane in want {
            if let Some(way) = equals(tags[lane], tag(hashes[lane])).next() {
                at[lane] = (home(hashes[lane], self.tags.len()) * WAYS + way) as u32;
                maybe = maybe.with(lane);
            }
        }
        // One word of an entry fetches its line; the comparison starts with it.
        let mut ports = [0; LANES];
        for lane in maybe {
            ports[lane] = self.entries[at[lane] as usize].key[4];
        }
        let mut missed = want.without(maybe);
        for lane in maybe {
            let (w, rest) = self.masked::<ADDRESSES>(&batch.keys[lane]);
            if let Some(Entry { key, action }) = self.entries.get(at[lane] as usize)
                && w[4] == ports[lane]
                && [0, 1, 2, 3, 5].iter().fold(0, |differ, &i| differ | (w[i] ^ key[i])) == 0
                && (SLIM || rest == self.rest[at[lane] as usize])
            {
                batch.actions[lane] = *action;
            } else if let Some(action) = self.get_again(&batch.keys[lane]) {
                batch.actions[lane] = *action;
            } else {
                missed = missed.with(lane);
            }
        }
        missed
    }

    /// The words of `key` that count.
    #[inline]
    fn masked<const ADDRESSES: bool>(&self, key: &FlowKey) -> ([u64; 6], [u64; 2]) {
        let (key, rest) = words(key);
        let (m, r) = (&self.mask, &self.rest_mask);
        let kept = |i: usize| if ADDRESSES && i < 4 { key[i] } else { key[i] & m[i] };
        (std::array::from_fn(kept), [rest[0] & r[0], rest[1] & r[1]])
    }

    /// The rare lane where a tag is equal and the key is not.
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
        } else if !self.rest.is_empty() {
            self.lookup_by::<false, false>(batch, want)
        } else if self.mask[..4] == [u64::MAX; 4] {
            self.lookup_by::<true, true>(batch, want)
        } else {
            self.lookup_by::<false, true>(batch, want)
        }
    }

    fn edits(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }

    fn occupancy(&self) -> Option<(usize, usize)> {
        Some((self.len, self.capacity))
    }

    fn each(&self, show: &mut dyn FnMut(&FlowKey, &Action)) {
        for (at, Entry { key, action }) in self.entries.iter().enumerate() {
            if self.tags[at / WAYS] >> (8 * (at % WAYS)) & 0xff != 0 {
                show(&unwords(key, &self.rest.get(at).copied().unwrap_or_default()), action);
            }
        }
    }
}

impl Offload for Exact {
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
}

/// The bucket by the high half of the hash, scaled rather than divided.
#[inline]
fn first(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

/// The bucket by the low half of the hash.
#[inline]
fn second(hash: u64, buckets: usize) -> usize {
    (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize
}

/// The tag of a hash, never 0. Scaling uses the high bits of each half, the tag the lowest of all.
#[inline]
fn tag(hash: u64) -> u8 {
    (hash as u8).max(1)
}

/// The ways of a bucket whose tag may be `tag`, lowest first. The first is certain; a later one
/// may be wrong by a carry: its tag has to be looked at, for it may be free, with an old key in it.
#[inline]
fn equals(tags: u64, tag: u8) -> impl Iterator<Item = usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let differ = tags ^ (ONES * u64::from(tag));
    let mut zero = differ.wrapping_sub(ONES) & !differ & ONES << 7;
    std::iter::from_fn(move || {
        let way = zero.trailing_zeros() as usize / 8;
        zero &= zero.wrapping_sub(1);
        (way < WAYS).then_some(way)
    })
}

#[cfg(test)]
mod tests;
