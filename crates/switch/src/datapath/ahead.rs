//! Ahead: parses and looks up the frames of a batch together, before the first of them is processed.
//!
//! ```text
//!   parse all ─> hash all ─> tags ─> entries ─> paths    hits: their counters are prefetched
//!                                       └─> first table's slots ─> rules ─> flows    misses
//! ```
//!
//! Each step requests the memory of all frames before the next step waits for any of it.
//!
//! Invariants: the results are those that [`Datapath::act`] would find. Tables change only in
//! [`Datapath::apply`], which invalidates the results; frames are then looked up again one by one.
//! Thread-safety: plain data.

use std::hint::black_box;

use flowyard_frame::{LANES, Lanes};

use super::{Arrival, Datapath};
use crate::cache::Spot;
use crate::key::Key;
use crate::parse::{self, Layout};

/// The greatest number of frames that are looked up together.
pub const AHEAD: usize = LANES;

/// The frames that were looked up, and the results.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) keys: Vec<Key>,
    pub(super) layouts: Vec<Layout>,
    /// Where the cache would store them, if it was used.
    pub(super) spots: Vec<Option<Spot>>,
    /// The paths of frames that hit in the cache.
    pub(super) paths: Vec<Option<u32>>,
    /// The flows of the first table, for frames without a path.
    pub(super) flows: Vec<Option<u32>>,
    /// Whether the results are still valid.
    pub(super) holds: bool,
}

impl Datapath {
    /// Looks up at most [`AHEAD`] frames. [`Datapath::act`] then processes each by its place. Replaces the
    /// frames of the last call. Returns the number of frames.
    pub fn look<'a>(&mut self, frames: impl IntoIterator<Item = (&'a [u8], Arrival)>) -> usize {
        if !self.is_ready {
            self.ready();
        }
        if self.cache.sheds() {
            self.count_noted();
        }
        let Ahead { keys, layouts, spots, paths, flows, holds } = &mut self.ahead;
        keys.clear();
        layouts.clear();
        for (frame, from) in frames.into_iter().take(AHEAD) {
            let mut key = from.key();
            layouts.push(parse::parse(frame, &mut key));
            keys.push(key);
        }
        let count = keys.len();
        spots.resize(count, None);
        paths.resize(count, None);
        flows.resize(count, None);
        *holds = true;
        self.cache.find(keys, spots, paths, self.core);
        let mut unknown = Lanes::NONE;
        for (lane, _) in paths.iter().enumerate().filter(|(_, path)| path.is_none()) {
            unknown = unknown.with(lane);
        }
        if let Some(table) = self.tables.first().filter(|_| !unknown.is_empty()) {
            table.lookup_all(keys, unknown, flows);
            for lane in unknown {
                let Some(number) = flows[lane] else { continue };
                let Some(Some(flow)) = self.flows.get(number as usize) else { continue };
                black_box(flow.entry.counts.get(self.core).map(|counts| counts.read().0));
                black_box(flow.entry.instructions.first());
            }
        }
        count
    }
}
