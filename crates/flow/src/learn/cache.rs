//! Flow cache: copies the answers of a slow table forward into the exact table in front of it.
//!
//! ```text
//!  exact ──miss──> wildcard rules ──answer──> on its way
//!    ^                               │
//!    └────────── Put(key, answer) ───┘    the next frame of the flow is answered here
//! ```
//!
//! The idea is that of the KTH group, which copied flows of an OpenFlow switch into the filters of
//! the adapter ("OpenFlow with Intel 82599"): a hit costs the same, however many rules there are.
//!
//! An entry must answer as the rules do. It knows the fields under the exact table's mask alone, so
//! only answers that depend on nothing else are copied: the lanes that [`crate::Table::sure`] names.
//! The whole action is copied, its mark and counter too. And it must not outlive a change of the
//! rules: whoever changes them calls [`Learn::reset`] and applies the edits before the next lookup.
//! A cache must therefore teach only the core that it watches: edits by mail would come late.
//!
//! What was copied stays until it is the oldest and its room is wanted; hits are not seen here. When
//! there is no room, one of every so many misses is copied (Open vSwitch's `emc-insert-inv-prob`):
//! with more flows than entries, copying each would cost more than it saves, and those with many
//! frames get in soon all the same.
//!
//! Invariants: at most `entries` keys are copied; each is in the ring once; a Put is followed by a
//! Del of its key before its room serves another; no allocation after `new` but in `edits`.

use flowyard_frame::{Action, Batch, Edit, FlowKey, Lanes, Nanos};

use super::Learn;
use crate::table::Exact;

/// How [`Cache`] copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The most keys copied at a time.
    pub entries: usize,
    /// When all entries are taken, one of so many misses replaces the oldest; 0 replaces none.
    pub replace_every: u32,
}

impl Default for Settings {
    /// 8192 entries (the 82599's perfect filters; Open vSwitch's exact cache), one of 100 (its
    /// default too).
    fn default() -> Self {
        Self { entries: 8192, replace_every: 100 }
    }
}

/// Learns from frames that rules answered.
#[derive(Clone, Debug)]
pub struct Cache {
    settings: Settings,
    mask: FlowKey,
    /// The keys in `ring`: frames of one flow may miss several times before its Put is applied.
    copied: Exact,
    /// In the order they were copied, from `oldest` on when it is full.
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
            return; // on its way
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
        // Without a place in the index a key may be put twice, which does no harm.
        let _place = self.copied.put(&key, Action::default());
        edits.push(Edit::Put(key, action));
    }
}

impl Learn for Cache {
    /// `lanes` are those that rules answered, and whose answers are sure.
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
