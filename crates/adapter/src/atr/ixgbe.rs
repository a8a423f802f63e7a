//! ATR of ixgbe on the 82599, X540 and X550.
//!
//! ```text
//!  transmit(ring) ─> count ─> TCP? not FIN? SYN or count >= rate? ─> signature filter -> ring
//!  near full ─> every ring stops sampling ─> worker empties the table, rings sample again
//! ```
//!
//! A ring counts every packet, not only TCP packets. Filters are never removed one by one. Only
//! transmitted packets are sampled: a flow that mostly receives is learned from its ACKs. UDP is
//! never sampled.
//!
//! Signature filters do not distinguish all flows. The model records the owner of each filter, but
//! only for its statistics: the adapter has no such information.
//!
//! Invariant: an owner is recorded for every filter in the table. No allocation after `new`.
//! Thread-safety: `&mut self`.

use flowyard_frame::{FlowKey, Frag, Nanos, proto};
use serde::Serialize;

use crate::fdir::{self, Action, Limits, MaskSet, Mode, Outcome, Pballoc, Table, Target};
use crate::stats::FilterStats;

/// The largest number of queues that ixgbe opens for ATR (`IXGBE_MAX_FDIR_INDICES`).
const MAX_RINGS: u16 = 63;
/// Duration of a re-initialisation: about 60 us at 10 Gbit/s, and four times that under load.
const FLUSH_NS: Nanos = 60_000;
/// The fields that identify the owner of a filter: the 5-tuple, and the matched bits of the VLAN
/// tag.
const OWNER: FlowKey = FlowKey { vlan_tci: 0xefff, ..FlowKey::FLOW };

/// The reason for which ATR cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The number of rings is not supported.
    #[error("ATR over {0} rings; ixgbe supports 1 to 63")]
    Rings(u16),
    /// The filter table refused the mask set of ATR. This does not happen.
    #[error(transparent)]
    Table(#[from] fdir::Error),
}

/// The result of sampling a transmitted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Transmit {
    /// Not counted, because the ring does not sample: the rate is 0, the ring does not exist, or the
    /// table is about to be flushed.
    Off,
    /// Counted, but not sampled: not TCP, or a fragment.
    NotTcp,
    /// Counted, but not sampled: a FIN, which ends the flow.
    Fin,
    /// Counted; the ring has not reached its sample rate.
    NotYet,
    /// A filter was added.
    Added,
    /// The filter of this flow was rewritten.
    Updated,
    /// The filter of another flow was overwritten, because both flows have the same signature.
    Stolen,
    /// The table was full.
    Full,
}

/// The settings that turn ATR off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conditions {
    /// `ethtool -K DEV ntuple on`: the port is in perfect mode. The in-tree driver has no other
    /// switch for ATR.
    pub ntuple: bool,
    /// `ethtool -K DEV hw-tc-offload on`.
    pub hw_tc: bool,
    /// Virtual functions or VMDq are on.
    pub virtualised: bool,
    /// Number of traffic classes (DCB).
    pub traffic_classes: u8,
    /// Number of RSS queues.
    pub rss_queues: u16,
    /// The sample rate; see [`Atr82599::new`].
    pub sample_rate: u32,
}

impl Conditions {
    /// The reason for which the driver does not run ATR; `None` when it does.
    #[must_use]
    pub const fn off(&self) -> Option<&'static str> {
        if self.ntuple {
            Some("ntuple filters are on, so the port is in perfect mode")
        } else if self.hw_tc {
            Some("tc offload is on, so the port is in perfect mode")
        } else if self.virtualised {
            Some("SR-IOV or VMDq is on")
        } else if self.traffic_classes > 1 {
            Some("more than one traffic class (DCB) is configured")
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
    /// Packets since the last sample, by ring.
    counts: Vec<u32>,
    /// The owner of the filter in each slot.
    owners: Box<[FlowKey]>,
    flush_delay: Nanos,
    /// The time at which the worker empties the table. No ring samples before.
    flush_at: Option<Nanos>,
    aliases: u64,
    stolen: u64,
}

impl Atr82599 {
    /// ATR over `rings` pairs of rings that samples every `sample_rate`-th packet of a ring (20 in
    /// ixgbe; 0 turns sampling off).
    ///
    /// # Errors
    /// With 0 rings, or more than 63.
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

    /// Sets the delay between the near-full interrupt and the flush of the table, in nanoseconds.
    #[must_use]
    pub const fn with_flush_delay(mut self, delay: Nanos) -> Self {
        self.flush_delay = delay;
        self
    }

    /// Sets the number of free filters at which the near-full interrupt is raised (64 in ixgbe). A
    /// larger number has the effect of a smaller table.
    ///
    /// # Errors
    /// When the table refuses the mask set of ATR, which does not happen.
    pub fn with_full_threshold(mut self, free: u16) -> Result<Self, Error> {
        let limits = Limits { full_threshold: free, ..Limits::default() };
        self.table = Table::new(Mode::Signature, self.table.pballoc(), MaskSet::ATR, limits)?;
        Ok(self)
    }

    /// Reports a packet that `ring` transmits, with its `key` as transmitted.
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

    /// The queue of the filter that a received packet matches; `None` if RSS decides.
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

    /// Runs the worker if it is due. [`Atr82599::transmit`] and [`Atr82599::receive`] call this
    /// themselves.
    #[inline]
    pub fn tick(&mut self, now: Nanos) {
        if self.flush_at.is_some_and(|at| now >= at) {
            self.table.flush();
            self.flush_at = None;
        }
    }

    /// The counters of the table. `aliases` are frames steered by the filter of another flow;
    /// `flushes` is the counter `fdir_overflow` of Linux.
    #[must_use]
    pub const fn stats(&self) -> FilterStats {
        FilterStats { aliases: self.aliases, ..self.table.stats() }
    }

    /// Number of samples that overwrote the filter of another flow.
    #[must_use]
    pub const fn stolen(&self) -> u64 {
        self.stolen
    }

    /// Whether a flush of the table is pending, during which nothing is sampled.
    #[must_use]
    pub const fn is_flushing(&self) -> bool {
        self.flush_at.is_some()
    }

    /// The filter table that ATR writes.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Programs a filter from the received direction `key` to `ring`.
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
