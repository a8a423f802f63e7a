//! Cache: stores the results of the tables by exact flow.
//!
//! ```text
//!   key, the bits that any rule compares ──hash──> [ tag tag tag tag ]      a cache line has four sets
//!                                                         └──> path, key    a cache line
//!                                                                └──> Fast: generation, port, counters
//! ```
//!
//! All keys have one mask: every bit that a rule of any table compares. Two frames that agree in these bits match
//! the same rules. So a lookup is one probe, however many rules there are. Many entries share a path; a path of one
//! flow is found by the flow's number.
//!
//! Keys of a batch are looked up in stages, so that the processor waits for the memory of all at once.
//!
//! A new rule ends the paths whose frames it could match, and a rule that is removed ends its own paths. An entry
//! with a path that has ended is a miss. If a rule compares bits that no rule compared before, the cache is cleared.
//!
//! While lookups do not pay, they are paused: see [`Watch`].
//!
//! Invariants: an entry whose generation is its path's has the result that the tables give; a frame allocates
//! memory only for a new path of more than eight flows, and while there are more paths than flows; there are at
//! most [`PATHS`] paths for each entry besides one for each flow.
//! Thread-safety: owned by one core.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use flowyard_flow::table::tuples::{Words, seeds};
use flowyard_openflow::Field;
use flowyard_openflow::change::Counts;
use flowyard_openflow::oxm::VID_PRESENT;
use smallvec::SmallVec;

use crate::key::{Key, Pattern, WORDS};

mod watch;

pub(crate) use watch::Watch;

/// Entries of a set.
const WAYS: usize = 4;
/// The greatest number of paths that a new rule is compared with; if there are more, all of them end.
const COMPARED: usize = 1024;
/// The most paths for each entry, besides those of a single flow. Where flows of several tables combine, frames
/// could otherwise make any number of paths whose entries are long replaced.
const PATHS: usize = 2;
/// When a set is full, one of N misses replaces an entry.
const REPLACE: u32 = 16;
/// Words of a line.
const LINE: usize = 8;
const NONE: u32 = u32::MAX;

/// The flows that a frame matches, and the table in which none matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Path {
    /// By number.
    pub(crate) flows: SmallVec<[u32; 8]>,
    /// The table in which no flow matches, if there is one.
    pub(crate) miss: Option<u8>,
}

impl Path {
    /// The flow of a path with only one flow.
    fn only(&self) -> Option<u32> {
        match self.flows[..] {
            [flow] if self.miss.is_none() => Some(flow),
            _ => None,
        }
    }
}

/// The result of a path that only sends frames to a port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) port: Option<u32>,
    /// If the path has only one flow: its table and its counters.
    pub(crate) only: Option<(u8, Arc<[Counts]>)>,
}

/// The data of a path that a frame needs, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Fast {
    port: u32,
    pub(crate) only: Option<(u8, Arc<[Counts]>)>,
    /// Frames and bytes so far.
    pub(crate) hits: (u64, u64),
}

#[derive(Debug)]
struct Known {
    path: Path,
    /// Its index in `live`; `NONE` if the path has ended.
    at: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; LINE]);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Cache {
    mask: Key,
    words: Words<WORDS>,
    seeds: [u64; WORDS],
    /// Sets; a power of two, or none.
    sets: usize,
    /// A part of the hash of each entry; 0 if the entry is free.
    tags: Vec<[u32; WAYS]>,
    /// Number of entries that are not free.
    taken: usize,
    /// Of each entry: the number and the generation of its path, then the words of the key.
    entries: Vec<Line>,
    /// Cache lines of an entry.
    lines: usize,
    /// Of each path. They are apart from the rest, because every hit compares one, and those of many paths fit into a
    /// core's first cache.
    generations: Vec<u32>,
    fast: Vec<Fast>,
    paths: Vec<Known>,
    live: Vec<u32>,
    free: Vec<u32>,
    /// The path that has only this flow, by flow.
    only: Vec<u32>,
    /// The numbers of all other paths.
    numbers: HashMap<Path, u32>,
    clock: u32,
    /// The next path that ends if there are too many.
    hand: usize,
    /// Flows, and the hits of their paths that have ended.
    retired: Vec<(u32, (u64, u64))>,
    /// The lower half of a path's generation wrapped around; entries that store it must be cleared.
    pub(crate) wrapped: bool,
    pub(crate) watch: Watch,
}

