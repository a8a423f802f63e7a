//! ATR (application targeted routing): steers a flow to the core that transmits it.
//!
//! ```text
//!  core 3 transmits  a:80 > b:4000   ──sampled──>  Put(b:4000 > a:80, queue 3)
//!                                    ──RST──────>  Del(b:4000 > a:80)
//!                                    ──idle─────>  Del(b:4000 > a:80)
//! ```
//!
//! The sampling is that of Intel's drivers for Flow Director: each SYN, and one of every N frames
//! that a core transmits, so that a flow that moves is found again. There are two differences to the
//! 82599. It fills its table, flushes all of it and starts again; here occupancy is bounded by the
//! second-chance algorithm (see the store). And there a move can reorder frames; here settle
//! prevents it.
//!
//! After a FIN one side has finished, but the other may still send: the entry is not renewed, is
//! evicted before others, and is deleted after a second. RST deletes the entry at once. Fragments
//! and frames other than TCP (and UDP, if enabled) are not learnt from.
//!
//! Each core that transmits has its own learner. When one learner deletes a flow that another has
//! learnt since, the `Del` removes the other's entry; therefore a flow that is still sampled is put
//! again after a quarter of the idle time.
//!
//! Invariants: at most `entries` keys are in the table; a key is deleted by an edit before its entry
//! is reused; no allocation after `new` except in the caller's `edits`.

use flowyard_frame::{Action, Batch, Edit, FlowKey, Frag, Lanes, Nanos, proto};

use super::Learn;
use super::store::Store;

/// How [`Atr`] learns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The most flows that are steered at a time.
    pub entries: usize,
    /// Besides every SYN, one of `sample_every` frames that a core transmits is sampled; with 0,
    /// only SYNs are.
    pub sample_every: u32,
    /// A flow that was not sampled for longer than this is deleted, in nanoseconds.
    pub idle: Nanos,
    /// Learn from UDP too. Adapters do not: a datagram may be fragmented, and its later fragments,
    /// which have no ports, would be sent to another queue.
    pub udp: bool,
}

impl Default for Settings {
    /// 8192 entries (XL710), one of every 20 frames (ixgbe, i40e), 30 seconds, TCP only.
    fn default() -> Self {
        Self { entries: 8192, sample_every: 20, idle: 30_000_000_000, udp: false }
    }
}

/// How long an entry stays after a FIN, in nanoseconds, unless it is evicted earlier.
const LINGER: Nanos = 1_000_000_000;
/// How many entries are checked for idleness with each batch observed.
const LOOKS: usize = 4;
/// A flow that is still sampled is put again after `idle / RENEW`.
const RENEW: Nanos = 4;

/// What is known about a flow.
#[derive(Clone, Copy, Debug)]
struct Known {
    core: u16,
    /// A FIN was seen.
    closing: bool,
    /// The time of the last sample.
    last: Nanos,
    /// The time of the last `Put`.
    put: Nanos,
}

/// Learns from transmitted frames which core a flow belongs to.
#[derive(Clone, Debug)]
pub struct Atr {
    settings: Settings,
    /// By the flow's key in received frames, which is the table's key.
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

    /// Forgets a flow, if it is known, and deletes it from the table. Also for flows whose `Put` the
    /// table refused.
    pub fn forget(&mut self, received: &FlowKey, edits: &mut Vec<Edit>) {
        self.flows.forget(received, edits);
    }

    /// Checks the next `looks` entries and forgets those that are idle at `now`.
    pub fn expire(&mut self, looks: usize, now: Nanos, edits: &mut Vec<Edit>) {
        let idle = self.settings.idle;
        let is_over = |known: &Known| {
            let limit = idle.min(if known.closing { LINGER } else { Nanos::MAX });
            now.saturating_sub(known.last) > limit
        };
        self.flows.expire(looks, is_over, edits);
    }

    fn learn(&mut self, core: u16, key: FlowKey, syn: bool, now: Nanos, edits: &mut Vec<Edit>) {
        let new = Known { core, closing: false, last: now, put: now };
        let put = Edit::Put(key, Action::queue(core));
        if let Some(entry) = self.flows.get_mut(&key) {
            let known = &mut entry.known;
            if known.closing && !syn {
                return; // a late frame of a closed flow; only a SYN reopens it
            }
            entry.sampled = true;
            if known.core != core || now.saturating_sub(known.put) > self.settings.idle / RENEW {
                *known = new;
                edits.push(put);
            } else {
                *known = Known { put: known.put, ..new };
            }
        } else if self.flows.add(key, new, edits) {
            edits.push(put); // otherwise the indirection table goes on answering
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
