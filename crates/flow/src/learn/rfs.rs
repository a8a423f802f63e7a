//! RFS: the core that consumes a flow shall go on consuming it (receive flow steering).
//!
//! ```text
//!  core 3 works on  a:4000 > b:80, out of a queue it shares   ──sampled──>  Put(a:4000 > b:80, queue 3)
//!                                                             ──idle─────>  Del(a:4000 > b:80)
//! ```
//!
//! Linux writes down, when a process reads from its socket, on which core it runs, and steers the
//! flow's next packets there (scaling.rst, "RFS"). Here a core consumes a frame when it works on it:
//! out of a queue that it shares with others, the first core found at work on a flow becomes the
//! flow's home. From then on the flow enters that core's own queue, its state stays in one cache,
//! and others do not touch it. A flow that another core is found at work on moves there.
//!
//! Linux checks before it moves a flow that its old core is done with it. That is settle's matter
//! here, and this learner may say what it likes at any time.
//!
//! One of every N frames is looked at, with gaps drawn at random so that no pattern of traffic hides
//! a flow; for all others the cost is one comparison for each batch. Occupancy is bounded by second
//! chance, as for ATR. Each core has a learner of its own, and when one forgets a flow that another
//! has learnt since, its Del removes that one's entry: so what is still sampled is put again from
//! time to time, well before it would be idle.
//!
//! Invariants: at most `entries` flows are steered by one learner; every Put is followed by a Del of
//! its key before the entry serves another; no allocation after `new` but in the caller's `edits`.

use flowyard_frame::{Action, Batch, Edit, FlowKey, Frag, Lanes, Nanos, Rng};

use super::Learn;
use super::store::Store;

/// How [`Rfs`] learns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The most flows that are steered at a time.
    pub entries: usize,
    /// One of so many frames that a core works on is looked at, on average; 0 looks at none.
    pub sample_every: u32,
    /// A flow that was not sampled for so long is forgotten, in nanoseconds.
    pub idle: Nanos,
}

impl Default for Settings {
    /// As ATR: 8192 entries, one of every 20 frames, 30 seconds.
    fn default() -> Self {
        Self { entries: 8192, sample_every: 20, idle: 30_000_000_000 }
    }
}

/// How many entries the hand looks at for each batch observed, to find those that are idle.
const LOOKS: usize = 4;
/// What is sampled is put again after this part of `idle`.
const RENEW: Nanos = 4;

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
struct Known {
    home: u16,
    /// The time of the last sample, and of the last Put.
    last: Nanos,
    put: Nanos,
}

/// Learns from frames worked on which core a flow belongs to.
#[derive(Clone, Debug)]
pub struct Rfs {
    settings: Settings,
    flows: Store<Known>,
    /// Frames to pass over before the next sample.
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

    /// The core called `home` was found at work on a frame with this key.
    pub fn consumed(&mut self, home: u16, key: &FlowKey, now: Nanos, edits: &mut Vec<Edit>) {
        if !key.is_ip() || key.fragment() != Frag::No {
            return; // later fragments have no ports: they would not go where the rest goes
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
            edits.push(put); // else it stays with the last table
        }
    }

    /// Moves the hand on by some entries and forgets those that are idle at `now`.
    pub fn expire(&mut self, looks: usize, now: Nanos, edits: &mut Vec<Edit>) {
        if self.is_empty() {
            return;
        }
        let idle = self.settings.idle;
        let is_over = |known: &Known| now.saturating_sub(known.last) > idle;
        self.flows.expire(looks, is_over, edits);
    }

    /// Frames to pass over: `sample_every - 1` on average, none or twice as many at the extremes.
    fn gap(&mut self) -> u32 {
        let every = u64::from(self.settings.sample_every.max(1));
        (self.gaps.bits() % (2 * every - 1)).min(u32::MAX.into()) as u32
    }
}

impl Learn for Rfs {
    /// Learns from the lanes that the core called `core` worked on.
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