/// Where a key would be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot(u64);

impl Cache {
    /// A cache for about `entries` flows; with 0 it is off.
    pub(crate) fn new(entries: usize, seed: u64) -> Self {
        let sets = if entries == 0 { 0 } else { entries.div_ceil(WAYS).next_power_of_two() };
        Self {
            mask: Key::ZERO,
            words: Words::new(&[0; WORDS]),
            seeds: seeds(seed),
            sets,
            tags: vec![[0; WAYS]; sets],
            taken: 0,
            entries: Vec::new(),
            lines: 1,
            generations: Vec::new(),
            fast: Vec::new(),
            paths: Vec::new(),
            live: Vec::new(),
            free: Vec::new(),
            only: Vec::new(),
            numbers: HashMap::new(),
            clock: 0,
            hand: 0,
            retired: Vec::new(),
            wrapped: false,
            watch: Watch::default(),
        }
    }

    /// All bits that rules compare.
    pub(crate) const fn mask(&self) -> &Key {
        &self.mask
    }

    /// Number of entries, including those whose path has ended.
    pub(crate) const fn taken(&self) -> usize {
        self.taken
    }

    /// The number and the generation of a path.
    pub(crate) fn known(&mut self, path: &Path, ends: impl FnOnce() -> Ends) -> (u32, u32) {
        let number = self.number(path, ends);
        (number, self.generations[number as usize])
    }

    /// Whether the path is still that with this lower half of the generation.
    #[inline]
    pub(crate) fn is_alive(&self, path: u32, half: u16) -> bool {
        self.generations.get(path as usize).is_some_and(|generation| *generation as u16 == half)
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.sets != 0
    }

    const fn place(&self, spot: Spot) -> (usize, u32) {
        ((spot.0 as usize) & (self.sets - 1), (spot.0 >> 32) as u32 | 1)
    }

    #[inline]
    fn is_key(&self, at: usize, key: &Key) -> bool {
        let mut words = self.words.of(&key.0);
        let mut differ = |line: &[u64]| {
            line.iter().zip(words.by_ref()).fold(0, |sum, (kept, word)| sum | kept ^ word)
        };
        let lines = &self.entries[at..at + self.lines];
        differ(&lines[0].0[1..]) == 0 && lines[1..].iter().all(|line| differ(&line.0) == 0)
    }

    fn live(&self, entry: u64) -> bool {
        let known = self.generations.get(entry as u32 as usize);
        known.is_some_and(|generation| *generation == (entry >> 32) as u32)
    }

    /// The entry of a key, also if its path has ended.
    #[inline]
    fn entry(&self, key: &Key, spot: Spot) -> Option<usize> {
        let (set, tag) = self.place(spot);
        let at = |way: usize| (set * WAYS + way) * self.lines;
        (0..WAYS).find(|way| self.tags[set][*way] == tag && self.is_key(at(*way), key)).map(at)
    }

