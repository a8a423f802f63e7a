//! Flow cache: copies the answers of a slow table into the exact table in front of it.
//!
//! ```text
//!  exact ──miss──> wildcard rules ──answer──> onwards
//!    ^                               │
//!    └────────── Put(key, answer) ───┘    the next frame of the flow is answered here
//! ```
//!
//! The idea is that of the KTH group, which copied flows of an OpenFlow switch into the filters of
//! the adapter ("OpenFlow with Intel 82599"): a hit costs the same, however many rules there are.
//!
//! An entry must give the same answer as the rules. It matches only the fields under the exact
//! table's mask, so only answers that depend on no other field are copied: the lanes that
//! [`crate::Table::sure`] returns. The whole action is copied, with its mark and counter. A copy must
//! not outlive a change of the rules: the code that changes them calls [`Learn::reset`] and applies
//! the edits before the next lookup. A cache therefore teaches only the core that it observes: edits
//! sent to another core would arrive after that core's next lookup.
//!
//! The cache does not see hits: a copy stays until it is the oldest and its entry is needed. When
//! all entries are taken, only one of N misses is copied (Open vSwitch's `emc-insert-inv-prob`):
//! with more flows than entries, copying every flow would cost more than it saves, and flows with
//! many frames are still copied soon.
//!
//! Invariants: at most `entries` keys are copied; each is in the ring once; a key is deleted by an
//! edit before its entry is reused; no allocation after `new` except in `edits`.

use flowyard_frame::{Action, Batch, Edit, FlowKey, Lanes, Nanos};

use super::Learn;
use crate::table::Exact;

/// How [`Cache`] copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The most keys copied at a time.
    pub entries: usize,
    /// When all entries are taken, one of `replace_every` misses replaces the oldest entry; with 0,
    /// none does.
    pub replace_every: u32,
}

impl Default for Settings {
    /// 8192 entries (the number of perfect filters of the 82599, and the size of Open vSwitch's exact
    /// match cache), one of 100 misses (Open vSwitch's default).
    fn default() -> Self {
        Self { entries: 8192, replace_every: 100 }
    }
}

/// Learns from frames that were answered by rules.
#[derive(Clone, Debug)]
pub struct Cache {
    settings: Settings,
    mask: FlowKey,
    /// The keys in `ring`. Several frames of a flow may miss before its `Put` is applied.
    copied: Exact,
    /// The keys in the order in which they were copied; when full, the order starts at `oldest`.
    ring: Vec<FlowKey>,
    oldest: usize,
    /// Misses until the next replacement.
    wait: u32,
}

impl Cache {
    /// A cache for an exact table that matches on the fields of `mask`.
    #[must_use]
    pub fn new(settings: Settings, mask: &FlowKey, seed: u64) -> Self {
        let settings = Settings { entries: settings.entries.clamp(1, 1 << 24), ..settings };
        Self {
            settings,
            mask: *mask,
            copied: Exact::new(settings.entries, mask, seed),
            ring: Vec::with_capacity(settings.entries),
            oldest: 0,
            wait: settings.replace_every,
        }
    }

    /// How many keys are copied.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether no key is copied.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn copy(&mut self, key: FlowKey, action: Action, edits: &mut Vec<Edit>) {
        if self.copied.get(&key).is_some() {
            return; // its edit is not applied yet
        }
        let full = self.ring.len() == self.settings.entries;
        if full {
            self.wait = self.wait.saturating_sub(1);
            if self.wait > 0 || self.settings.replace_every == 0 {
                return;
            }
            self.wait = self.settings.replace_every;
            let old = std::mem::replace(&mut self.ring[self.oldest], key);
            self.oldest = (self.oldest + 1) % self.settings.entries;
            self.copied.del(&old);
            edits.push(Edit::Del(old));
        } else {
            self.ring.push(key);
        }
        // If the index has no place for the key, the key may be put twice, which is harmless.
        let _place = self.copied.put(&key, Action::default());
        edits.push(Edit::Put(key, action));
    }
}

impl Learn for Cache {
    /// `lanes` are those that rules answered and that [`crate::Table::sure`] returned.
    fn observe(&mut self, _: u16, batch: &Batch, lanes: Lanes, _: Nanos, edits: &mut Vec<Edit>) {
        for lane in lanes {
            self.copy(batch.keys[lane].masked(&self.mask), batch.actions[lane], edits);
        }
    }

    fn reset(&mut self, edits: &mut Vec<Edit>) {
        edits.extend(self.ring.drain(..).map(Edit::Del));
        self.copied.clear();
        (self.oldest, self.wait) = (0, self.settings.replace_every);
    }
}

#[cfg(test)]
mod tests;
