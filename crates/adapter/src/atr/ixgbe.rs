//! ATR as ixgbe does it on the 82599, X540 and X550.
//!
//! ```text
//!  transmit(ring) ─> count ─> TCP? not FIN? SYN or count >= rate? ─> signature filter -> ring
//!  near full ─> every ring stops sampling ─> worker: whole table lost, rings start again
//! ```
//!
//! A ring counts every packet, not just TCP ones. Filters never leave one by one. Only what is
//! transmitted teaches: a flow that mostly receives is steered by its ACKs. UDP is never sampled.
//!
//! Signature filters cannot tell all flows apart, so the model remembers whose each filter is:
//! for statistics only, the adapter does not know.
//!
//! Invariant: an owner is recorded for every filter in the table. No allocation after `new`.
//! Thread-safety: `&mut self`.

use flowyard_frame::{FlowKey, Frag, Nanos, proto};
use serde::Serialize;

use crate::fdir::{self, Action, Limits, MaskSet, Mode, Outcome, Pballoc, Table, Target};
use crate::stats::FilterStats;

/// ixgbe opens at most 63 queues for ATR (`IXGBE_MAX_FDIR_INDICES`).
const MAX_RINGS: u16 = 63;
/// A re-initialisation takes about 60 us at 10 Gbit/s, four times that under load.
const FLUSH_NS: Nanos = 60_000;
/// Whose a filter is: the 5-tuple, and the tag that the adapter tells apart.
const OWNER: FlowKey = FlowKey { vlan_tci: 0xefff, ..FlowKey::FLOW };

/// Why there is no such ATR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too few or too many rings.
    #[error("ATR over {0} rings; ixgbe has 1 to 63")]
    Rings(u16),
    /// The table refused ATR's own mask set; it does not.
    #[error(transparent)]
    Table(#[from] fdir::Error),
}

/// What became of a transmitted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Transmit {
    /// The ring does not sample: rate 0, no such ring, or the table is being flushed. Not counted.
    Off,
    /// Counted, but not a whole TCP segment.
    NotTcp,
    /// Counted, but a FIN: the flow is going away.
    Fin,
    /// Counted; the ring's turn has not come.
    NotYet,
    /// A new filter.
    Added,
    /// A filter of this flow was written again.
    Updated,
    /// A filter of another flow, which the adapter takes for this one's, was overwritten.
    Stolen,
    /// The table had no room.
    Full,
}

/// What turns ATR off before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conditions {
    /// `ethtool -K DEV ntuple on`: the port is in perfect mode. In-tree, the only switch.
    pub ntuple: bool,
    /// `ethtool -K DEV hw-tc-offload on`.
    pub hw_tc: bool,
    /// Virtual functions or VMDq.
    pub virtualised: bool,
    /// Traffic classes (DCB).
    pub traffic_classes: u8,
    /// RSS queues.
    pub rss_queues: u16,
    /// The sample rate.
    pub sample_rate: u32,
}

impl Conditions {
    /// Why the driver would not run ATR; `None` when it would.
    #[must_use]
    pub const fn off(&self) -> Option<&'static str> {
        if self.ntuple {
            Some("ntuple filters are on, so the port is in perfect mode")
        } else if self.hw_tc {
            Some("tc offload is on, so the port is in perfect mode")
        } else if self.virtualised {
            Some("SR-IOV or VMDq is on")
        } else if self.traffic_classes > 1 {
            Some("more than one traffic class (DCB) is set up")
        } else if self.rss_queues <= 1 {
            Some("RSS has one queue")
        } else if self.sample_rate == 0 {
            Some("the sample rate is 0")
        } else {
            None
        }
    }
}

/// ATR of one port, with its filter table.
#[derive(Clone, Debug)]
pub struct Atr82599 {
    table: Table,
    sample_rate: u32,
    /// Packets since the last sample, ring by ring.
    counts: Vec<u32>,
    /// Whose each slot is.
    owners: Box<[FlowKey]>,
    flush_delay: Nanos,
    /// When the worker empties the table; rings do not sample until then.
    flush_at: Option<Nanos>,
    aliases: u64,
    stolen: u64,
}

