//! Mapping: plain frames that do nothing but leave by a port, answered where a core receives them.
//!
//! ```text
//!  rx ─ parse ─> exact entries, rules ─> mapping ──hit──> the tx queue of the port
//!                                           └──miss──> RSS ─> a queue ─> the switch: cache, tables
//! ```
//!
//! The port-mapping table of the KTH group turned (input port, queue) into (output port, queue), behind filters of
//! the adapter that had parsed and matched the frame. Here the yard's key, which is there already, is looked up in a
//! [`flowyard_flow::table::Exact`]: the entry's action is a port, its mark the path in the [`crate::cache::Cache`]
//! that the flows to count are in, its counter the lower half of the path's generation. An entry whose path has
//! another generation is none: so whatever ends a path ends its entries in the same call.
//!
//! A flow gets an entry at its second frame, and is tried again at its 4th, 8th, .. if it can have none; one whose
//! entry has died is tried at once. Where
//! asking does not pay (few frames are known, and few flows are learnt), one batch of [`ONE_IN`] asks.
//!
//! Invariants: nothing is allocated but by [`Mapping::tell_apart`]; a key is asked for only of a plain frame.
//! Thread-safety: one core's.

use flowyard_flow::table::{Exact, Table};
use flowyard_frame::{Action, Batch, FlowKey, Lanes, To};

/// At rest, one of N batches asks.
const ONE_IN: u32 = 64;
/// Frames of a window; fewer at rest.
const WINDOW: u32 = 1024;
const WINDOW_AT_REST: u32 = 128;
/// The number of misses that cost as much as a hit saves.
const PAYS: u32 = 8;
/// The bits that count in [`Mapping::seen`]: as many frames of a flow are at most between two tries.
const COUNT: u32 = 511;
/// Where all entries are taken, tries for each of them until all are forgotten: flows that are alive come back.
const AGE: u32 = 8;
/// Windows in which few frames are known until the same is done, at first and at most: twice as many each time.
const PATIENCE: u32 = 2;
const LONGEST: u32 = 1 << 16;

/// An answer of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    /// The yard's port.
    pub(crate) port: u16,
    /// The path, and its generation.
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
    /// By receive hash: a flow's, and in the bits of [`COUNT`] how many of its frames were here.
    seen: Box<[u32]>,
    coin: u32,
    looked: u32,
    hits: u32,
    learnt: u32,
    rests: bool,
    turn: u32,
    /// Tries since all entries are taken.
    crowd: u32,
    /// Windows since then in which few frames were known, and how many there may be.
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
            looked: 0,
            hits: 0,
            learnt: 0,
            rests: false,
            turn: 0,
            crowd: 0,
            useless: 0,
            patience: PATIENCE,
        }
    }

    /// Sets the mask that distinguishes keys. A changed mask discards all entries.
    pub(crate) fn tell_apart(&mut self, mask: &FlowKey) {
        if self.capacity != 0 && (*mask != self.mask || self.table.is_none()) {
            self.table = Some(Exact::new(self.capacity, mask, self.seed));
            self.mask = *mask;
            self.seen = vec![0; (2 * self.capacity).next_power_of_two()].into();
            self.crowd = 0;
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        if let Some(table) = &mut self.table {
            table.clear();
        }
        self.seen.fill(0);
        self.crowd = 0;
    }

    /// The tables are others now: it may pay to ask.
    pub(crate) const fn wake(&mut self) {
        self.rests = false;
    }

    /// How many entries there are, dead ones among them.
    pub(crate) fn len(&self) -> usize {
        self.table.as_ref().map_or(0, Exact::len)
    }

    /// How many there can be.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Every entry, dead or alive.
    pub(crate) fn each(&self, show: &mut dyn FnMut(&FlowKey, &Action)) {
        if let Some(table) = &self.table {
            table.each(show);
        }
    }

    /// Whether this batch, with this number of plain frames, uses the mapping.
    #[inline]
    pub(crate) fn asks(&mut self, frames: u32) -> bool {
        if frames == 0 || self.table.is_none() {
            return false;
        }
        if self.rests {
            self.turn += 1;
            if self.turn < ONE_IN {
                return false;
            }
            self.turn = 0;
        }
        self.looked += frames;
        if self.looked > if self.rests { WINDOW_AT_REST } else { WINDOW } {
            self.judge();
        }
        true
    }

    /// A window is over.
    fn judge(&mut self) {
        let few = self.hits * PAYS < self.looked;
        self.rests = few && self.learnt * PAYS < self.looked;
        (self.looked, self.hits, self.learnt) = (0, 0, 0);
        if !few {
            (self.useless, self.patience) = (0, PATIENCE);
        } else if self.len() == self.capacity {
            // Its entries are of flows that are gone; or flows are too many, and then this is to be seldom.
            self.useless += 1;
            if self.useless > self.patience {
                self.clear();
                (self.useless, self.patience) = (0, (self.patience * 2).min(LONGEST));
            }
        }
    }

    /// The entries of `lanes`, as actions. Returns the lanes that have none.
    #[inline]
    pub(crate) fn lookup(&mut self, batch: &mut Batch, lanes: Lanes) -> Lanes {
        self.table.as_mut().map_or(lanes, |table| table.lookup(batch, lanes))
    }

    /// Adds the number of answers that were valid.
    #[inline]
    pub(crate) const fn hit(&mut self, frames: u32) {
        self.hits += frames;
    }

    /// Whether a flow that has no entry is to be tried, by this frame.
    #[inline]
    pub(crate) fn tries(&mut self, hash: u32) -> bool {
        let at = (hash.wrapping_mul(0x9e37_79b1) >> 7) as usize & (self.seen.len() - 1);
        let seen = &mut self.seen[at];
        let count = if *seen & !COUNT == hash & !COUNT { *seen & COUNT } else { 0 };
        if count == 0 {
            // Of flows that take turns, one stays and is tried, and makes room for the next.
            // What finds a free place is on its way to be learnt: that is no reason to rest.
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

    /// Forgets an entry.
    pub(crate) fn del(&mut self, key: &FlowKey) {
        if let Some(table) = &mut self.table {
            table.del(key);
        }
    }

    /// Keeps an answer.
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
