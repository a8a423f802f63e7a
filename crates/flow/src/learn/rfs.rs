//! RFS (receive flow steering): steers a flow to the core that consumes it.
//!
//! ```text
//!  core 3 works on  a:4000 > b:80, out of a queue it shares   ──sampled──>  Put(a:4000 > b:80, queue 3)
//!                                                             ──idle─────>  Del(a:4000 > b:80)
//! ```
//!
//! When a process reads from its socket, Linux records the core on which the process runs, and
//! steers the flow's next packets to that core (scaling.rst, "RFS"). Here a core consumes a frame
//! when it works on it. Of the cores that share a queue, the first that is sampled while it works on
//! a flow becomes the flow's home. From then on the flow enters that core's own queue, so that its
//! state stays in one core's cache. When another core is sampled working on the flow, the flow moves
//! there.
//!
//! Before it moves a flow, Linux checks that its old core has finished with it. Here settle checks
//! that, so the learner may emit an edit at any time.
//!
//! One of every N frames is sampled. The gaps are random, so that no pattern of traffic hides a
//! flow; the other frames cost one comparison for each batch. Occupancy is bounded as for ATR. Each
//! core has its own learner. When one learner deletes a flow that another has learnt since, the `Del`
//! removes the other's entry; therefore a flow that is still sampled is put again after a quarter of
//! the idle time.
//!
//! Invariants: a learner steers at most `entries` flows; a key is deleted by an edit before its entry
//! is reused; no allocation after `new` except in the caller's `edits`.

use flowyard_frame::{Action, Batch, Edit, FlowKey, Frag, Lanes, Nanos, Rng};

use super::Learn;
use super::store::Store;

/// How [`Rfs`] learns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The most flows that are steered at a time.
    pub entries: usize,
    /// On average, one of `sample_every` frames that a core works on is sampled; with 0, none is.
    pub sample_every: u32,
    /// A flow that was not sampled for longer than this is deleted, in nanoseconds.
    pub idle: Nanos,
}

impl Default for Settings {
    /// As ATR: 8192 entries, one of every 20 frames, 30 seconds.
    fn default() -> Self {
        Self { entries: 8192, sample_every: 20, idle: 30_000_000_000 }
    }
}

/// How many entries are checked for idleness with each batch observed.
const LOOKS: usize = 4;
/// A flow that is still sampled is put again after `idle / RENEW`.
const RENEW: Nanos = 4;

/// What is known about a flow.
#[derive(Clone, Copy, Debug)]
struct Known {
    home: u16,
    /// The time of the last sample.
    last: Nanos,
    /// The time of the last `Put`.
    put: Nanos,
}

/// Learns from frames worked on which core a flow belongs to.
#[derive(Clone, Debug)]
pub struct Rfs {
    settings: Settings,
    flows: Store<Known>,
    /// Frames to skip before the next sample.
    wait: u32,
    gaps: Rng,
}

impl Rfs {
    /// A learner for one core. `seed` decides which frames are sampled.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let flows = Store::new(settings.entries, seed);
        let mut rfs = Self { settings, flows, wait: 0, gaps: Rng::new(seed) };
        rfs.wait = rfs.gap();
        rfs
    }

    /// How many flows are steered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether no flow is steered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Core `home` worked on a frame with this key, which was sampled.
    pub fn consumed(&mut self, home: u16, key: &FlowKey, now: Nanos, edits: &mut Vec<Edit>) {
        if !key.is_ip() || key.fragment() != Frag::No {
            return; // later fragments have no ports, so an entry would split the datagram
        }
        let key = key.flow();
        let put = Edit::Put(key, Action::queue(home));
        let new = Known { home, last: now, put: now };
        if let Some(entry) = self.flows.get_mut(&key) {
            let known = &mut entry.known;
            entry.sampled = true;
            if known.home != home || now.saturating_sub(known.put) > self.settings.idle / RENEW {
                *known = new;
                edits.push(put);
            } else {
                known.last = now;
            }
        } else if self.flows.add(key, new, edits) {
            edits.push(put); // otherwise the indirection table goes on answering
        }
    }

    /// Checks the next `looks` entries and forgets those that are idle at `now`.
    pub fn expire(&mut self, looks: usize, now: Nanos, edits: &mut Vec<Edit>) {
        if self.is_empty() {
            return;
        }
        let idle = self.settings.idle;
        let is_over = |known: &Known| now.saturating_sub(known.last) > idle;
        self.flows.expire(looks, is_over, edits);
    }

    /// Frames to skip: from 0 to `2 * (sample_every - 1)`, uniformly distributed.
    fn gap(&mut self) -> u32 {
        let every = u64::from(self.settings.sample_every.max(1));
        (self.gaps.bits() % (2 * every - 1)).min(u32::MAX.into()) as u32
    }
}

impl Learn for Rfs {
    /// Learns from the lanes that `core` worked on.
    fn observe(
        &mut self,
        core: u16,
        batch: &Batch,
        mut lanes: Lanes,
        now: Nanos,
        edits: &mut Vec<Edit>,
    ) {
        while self.settings.sample_every != 0 && self.wait < lanes.count() {
            if let Some(lane) = lanes.nth(self.wait as usize) {
                self.consumed(core, &batch.keys[lane], now, edits);
            }
            self.wait = self.gap();
        }
        self.wait -= lanes.count().min(self.wait);
        self.expire(LOOKS, now, edits);
    }
}

#[cfg(test)]
mod tests;
