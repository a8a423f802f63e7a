//! Mapping: answers plain frames that are only sent to a port, where a core receives them.
//!
//! ```text
//!  rx ─ parse ─> exact entries, rules ─> mapping ──hit──> the tx queue of the port
//!                                           └──miss──> RSS ─> a queue ─> the switch: cache, tables
//! ```
//!
//! The port-mapping table of the KTH group mapped (input port, queue) to (output port, queue), behind filters of
//! the adapter that had parsed and matched the frame. Here the key that the yard has already computed is looked up
//! in a table. The entry says the port, the path in the [`crate::cache::Cache`] whose flows are counted, and the lower
//! half of the path's generation. An entry is valid only while its path has this generation, so whatever ends a path
//! ends its entries in the same call.
//!
//! The frames of an entry are noted in the entry itself, and counted in the flows later: see [`Mapping::note`]. The data
//! plane first counts all that is noted whenever it changes entries or ends paths ([`Mapping::take_noted`]).
//!
//! A flow gets an entry at its second frame. If it cannot have one then, the switch tries again at its 4th, 8th, ..
//! frame; if its entry became invalid, it tries at once. While lookups do not pay (few frames hit, and few flows
//! are learnt), one of [`ONE_IN`] batches is looked up.
//!
//! Invariants: only [`Mapping::set_mask`] allocates; only keys of plain frames are looked up.
//! Thread-safety: owned by one core.

use flowyard_frame::{Action, Batch, FlowKey, LANES, Lanes, To};

use crate::pause::Pause;

mod plain;

pub(crate) use plain::Noted;
use plain::Plain;

/// During a pause, one of N batches is looked up.
const ONE_IN: u32 = 64;
/// The number of misses that cost as much as a hit saves.
const PAYS: u32 = 8;
/// The bits of the frame count in [`Mapping::seen`]: at most this number of frames of a flow is between two tries.
const COUNT: u32 = 511;
/// When all entries are taken: tries per entry until all entries are removed. Active flows get new ones.
const AGE: u32 = 8;
/// When all entries are taken: the number of windows with few hits until all entries are removed. It starts at
/// `PATIENCE` and doubles each time, up to `LONGEST`.
const PATIENCE: u32 = 2;
const LONGEST: u32 = 1 << 16;

/// The content of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    /// The port's number in the yard.
    pub(crate) port: u16,
    /// The path, and the lower half of its generation.
    pub(crate) path: u32,
    pub(crate) half: u16,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Mapping {
    capacity: usize,
    mask: FlowKey,
    table: Option<Plain>,
    seed: u64,
    /// Indexed by receive hash: the hash of a flow, and in the bits of [`COUNT`] the number of its frames.
    seen: Box<[u32]>,
    coin: u32,
    pause: Pause<ONE_IN, 1024, 128>,
    /// Flows learnt in this window.
    learnt: u32,
    /// Tries since all entries are taken.
    crowd: u32,
    /// Windows with few hits since all entries are taken, and how many of them are accepted.
    useless: u32,
    patience: u32,
    /// Whether all entries are to be removed, because none was of use or none is free: see [`Mapping::is_worn`].
    is_worn: bool,
}

