//! Store: the flows that a learner steers, with the learner's data about each.
//!
//! ```text
//!  key ──index──> entry          hand ──> entry, entry, entry ..   circular
//! ```
//!
//! Occupancy is bounded by the second-chance algorithm: when all entries are taken, the hand moves
//! over the entries, clears the mark of those that were sampled since it last passed them, and evicts
//! the first that has no mark, or the last of [`LOOKS`] entries if all of those have one.
//!
//! Invariants: at most `entries` keys; a key is deleted by an edit before its entry is reused; no
//! allocation after `new` except in the caller's `edits`.

use flowyard_frame::{Action, Edit, FlowKey};

use crate::table::Exact;

/// The most entries that are inspected for an eviction.
const LOOKS: usize = 64;

/// A flow that is steered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<T> {
    key: FlowKey,
    /// Sampled since the hand last passed this entry.
    pub(super) sampled: bool,
    /// The learner's data about the flow.
    pub(super) known: T,
}

#[derive(Clone, Debug)]
pub(super) struct Store<T> {
    /// From the key to the number of its entry, which is the action's mark.
    index: Exact,
    /// `None` is a free entry.
    entries: Box<[Option<Entry<T>>]>,
    /// Numbers of free entries.
    free: Vec<u32>,
    hand: usize,
}

impl<T: Copy> Store<T> {
    pub(super) fn new(entries: usize, seed: u64) -> Self {
        let entries = entries.clamp(1, 1 << 24);
        Self {
            index: Exact::new(entries, &FlowKey::FLOW, seed),
            entries: vec![None; entries].into(),
            free: (0..entries as u32).rev().collect(),
            hand: 0,
        }
    }

    /// How many flows are steered.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn get_mut(&mut self, key: &FlowKey) -> Option<&mut Entry<T>> {
        let number = self.number(key)?;
        self.entries[number].as_mut()
    }

    /// Adds a flow that is not in the store; returns whether the index had a place for its key.
    pub(super) fn add(&mut self, key: FlowKey, known: T, edits: &mut Vec<Edit>) -> bool {
        let number = self.take(edits);
        let action = Action { mark: number as u32, ..Action::default() };
        if self.index.put(&key, action).is_err() {
            self.free.push(number as u32);
            return false;
        }
        self.entries[number] = Some(Entry { key, sampled: true, known });
        true
    }

    /// Deletes a flow, if it is in the store.
    pub(super) fn forget(&mut self, key: &FlowKey, edits: &mut Vec<Edit>) {
        if let Some(number) = self.number(key) {
            self.release(number, edits);
        }
    }

    /// Moves the hand over the next `looks` entries and deletes those for which `is_over` holds.
    pub(super) fn expire(
        &mut self,
        looks: usize,
        is_over: impl Fn(&T) -> bool,
        edits: &mut Vec<Edit>,
    ) {
        for _ in 0..looks.min(self.entries.len()) {
            let at = self.advance();
            if self.entries[at].as_ref().is_some_and(|entry| is_over(&entry.known)) {
                self.release(at, edits);
            }
        }
    }

    fn number(&self, key: &FlowKey) -> Option<usize> {
        self.index.get(key).map(|action| action.mark as usize)
    }

    /// The number of a free entry; evicts one if there is none.
    fn take(&mut self, edits: &mut Vec<Edit>) -> usize {
        let mut looks = LOOKS;
        while self.free.is_empty() {
            let at = self.advance();
            looks = looks.saturating_sub(1);
            match &mut self.entries[at] {
                Some(entry) if entry.sampled && looks > 0 => entry.sampled = false,
                _ => self.release(at, edits),
            }
        }
        self.free.pop().map_or(0, |number| number as usize)
    }

    fn release(&mut self, number: usize, edits: &mut Vec<Edit>) {
        if let Some(entry) = self.entries[number].take() {
            self.index.del(&entry.key);
            self.free.push(number as u32);
            edits.push(Edit::Del(entry.key));
        }
    }

    fn advance(&mut self) -> usize {
        let at = self.hand;
        self.hand = if at + 1 == self.entries.len() { 0 } else { at + 1 };
        at
    }
}
