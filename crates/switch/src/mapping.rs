//! Mapping: answers plain frames that are only sent to a port, where a core receives them.
//!
//! ```text
//!  rx ─ parse ─> exact entries, rules ─> mapping ──hit──> the tx queue of the port
//!                                           └──miss──> RSS ─> a queue ─> the switch: cache, tables
//! ```
//!
//! The port-mapping table of the KTH group mapped (input port, queue) to (output port, queue), behind filters of
//! the adapter that had parsed and matched the frame. Here the key that the yard has already computed is looked up
//! in a [`flowyard_flow::table::Exact`]. The entry's action is a port. Its mark is the path in the
//! [`crate::cache::Cache`] whose flows are counted, and its counter is the lower half of the path's generation. An
//! entry is valid only while its path has this generation, so whatever ends a path ends its entries in the same
//! call.
//!
//! A flow gets an entry at its second frame. If it cannot have one then, the switch tries again at its 4th, 8th, ..
//! frame; if its entry became invalid, it tries at once. While lookups do not pay (few frames hit, and few flows
//! are learnt), one of [`ONE_IN`] batches is looked up.
//!
//! Invariants: only [`Mapping::set_mask`] allocates; only keys of plain frames are looked up.
//! Thread-safety: owned by one core.

use flowyard_flow::table::{Exact, Table};
use flowyard_frame::{Action, Batch, FlowKey, Lanes, To};

use crate::pause::Pause;

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
    /// The path and its generation.
    pub(crate) path: u32,
    pub(crate) generation: u32,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Mapping {
    capacity: usize,
    mask: FlowKey,
    table: Option<Exact>,
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
        }
    }

    /// Sets the mask that distinguishes keys. A changed mask discards all entries.
    pub(crate) fn set_mask(&mut self, mask: &FlowKey) {
        if self.capacity != 0 && (*mask != self.mask || self.table.is_none()) {
            self.table = Some(Exact::new(self.capacity, mask, self.seed));
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
    }

    /// Resumes lookups: after a change of the tables they may pay.
    pub(crate) const fn resume(&mut self) {
        self.pause.set(false);
    }

    /// Number of entries, including invalid ones.
    pub(crate) fn len(&self) -> usize {
        self.table.as_ref().map_or(0, Exact::len)
    }

    /// The greatest number of entries; 0 if there is no mapping.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Shows every entry, valid or not.
    pub(crate) fn each(&self, show: &mut dyn FnMut(&FlowKey, &Action)) {
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
                self.clear();
                (self.useless, self.patience) = (0, (self.patience * 2).min(LONGEST));
            }
        }
    }

    /// Writes the actions of the entries of `lanes`. Returns the lanes without an entry.
    #[inline]
    pub(crate) fn lookup(&mut self, batch: &mut Batch, lanes: Lanes) -> Lanes {
        self.table.as_mut().map_or(lanes, |table| table.lookup(batch, lanes))
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
        if self.crowd as usize > self.capacity.saturating_mul(AGE as usize) {
            self.clear();
        }
        false
    }

    /// Removes an entry.
    pub(crate) fn del(&mut self, key: &FlowKey) {
        if let Some(table) = &mut self.table {
            table.del(key);
        }
    }

    /// Adds an entry.
    pub(crate) fn put(&mut self, key: &FlowKey, Mapped { port, path, generation }: Mapped) {
        let action = Action { to: To::Port(port), counter: generation as u16, mark: path };
        let key = key.masked(&self.mask);
        if let Some(table) = &mut self.table
            && table.put(&key, action).is_ok()
        {
            self.learnt += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::proto;

    use super::*;

    fn key(port: u16) -> FlowKey {
        let [one, two] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(std::net::IpAddr::from);
        FlowKey::five_tuple(proto::UDP, one, port, two, 53)
    }

    /// A mapping whose mask has all bits of the source port.
    fn mapping(capacity: usize) -> Mapping {
        let mut mapping = Mapping::new(capacity, 7);
        mapping.set_mask(&key(0xffff));
        mapping
    }

    fn entry(path: u32) -> Mapped {
        Mapped { port: 3, path, generation: 9 }
    }

    /// A flow of two frames never costs an insertion, and an entry that was lost is tried again.
    #[test]
    fn a_flow_is_tried_at_its_second_frame_and_then_less_and_less_often() {
        let mut mapping = mapping(8);
        let tried: Vec<u32> = (1..=1500).filter(|_| mapping.tries(0xabcd_e200)).collect();
        assert_eq!(tried, [2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280]);
    }

    #[test]
    fn entries_are_shown_until_they_are_removed() {
        let mut mapping = mapping(8);
        (0..4).for_each(|n| mapping.put(&key(n), entry(n.into())));
        assert_eq!((mapping.len(), mapping.capacity()), (4, 8));
        mapping.put(&key(1), entry(77));
        mapping.del(&key(2));
        let mut shown = Vec::new();
        mapping.each(&mut |key, action| shown.push((key.sport, action.mark, action.to)));
        shown.sort_unstable_by_key(|(port, ..)| *port);
        let wanted = [(0, 0), (1, 77), (3, 3)];
        assert_eq!(shown, wanted.map(|(port, path)| (port, path, To::Port(3))));
        // The same mask keeps the entries; another one, and clear, remove them.
        mapping.set_mask(&key(0xffff));
        assert_eq!(mapping.len(), 3);
        mapping.set_mask(&key(0xff00));
        assert_eq!(mapping.len(), 0);
        mapping.put(&key(0x100), entry(1));
        mapping.clear();
        assert_eq!(mapping.len(), 0);
    }

    /// When all entries are taken, active flows get new ones: after eight tries for each entry all are removed.
    #[test]
    fn a_full_mapping_is_cleared_after_enough_tries() {
        let mut mapping = mapping(4);
        (0..4).for_each(|n| mapping.put(&key(n), entry(n.into())));
        assert_eq!(mapping.len(), 4);
        let mut tries = 0;
        for flow in 0_u32.. {
            let hash = flow.wrapping_mul(0x9e37_7a00);
            assert!(!mapping.tries(hash), "there is no room");
            let full = mapping.len() == 4;
            assert!(!mapping.tries(hash), "there is no room");
            tries += u32::from(full);
            if mapping.len() == 0 {
                break;
            }
            assert!(tries < 1000, "it is never cleared");
        }
        assert!(tries > 32, "{tries}");
        mapping.tries(0x0bcd_e200);
        assert!(mapping.tries(0x0bcd_e200), "there is room again");
    }

    #[test]
    fn a_window_with_few_hits_pauses_the_lookups_unless_flows_are_learnt() {
        for (hits, learnt, paused) in
            [(127, 0, true), (128, 0, false), (0, 127, true), (0, 128, false), (1024, 0, false)]
        {
            let mut mapping = mapping(2048);
            for n in 0..learnt {
                mapping.put(&key(n), entry(1));
            }
            assert!(mapping.looks(1024));
            mapping.hits(hits);
            assert_eq!(!mapping.looks(32), paused, "{hits} hits, {learnt} learnt");
            mapping.resume();
            assert!(mapping.looks(32));
        }
        assert!(!mapping(8).looks(0) && !Mapping::new(0, 7).looks(32));
    }
}
