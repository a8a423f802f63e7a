//! The connections that a core has in front of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use flowyard_frame::Nanos;
use flowyard_yard::front::{Entry, Front, Seen};

use crate::ConnKey;

/// What a core has in front of it.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) front: Arc<dyn Front>,
    pub(super) flows: BTreeMap<u32, One>,
    /// The next flow to look at.
    pub(super) next: u32,
    /// Flows that were removed, and when.
    pub(super) leaving: VecDeque<(Nanos, u32, One)>,
}

/// A connection in front.
#[derive(Clone, Copy, Debug)]
pub(super) struct One {
    pub(super) slot: u32,
    pub(super) key: ConnKey,
    pub(super) backend: u32,
    /// The entries of its packets, and of the replies.
    pub(super) entries: [Option<Entry>; 2],
    /// What was counted so far.
    pub(super) counted: [Seen; 2],
}

impl Ahead {
    pub(super) fn new(front: Arc<dyn Front>) -> Self {
        Self { front, flows: BTreeMap::new(), next: 0, leaving: VecDeque::new() }
    }

    pub(super) fn remove(&mut self, flow: u32, now: Nanos) -> Option<u32> {
        let one = self.flows.remove(&flow)?;
        self.front.remove(flow);
        self.leaving.push_back((now, flow, one));
        Some(one.slot)
    }
}