impl Mapping {
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        Self {
            capacity,
            mask: FlowKey::ZERO,
            table: None,
            seed,
            seen: Box::default(),
            coin: 1,
            pause: Pause::default(),
            learnt: 0,
            crowd: 0,
            useless: 0,
            patience: PATIENCE,
            is_worn: false,
        }
    }

    /// Sets the mask that distinguishes keys. A changed mask discards all entries.
    pub(crate) fn set_mask(&mut self, mask: &FlowKey) {
        if self.capacity != 0 && (*mask != self.mask || self.table.is_none()) {
            self.table = Some(Plain::new(self.capacity, mask, self.seed));
            self.mask = *mask;
            self.seen = vec![0; (2 * self.capacity).next_power_of_two()].into();
            self.crowd = 0;
        }
    }

    /// The mask that distinguishes keys.
    pub(crate) const fn mask(&self) -> &FlowKey {
        &self.mask
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        if let Some(table) = &mut self.table {
            table.clear();
        }
        self.seen.fill(0);
        self.crowd = 0;
        self.is_worn = false;
    }

    /// Whether the owner is to count what is noted, and then to remove all entries by [`Mapping::clear`].
    #[inline]
    pub(crate) const fn is_worn(&self) -> bool {
        self.is_worn
    }

    /// Resumes lookups: after a change of the tables they may pay.
    pub(crate) const fn resume(&mut self) {
        self.pause.set(false);
    }

    /// Number of entries, including invalid ones.
    pub(crate) fn len(&self) -> usize {
        self.table.as_ref().map_or(0, Plain::len)
    }

    /// The greatest number of entries; 0 if there is no mapping.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Shows every entry, valid or not.
    pub(crate) fn each(&self, show: &mut dyn FnMut(&FlowKey, Mapped)) {
        if let Some(table) = &self.table {
            table.each(show);
        }
    }

    /// Whether this batch, with this number of plain frames, uses the mapping.
    #[inline]
    pub(crate) fn looks(&mut self, frames: u32) -> bool {
        if frames == 0 || self.table.is_none() {
            return false;
        }
        self.pause.looks(frames)
    }

    /// Adds the number of frames whose entry was valid.
    #[inline]
    pub(crate) fn hits(&mut self, frames: u32) {
        if let Some((hits, looked)) = self.pause.found(frames) {
            self.judge(hits, looked);
        }
    }

    /// Judges a window.
    fn judge(&mut self, hits: u32, looked: u32) {
        let few = hits * PAYS < looked;
        self.pause.set(few && self.learnt * PAYS < looked);
        self.learnt = 0;
        if !few {
            (self.useless, self.patience) = (0, PATIENCE);
        } else if self.len() == self.capacity {
            // Either the flows of the entries have ended, or there are too many flows. In the second case
            // removing all entries does not help, so it is done less and less often.
            self.useless += 1;
            if self.useless > self.patience {
                self.is_worn = true;
                (self.useless, self.patience) = (0, (self.patience * 2).min(LONGEST));
            }
        }
    }

    /// Looks for `lanes`. Returns those with an entry, and writes the entry's number to `places`.
    #[inline]
    pub(crate) fn lookup(&self, batch: &Batch, lanes: Lanes, places: &mut [u32; LANES]) -> Lanes {
        self.table.as_ref().map_or(Lanes::NONE, |table| table.lookup(batch, lanes, places))
    }

    /// Notes the frames of those of `lanes` whose entry is valid: `is_alive(path, half)`. The action of such
    /// a lane becomes the port of its entry. `places` are the entries, as [`Mapping::lookup`] wrote them. Returns the lanes, and
    /// whether an entry has as many noted frames as it can hold, so that all must be counted now.
    #[inline]
    pub(crate) fn note(
        &mut self,
        batch: &mut Batch,
        (lanes, places): (Lanes, &[u32; LANES]),
        is_alive: impl Fn(u32, u16) -> bool,
        now: u64,
    ) -> (Lanes, bool) {
        let Some(table) = &mut self.table else { return (Lanes::NONE, false) };
        let (mut alive, mut is_full) = (Lanes::NONE, false);
        lanes.each(|lane| {
            let Mapped { port, path, half } = table.mapped(places[lane]);
            if is_alive(path, half) {
                batch.actions[lane] = Action { to: To::Port(port), counter: 0, mark: 0 };
                is_full |= table.note(places[lane], batch.frames[lane].len() as u32, now);
                alive = alive.with(lane);
            }
        });
        (alive, is_full)
    }

    /// What the entry with this number, of [`Mapping::lookup`], says.
    pub(crate) fn mapped(&self, place: u32) -> Option<Mapped> {
        self.table.as_ref().map(|table| table.mapped(place))
    }

    /// Whether frames are noted.
    #[inline]
    pub(crate) fn has_noted(&self) -> bool {
        self.table.as_ref().is_some_and(Plain::has_noted)
    }

    /// The noted frames, which stay noted.
    pub(crate) fn noted(&self) -> impl Iterator<Item = Noted> + '_ {
        self.table.iter().flat_map(Plain::noted)
    }

    /// Takes noted frames of as many entries as `into` has room for. Returns of how many; 0 if there are none.
    pub(crate) fn take_noted(&mut self, into: &mut [Noted]) -> usize {
        self.table.as_mut().map_or(0, |table| table.take_noted(into))
    }

    /// Counts a frame of a flow without an entry. Returns whether to try to add an entry for it now.
    #[inline]
    pub(crate) fn tries(&mut self, hash: u32) -> bool {
        let at = (hash.wrapping_mul(0x9e37_79b1) >> 7) as usize & (self.seen.len() - 1);
        let seen = &mut self.seen[at];
        let count = if *seen & !COUNT == hash & !COUNT { *seen & COUNT } else { 0 };
        if count == 0 {
            // If several flows share a place, one of them usually keeps it until its entry is tried.
            // A flow that finds a free place will be learnt soon, so it counts as learnt.
            self.learnt += u32::from(*seen == 0);
            self.coin = self.coin.wrapping_mul(0x915f_77f5).wrapping_add(1);
            if *seen & COUNT == 0 || self.coin >> 30 == 0 {
                *seen = hash & !COUNT | 1;
            }
            return false;
        }
        *seen = hash & !COUNT | if count == COUNT { COUNT / 2 + 1 } else { count + 1 };
        if !(count + 1).is_power_of_two() {
            return false;
        }
        if self.len() < self.capacity {
            return true;
        }
        self.crowd += 1;
        self.is_worn |= self.crowd as usize > self.capacity.saturating_mul(AGE as usize);
        false
    }

    /// Removes an entry.
    pub(crate) fn del(&mut self, key: &FlowKey) {
        if let Some(table) = &mut self.table {
            table.del(key);
        }
    }

    /// Adds an entry.
    pub(crate) fn put(&mut self, key: &FlowKey, mapped: Mapped) {
        if let Some(table) = &mut self.table
            && table.put(key, mapped).is_ok()
        {
            self.learnt += 1;
        }
    }
}

#[cfg(test)]
mod tests;