impl Atr82599 {
    /// ATR over `rings` pairs of rings, sampling every `sample_rate`-th packet of a ring (20 in
    /// ixgbe; 0 never).
    ///
    /// # Errors
    /// With no ring or more than 63.
    pub fn new(rings: u16, sample_rate: u32, pballoc: Pballoc) -> Result<Self, Error> {
        if rings == 0 || rings > MAX_RINGS {
            return Err(Error::Rings(rings));
        }
        let table = Table::new(Mode::Signature, pballoc, MaskSet::ATR, Limits::default())?;
        Ok(Self {
            owners: vec![FlowKey::ZERO; table.stats().capacity as usize].into_boxed_slice(),
            table,
            sample_rate,
            counts: vec![0; usize::from(rings)],
            flush_delay: FLUSH_NS,
            flush_at: None,
            aliases: 0,
            stolen: 0,
        })
    }

    /// The same with another delay between the near-full interrupt and the empty table.
    #[must_use]
    pub const fn with_flush_delay(mut self, delay: Nanos) -> Self {
        self.flush_delay = delay;
        self
    }

    /// The same with the near-full interrupt at another number of free filters (64 in ixgbe): in
    /// effect, a smaller table.
    ///
    /// # Errors
    /// When the table refuses ATR's own mask set; it does not.
    pub fn with_full_threshold(mut self, free: u16) -> Result<Self, Error> {
        let limits = Limits { full_threshold: free, ..Limits::default() };
        self.table = Table::new(Mode::Signature, self.table.pballoc(), MaskSet::ATR, limits)?;
        Ok(self)
    }

    /// A packet leaves by `ring`; `key` is as transmitted.
    #[inline]
    pub fn transmit(&mut self, ring: u16, key: &FlowKey, now: Nanos) -> Transmit {
        self.tick(now);
        let off = self.sample_rate == 0 || self.flush_at.is_some();
        let Some(count) = self.counts.get_mut(usize::from(ring)).filter(|_| !off) else {
            return Transmit::Off;
        };
        *count = count.saturating_add(1);
        if !key.is_ip() || key.proto != proto::TCP || key.fragment() != Frag::No {
            return Transmit::NotTcp;
        }
        if key.tcp_flags & FlowKey::FIN != 0 {
            return Transmit::Fin;
        }
        if key.tcp_flags & FlowKey::SYN == 0 && *count < self.sample_rate {
            return Transmit::NotYet;
        }
        *count = 0;
        self.learn(ring, &key.reversed(), now)
    }

    /// A packet arrives: the queue of the filter it hits, or `None` and RSS decides.
    #[inline]
    pub fn receive(&mut self, key: &FlowKey, now: Nanos) -> Option<u16> {
        self.tick(now);
        let hit = self.table.lookup(key)?;
        let owner = &self.owners[usize::from(hit.slot)];
        self.aliases += u64::from(*owner != key.masked(&OWNER));
        match hit.action.to {
            Target::Queue(queue) => Some(queue),
            Target::Drop => None, // signature filters never drop
        }
    }

    /// Lets the worker run, if its time has come. [`Atr82599::transmit`] and
    /// [`Atr82599::receive`] do so themselves.
    #[inline]
    pub fn tick(&mut self, now: Nanos) {
        if self.flush_at.is_some_and(|at| now >= at) {
            self.table.flush();
            self.flush_at = None;
        }
    }

    /// Counters. `aliases` are frames steered by another flow's filter; `flushes` is what Linux
    /// shows as `fdir_overflow`.
    #[must_use]
    pub const fn stats(&self) -> FilterStats {
        FilterStats { aliases: self.aliases, ..self.table.stats() }
    }

    /// How many samples overwrote the filter of another flow.
    #[must_use]
    pub const fn stolen(&self) -> u64 {
        self.stolen
    }

    /// Whether the table is waiting to be flushed, so that nothing is sampled.
    #[must_use]
    pub const fn is_flushing(&self) -> bool {
        self.flush_at.is_some()
    }

    /// The filter table.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// `key` is the flow as it will be received.
    fn learn(&mut self, ring: u16, key: &FlowKey, now: Nanos) -> Transmit {
        let Ok(added) = self.table.add(key, 0, Action::queue(ring), true) else {
            return Transmit::Full;
        };
        let owner = key.masked(&OWNER);
        let before = std::mem::replace(&mut self.owners[usize::from(added.slot)], owner);
        if added.near_full {
            self.flush_at = Some(now.saturating_add(self.flush_delay));
        }
        match added.outcome {
            Outcome::Updated if before != owner => {
                self.stolen += 1;
                Transmit::Stolen
            }
            Outcome::Updated => Transmit::Updated,
            Outcome::Added | Outcome::Duplicate => Transmit::Added,
        }
    }
}

#[cfg(test)]
mod tests;
