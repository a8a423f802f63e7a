//! Cache: exact flows in front of the tables, and what they come to.
//!
//! ```text
//!   key, the bits that any rule looks at ──hash──> [ tag tag tag tag ] ──> path: flow, flow, .. | miss
//!                                                                          or a port: port mapping
//! ```
//!
//! One mask for all: every bit that a rule of any table looks at. Two frames that agree in those meet
//! the same rules, so a cached key proves the whole rule. One probe, whatever rules there are; many
//! flows share a path.
//!
//! When a rule comes, the paths that it could take frames from are dead from then on; when one goes,
//! its own paths. A dead path is a miss for every flow that has it. When a rule looks at bits that none
//! looked at before, everything is forgotten.
//!
//! Invariants: an entry whose generation is its path's says what the tables say; no allocation but
//! for a path that is new.
//! Thread-safety: one core's.

use std::collections::HashMap;
use std::sync::Arc;

use flowyard_openflow::Field;
use flowyard_openflow::change::Counts;
use flowyard_openflow::oxm::VID_PRESENT;

use crate::classify::{self, words};
use crate::key::{Key, Pattern, WORDS};

/// Entries of a set.
const WAYS: usize = 4;
/// Paths that a new rule is compared with; where there are more, all of them are forgotten.
const COMPARED: usize = 1024;
/// Where a set is full, one of so many misses takes a place.
const REPLACE: u32 = 16;

/// The flows that a frame meets, and where none matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Path {
    /// By number.
    pub(crate) flows: Vec<u32>,
    /// The table that has no answer.
    pub(crate) miss: Option<u8>,
}

#[derive(Debug)]
struct Known {
    generation: u32,
    path: Path,
    /// The port, where the path does nothing but put out.
    port: Option<u32>,
    live: bool,
    fast: Option<Fast>,
}

/// What a frame of the port mapping needs of the only flow of its path: so that it touches no more
/// memory than this.
#[derive(Debug)]
pub(crate) struct Fast {
    pub(crate) table: u8,
    pub(crate) counts: Arc<[Counts]>,
    /// Frames and bytes so far.
    pub(crate) hits: (u64, u64),
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Cache {
    mask: Key,
    words: Vec<(u8, u64)>,
    seeds: [u64; WORDS],
    /// Sets; a power of two, or none.
    sets: usize,
    /// By entry: a part of the hash; 0 is free.
    tags: Vec<[u32; WAYS]>,
    /// By entry: the path's number and generation, then the words of the key.
    entries: Vec<u64>,
    paths: Vec<Known>,
    free: Vec<u32>,
    numbers: HashMap<Path, u32>,
    clock: u32,
    /// Flows, and the hits of their paths that are dead.
    retired: Vec<(u32, (u64, u64))>,
}

/// What the cache says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) path: u32,
    pub(crate) port: Option<u32>,
}

/// Where a key would stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot(u64);

impl Cache {
    /// Room for about `entries` flows; none caches nothing.
    pub(crate) fn new(entries: usize, seed: u64) -> Self {
        let sets = if entries == 0 { 0 } else { entries.div_ceil(WAYS).next_power_of_two() };
        Self {
            mask: Key::ZERO,
            words: Vec::new(),
            seeds: classify::seeds(seed),
            sets,
            tags: vec![[0; WAYS]; sets],
            entries: Vec::new(),
            paths: Vec::new(),
            free: Vec::new(),
            numbers: HashMap::new(),
            clock: 0,
            retired: Vec::new(),
        }
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.sets != 0
    }

    const fn stride(&self) -> usize {
        self.words.len() + 1
    }

    pub(crate) fn spot(&self, key: &Key) -> Spot {
        Spot(classify::hash(&self.words, key, &self.seeds))
    }

    const fn place(&self, spot: Spot) -> (usize, u32) {
        ((spot.0 as usize) & (self.sets - 1), (spot.0 >> 32) as u32 | 1)
    }

    fn is_key(&self, at: usize, key: &Key) -> bool {
        let words = &self.entries[at + 1..at + self.stride()];
        let differ = |(word, (at, mask)): (&u64, &(u8, u64))| {
            word ^ key.0[usize::from(*at) & (WORDS - 1)] & mask
        };
        words.iter().zip(&self.words).map(differ).fold(0, |sum, word| sum | word) == 0
    }

    fn live(&self, entry: u64) -> Option<(u32, &Known)> {
        let known = self.paths.get(entry as u32 as usize)?;
        (known.live && known.generation == (entry >> 32) as u32).then_some((entry as u32, known))
    }

    /// What becomes of frames with this key, if it is known.
    #[inline]
    pub(crate) fn get(&self, key: &Key, spot: Spot) -> Option<Hit> {
        if self.entries.is_empty() {
            return None;
        }
        let (set, tag) = self.place(spot);
        for way in 0..WAYS {
            let at = (set * WAYS + way) * self.stride();
            if self.tags[set][way] == tag && self.is_key(at, key) {
                let (path, known) = self.live(self.entries[at])?;
                return Some(Hit { path, port: known.port });
            }
        }
        None
    }

