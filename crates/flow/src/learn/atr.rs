//! ATR: the core that transmits a flow shall receive it (application targeted routing).
//!
//! ```text
//!  core 3 transmits  a:80 > b:4000   ──sampled──>  Put(b:4000 > a:80, queue 3)
//!                                    ──RST──────>  Del(b:4000 > a:80)
//!                                    ──idle─────>  Del(b:4000 > a:80)
//! ```
//!
//! The sampling is that of Intel's drivers for Flow Director: each SYN, and one of every N frames
//! that a core transmits, so a flow that moves is found again. Unlike the 82599's (which fills its
//! table, flushes it whole and starts again) occupancy is bounded by second chance: when all
//! entries are taken, the clock's hand clears the mark of those sampled since it last came by,
//! and takes the first that has none. Unlike it, too, a move cannot reorder: settle sees to that.
//!
//! FIN says that one side is done, while the other may still send: the entry is not renewed, is
//! the first to be taken, and goes after a second. RST ends the flow at once. Fragments and
//! frames other than TCP (and UDP, if asked for) teach nothing.
//!
//! Invariants: at most `entries` Puts are outstanding; every Put is followed by a Del of its key
//! before the entry serves another; no allocation after `new` but in the caller's `edits`.

use flowyard_frame::{Action, Batch, Edit, FlowKey, Frag, Lanes, Nanos, proto};

use super::Learn;
use super::store::Store;

/// How [`Atr`] learns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The most flows that are steered at a time.
    pub entries: usize,
    /// One of so many frames that a core transmits is sampled besides every SYN; 0 samples SYNs
    /// alone.
    pub sample_every: u32,
    /// A flow that was not sampled for so long is forgotten, in nanoseconds.
    pub idle: Nanos,
    /// Learn from UDP too. Adapters do not: a datagram may be fragmented, and its fragments would
    /// go elsewhere.
    pub udp: bool,
}

impl Default for Settings {
    /// 8192 entries (XL710), one of every 20 frames (ixgbe, i40e), 30 seconds, TCP alone.
    fn default() -> Self {
        Self { entries: 8192, sample_every: 20, idle: 30_000_000_000, udp: false }
    }
}

/// How long a flow stays after a FIN, in nanoseconds, unless it is forgotten sooner.
const LINGER: Nanos = 1_000_000_000;
/// How many entries the hand looks at for each batch observed, to find those that are idle.
const LOOKS: usize = 4;

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
struct Known {
    core: u16,
    /// A FIN was seen.
    closing: bool,
    /// The time of the last sample.
    last: Nanos,
}

/// Learns from transmitted frames which core a flow belongs to.
#[derive(Clone, Debug)]
pub struct Atr {
    settings: Settings,
    /// By the key as received: the table's.
    flows: Store<Known>,
    /// Frames until the next sample, by core.
    wait: Vec<u32>,
}

impl Atr {
    /// A learner for cores 0 to `cores - 1`, whose queues have the same numbers.
    #[must_use]
    pub fn new(cores: u16, settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            flows: Store::new(settings.entries, seed),
            wait: vec![settings.sample_every; cores.into()],
        }
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

    /// Core `core` transmitted a frame with this key.
    #[inline]
    pub fn transmitted(&mut self, core: u16, key: &FlowKey, now: Nanos, edits: &mut Vec<Edit>) {
        let learnt = key.proto == proto::TCP || self.settings.udp && key.proto == proto::UDP;
        if !learnt || !key.is_ip() || key.fragment() != Frag::No {
            return;
        }
        let Some(wait) = self.wait.get_mut(usize::from(core)) else { return };
        *wait = wait.saturating_sub(1);
        let due = *wait == 0 && self.settings.sample_every != 0;
        let special = key.tcp_flags & (FlowKey::SYN | FlowKey::FIN | FlowKey::RST);
        if !due && special == 0 {
            return;
        }
        if due || special == FlowKey::SYN {
            *wait = self.settings.sample_every;
        }
        let received = key.reversed().flow();
        if special & FlowKey::RST != 0 {
            self.forget(&received, edits);
        } else if special & FlowKey::FIN != 0 {
            self.close(&received, now);
        } else {
            self.learn(core, received, special != 0, now, edits);
        }
    }

    /// Forgets a flow, if it is known, and has the table forget it. Also for those whose Put was
    /// refused.
    pub fn forget(&mut self, received: &FlowKey, edits: &mut Vec<Edit>) {
        self.flows.forget(received, edits);
    }

    /// Moves the hand on by some entries and forgets those that are idle at `now`.
    pub fn expire(&mut self, looks: usize, now: Nanos, edits: &mut Vec<Edit>) {
        let idle = self.settings.idle;
        let is_over = |known: &Known| {
            let limit = idle.min(if known.closing { LINGER } else { Nanos::MAX });
            now.saturating_sub(known.last) > limit
        };
        self.flows.expire(looks, is_over, edits);
    }

    fn learn(&mut self, core: u16, key: FlowKey, syn: bool, now: Nanos, edits: &mut Vec<Edit>) {
        let known = Known { core, closing: false, last: now };
        let put = Edit::Put(key, Action::queue(core));
        if let Some(entry) = self.flows.get_mut(&key) {
            if entry.known.closing && !syn {
                return; // the tail of a closed flow; a SYN opens it anew
            }
            let before = std::mem::replace(&mut entry.known, known);
            entry.sampled = true;
            if before.core != core {
                edits.push(put);
            }
        } else if self.flows.add(key, known, edits) {
            edits.push(put); // else it stays with the last table
        }
    }

    fn close(&mut self, key: &FlowKey, now: Nanos) {
        if let Some(entry) = self.flows.get_mut(key)
            && !entry.known.closing
        {
            (entry.known.closing, entry.known.last, entry.sampled) = (true, now, false);
        }
    }
}

impl Learn for Atr {
    /// Learns from the lanes that `core` transmitted.
    fn observe(
        &mut self,
        core: u16,
        batch: &Batch,
        lanes: Lanes,
        now: Nanos,
        edits: &mut Vec<Edit>,
    ) {
        for lane in lanes {
            self.transmitted(core, &batch.keys[lane], now, edits);
        }
        self.expire(LOOKS, now, edits);
    }
}

#[cfg(test)]
mod tests;