    /// Whether there is a valid entry for a key.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        let spot = Spot(self.words.hash(&key.0, &self.seeds));
        let at = if self.entries.is_empty() { None } else { self.entry(key, spot) };
        at.is_some_and(|at| self.live(self.entries[at].0[0]))
    }

    /// Looks up each key: where it would be stored, unless lookups are paused, and its path, if it hits. The
    /// counters of `core` are prefetched.
    pub(crate) fn find(
        &mut self,
        keys: &[Key],
        spots: &mut [Option<Spot>],
        found: &mut [Option<u32>],
        core: usize,
    ) {
        found.fill(None);
        self.shed();
        if !self.is_on() || self.watch.skips(keys.len() as u32) {
            return spots.fill(None); // during a pause, most batches end here
        }
        for (key, spot) in keys.iter().zip(spots.iter_mut()) {
            *spot = self.watch.looks().then(|| Spot(self.words.hash(&key.0, &self.seeds)));
        }
        if self.entries.is_empty() {
            return self.watch.hits(0);
        }
        for (spot, found) in spots.iter().zip(found.iter_mut()) {
            let Some(spot) = *spot else { continue };
            let (set, tag) = self.place(spot);
            let tags = self.tags[set].iter();
            let bits = tags.rev().fold(0_u32, |bits, other| bits << 1 | u32::from(*other == tag));
            *found = (bits != 0).then(|| (set * WAYS) as u32 + bits.trailing_zeros());
        }
        for ((key, spot), found) in keys.iter().zip(spots.iter()).zip(found.iter_mut()) {
            let (Some(at), Some(spot)) = (*found, *spot) else { continue };
            let mut at = at as usize * self.lines;
            if !self.is_key(at, key) {
                // Another key with the same tag, which is rare.
                let Some(other) = self.entry(key, spot) else {
                    *found = None;
                    continue;
                };
                at = other;
            }
            let entry = self.entries[at].0[0];
            *found = self.live(entry).then_some(entry as u32);
        }
        let mut hits = 0;
        for path in found.iter().flatten() {
            hits += 1;
            self.fetch(*path, core);
        }
        self.watch.hits(hits);
    }

    /// Fetches the counters of a path that a core is about to write, if the path has only one flow.
    #[inline]
    pub(crate) fn fetch(&self, path: u32, core: usize) {
        if let Some((_, counts)) = &self.fast[path as usize].only {
            black_box(counts.get(core).map(|counts| counts.read().0));
        }
    }

    pub(crate) fn path(&self, path: u32) -> &Path {
        &self.paths[path as usize].path
    }

    /// The port of a path that only sends frames to a port.
    #[inline]
    pub(crate) fn port(&self, path: u32) -> Option<u32> {
        Some(self.fast[path as usize].port).filter(|port| *port != NONE)
    }

    #[inline]
    pub(crate) fn fast(&mut self, path: u32) -> &mut Fast {
        &mut self.fast[path as usize]
    }

    /// Hits of the path that has only this flow.
    pub(crate) fn hits(&self, flow: u32) -> (u64, u64) {
        let number = self.only.get(flow as usize).filter(|number| **number != NONE);
        number.map_or((0, 0), |number| self.fast[*number as usize].hits)
    }

    /// Takes the hits of paths that have ended, by flow.
    pub(crate) fn retired(&mut self) -> std::vec::Drain<'_, (u32, (u64, u64))> {
        self.retired.drain(..)
    }

    /// Number of paths that have not ended.
    pub(crate) const fn paths(&self) -> usize {
        self.live.len()
    }

    /// Allocates as many paths as there are flows, because most paths have only one.
    pub(crate) fn reserve(&mut self, flows: usize) {
        if !self.is_on() {
            return;
        }
        if self.entries.is_empty() {
            self.entries = vec![Line([0; LINE]); self.sets * WAYS * self.lines];
        }
        if self.only.len() >= flows {
            return;
        }
        let capacity = flows.next_power_of_two().max(64);
        self.only.resize(capacity, NONE);
        self.generations.reserve(capacity - self.generations.len().min(capacity));
        self.fast.reserve(capacity - self.fast.len().min(capacity));
        self.paths.reserve(capacity - self.paths.len().min(capacity));
        self.live.reserve(capacity - self.live.len().min(capacity));
        self.numbers.reserve(capacity - self.numbers.len().min(capacity));
    }

    /// Stores the path of frames with this key. Returns whether it took a free entry, or one whose path had
    /// ended.
    pub(crate) fn put(
        &mut self,
        key: &Key,
        spot: Spot,
        path: &Path,
        ends: impl FnOnce() -> Ends,
    ) -> bool {
        if self.entries.is_empty() {
            self.entries = vec![Line([0; LINE]); self.sets * WAYS * self.lines];
        }
        self.clock = self.clock.wrapping_add(1);
        let (set, tag) = self.place(spot);
        let entry = |way: usize| (set * WAYS + way) * self.lines;
        let same = |way: &usize| self.tags[set][*way] == tag && self.is_key(entry(*way), key);
        let dead =
            |way: &usize| self.tags[set][*way] == 0 || !self.live(self.entries[entry(*way)].0[0]);
        let turn = self.clock.is_multiple_of(REPLACE);
        let turn = turn.then_some((self.clock / REPLACE) as usize % WAYS);
        let free = (0..WAYS).find(same).or_else(|| (0..WAYS).find(dead));
        let Some(way) = free.or(turn) else { return false };
        let at = entry(way);
        let number = self.number(path, ends);
        self.taken += usize::from(self.tags[set][way] == 0);
        self.tags[set][way] = tag;
        let head = u64::from(self.generations[number as usize]) << 32 | u64::from(number);
        let lines = self.entries[at..at + self.lines].iter_mut();
        let places = lines.flat_map(|line| line.0.iter_mut());
        let words = std::iter::once(head).chain(self.words.of(&key.0));
        places.zip(words).for_each(|(place, word)| *place = word);
        free.is_some()
    }

    fn number(&mut self, path: &Path, ends: impl FnOnce() -> Ends) -> u32 {
        let there = match path.only() {
            Some(flow) => self.only.get(flow as usize).copied().filter(|number| *number != NONE),
            None => self.numbers.get(path).copied(),
        };
        if let Some(number) = there {
            return number;
        }
        let number = self.free.pop().unwrap_or(self.paths.len() as u32);
        match path.only().map(|flow| flow as usize) {
            Some(flow) => {
                if self.only.len() <= flow {
                    self.only.resize(flow + 1, NONE);
                }
                self.only[flow] = number;
            }
            None => _ = self.numbers.insert(path.clone(), number),
        }
        let Ends { port, only } = ends();
        let port = port.unwrap_or(NONE);
        let at = self.live.len() as u32;
        self.live.push(number);
        match self.paths.get_mut(number as usize) {
            Some(known) => {
                known.at = at;
                known.path.clone_from(path);
                let fast = &mut self.fast[number as usize];
                (fast.port, fast.only, fast.hits) = (port, only, (0, 0));
            }
            None => {
                self.paths.push(Known { path: path.clone(), at });
                self.generations.push(1);
                self.fast.push(Fast { port, only, hits: (0, 0) });
            }
        }
        number
    }

    fn kill(&mut self, number: u32) {
        let at = std::mem::replace(&mut self.paths[number as usize].at, NONE);
        self.live.swap_remove(at as usize);
        if let Some(moved) = self.live.get(at as usize) {
            self.paths[*moved as usize].at = at;
        }
        self.free.push(number);
        let known = &self.paths[number as usize];
        let fast = &mut self.fast[number as usize];
        let generation = &mut self.generations[number as usize];
        *generation = generation.wrapping_add(1);
        self.wrapped |= *generation as u16 == 0;
        fast.only = None;
        match known.path.only() {
            Some(flow) => {
                self.only[flow as usize] = NONE;
                self.retired.push((flow, fast.hits));
            }
            None => _ = self.numbers.remove(&known.path),
        }
    }

    fn kill_if(&mut self, dead: impl Fn(&Path) -> bool) {
        for at in (0..self.live.len()).rev() {
            let number = self.live[at];
            if dead(&self.paths[number as usize].path) {
                self.kill(number); // the last path takes its place, and was checked before
            }
        }
    }

    /// Whether the next [`Cache::find`] ends paths, because there are too many.
    #[inline]
    pub(crate) const fn sheds(&self) -> bool {
        self.live.len() > self.only.len() + PATHS * self.sets * WAYS
    }

    /// Ends paths in turn while there are too many: no more than frames have made since the last call.
    fn shed(&mut self) {
        while self.sheds() {
            self.hand = (self.hand + 1) % self.live.len();
            self.kill(self.live[self.hand]);
        }
    }

    /// Ends every path.
    pub(crate) fn clear(&mut self) {
        self.kill_if(|_| true);
    }

    /// Ends the paths that a new rule of a table could change. `takes(flow)` says whether the rule could match
    /// frames that matched that flow before.
    pub(crate) fn rule(&mut self, table: u8, pattern: &Pattern, takes: impl Fn(u32) -> bool) {
        if !self.is_on() {
            return; // nothing uses the mask
        }
        let mut mask = self.mask;
        mask.or(&pattern.mask);
        if mask.bits(Field::VlanVid) != 0 {
            // Setting a VLAN id depends on whether there is a tag.
            mask.write(Field::VlanVid, VID_PRESENT, VID_PRESENT);
        }
        if mask != self.mask {
            self.clear();
            (self.mask, self.words) = (mask, Words::new(&mask.0));
            self.lines = (self.words.len() + 1).div_ceil(LINE);
            self.entries = Vec::new();
            self.tags.fill([0; WAYS]);
            self.taken = 0;
            return;
        }
        if self.live.len() > COMPARED {
            return self.clear();
        }
        self.kill_if(|path| path.miss == Some(table) || path.flows.iter().any(|f| takes(*f)));
    }

    /// Ends the paths of a flow that was removed.
    pub(crate) fn gone(&mut self, flow: u32) {
        if self.live.len() > COMPARED {
            return self.clear();
        }
        self.kill_if(|path| path.flows.contains(&flow));
    }
}

#[cfg(test)]
mod tests;