    pub(crate) fn path(&self, path: u32) -> &Path {
        &self.paths[path as usize].path
    }

    /// The flow of a path that has but one, and a port.
    pub(crate) fn fast(&mut self, path: u32) -> Option<&mut Fast> {
        self.paths[path as usize].fast.as_mut()
    }

    /// Hits of the path that has only this flow.
    pub(crate) fn hits(&self, flow: u32) -> (u64, u64) {
        let only = Path { flows: vec![flow], miss: None };
        let known = self.numbers.get(&only).map(|number| &self.paths[*number as usize]);
        known.and_then(|known| known.fast.as_ref()).map_or((0, 0), |fast| fast.hits)
    }

    /// Takes the hits of paths that are dead now, by flow.
    pub(crate) fn retired(&mut self) -> std::vec::Drain<'_, (u32, (u64, u64))> {
        self.retired.drain(..)
    }

    /// How many paths are live.
    pub(crate) fn paths(&self) -> usize {
        self.numbers.len()
    }

    /// Keeps that frames with this key go this path.
    pub(crate) fn put(
        &mut self,
        key: &Key,
        spot: Spot,
        path: &Path,
        port: Option<u32>,
        fast: Option<Fast>,
    ) {
        if self.entries.is_empty() {
            self.entries = vec![0; self.sets * WAYS * self.stride()];
        }
        self.clock = self.clock.wrapping_add(1);
        let (set, tag) = self.place(spot);
        let entry = |way: usize| (set * WAYS + way) * self.stride();
        let same = |way: &usize| self.tags[set][*way] == tag && self.is_key(entry(*way), key);
        let dead = |way: &usize| {
            self.tags[set][*way] == 0 || self.live(self.entries[entry(*way)]).is_none()
        };
        let turn = self.clock.is_multiple_of(REPLACE);
        let turn = turn.then_some((self.clock / REPLACE) as usize % WAYS);
        let way = (0..WAYS).find(same).or_else(|| (0..WAYS).find(dead)).or(turn);
        let Some(way) = way else { return };
        let at = entry(way);
        let number = self.number(path, port, fast);
        self.tags[set][way] = tag;
        self.entries[at] =
            u64::from(self.paths[number as usize].generation) << 32 | u64::from(number);
        for (to, (word, mask)) in self.entries[at + 1..].iter_mut().zip(&self.words) {
            *to = key.0[usize::from(*word)] & mask;
        }
    }

    fn number(&mut self, path: &Path, port: Option<u32>, fast: Option<Fast>) -> u32 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.free.pop().unwrap_or(self.paths.len() as u32);
        let (path, live) = (path.clone(), true);
        self.numbers.insert(path.clone(), number);
        match self.paths.get_mut(number as usize) {
            Some(old) => {
                let generation = old.generation.wrapping_add(1);
                *old = Known { generation, path, port, live, fast };
            }
            None => self.paths.push(Known { generation: 1, path, port, live, fast }),
        }
        number
    }

    fn kill(&mut self, number: u32) {
        let known = &mut self.paths[number as usize];
        if std::mem::replace(&mut known.live, false) {
            self.numbers.remove(&known.path);
            self.free.push(number);
            if let (Some(fast), Some(flow)) = (known.fast.take(), known.path.flows.first()) {
                self.retired.push((*flow, fast.hits));
            }
        }
    }

    /// Forgets every flow.
    pub(crate) fn clear(&mut self) {
        let all: Vec<u32> = self.numbers.values().copied().collect();
        all.into_iter().for_each(|number| self.kill(number));
    }

    /// A rule comes to a table: `takes(flow)` says whether it could take frames from that flow.
    pub(crate) fn rule(&mut self, table: u8, pattern: &Pattern, takes: impl Fn(u32) -> bool) {
        let mut mask = self.mask;
        mask.or(&pattern.mask);
        if mask.bits(Field::VlanVid) != 0 {
            // What sets a VLAN id asks whether there is a tag.
            mask.write(Field::VlanVid, VID_PRESENT, VID_PRESENT);
        }
        if mask != self.mask {
            self.clear();
            (self.mask, self.words) = (mask, words(&mask));
            self.entries = Vec::new();
            self.tags.fill([0; WAYS]);
            return;
        }
        if self.numbers.len() > COMPARED {
            return self.clear();
        }
        let hit = |path: &Path| path.miss == Some(table) || path.flows.iter().any(|f| takes(*f));
        let dead: Vec<u32> =
            self.numbers.iter().filter(|(path, _)| hit(path)).map(|(_, number)| *number).collect();
        dead.into_iter().for_each(|number| self.kill(number));
    }

    /// A flow is gone.
    pub(crate) fn gone(&mut self, flow: u32) {
        if self.numbers.len() > COMPARED {
            return self.clear();
        }
        let of = |path: &&Path| path.flows.contains(&flow);
        let dead: Vec<u32> =
            self.numbers.iter().filter(|(path, _)| of(path)).map(|(_, n)| *n).collect();
        dead.into_iter().for_each(|number| self.kill(number));
    }
}
