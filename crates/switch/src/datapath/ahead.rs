//! Ahead: the frames of a batch are parsed and looked up together, before anything is done to any.
//!
//! ```text
//!   parse all ─> hash all ─> tags ─> entries ─> paths    known: their counters are brought near
//!                                       └─> first table's slots ─> rules ─> flows    the others
//! ```
//!
//! Each step asks for the memory of all frames before the next one waits for any of it.
//!
//! Invariants: what is found here is what [`Datapath::act`] would find: tables change in
//! [`Datapath::apply`] only, which forgets what was found, and then it is looked up when it is needed.
//! Thread-safety: plain data.

use std::hint::black_box;

use flowyard_frame::{LANES, Lanes};

use super::{Arrival, Datapath};
use crate::cache::Spot;
use crate::key::Key;
use crate::parse::{self, Layout};

/// The most frames that are looked up together.
pub const AHEAD: usize = LANES;

/// The frames that were looked up, and what was found.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) keys: Vec<Key>,
    pub(super) layouts: Vec<Layout>,
    /// Where the cache would have them, if it was asked.
    pub(super) spots: Vec<Option<Spot>>,
    /// The paths that the cache knows.
    pub(super) paths: Vec<Option<u32>>,
    /// The first table's flows, where there is no path.
    pub(super) flows: Vec<Option<u32>>,
    /// Whether that still holds.
    pub(super) holds: bool,
}

impl Datapath {
    /// Looks up frames, at most [`AHEAD`], to be given to [`Datapath::act`] by their places. How many
    /// they are. Those of the last call are forgotten.
    pub fn look<'a>(&mut self, frames: impl IntoIterator<Item = (&'a [u8], Arrival)>) -> usize {
        if !self.is_ready {
            self.ready();
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
