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
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn flow(client: [u8; 4], sport: u16, dport: u16) -> FlowKey {
        let server = Ipv4Addr::new(10, 0, 0, 1);
        let client = Ipv4Addr::from(client);
        let key = FlowKey::five_tuple(proto::TCP, client.into(), sport, server.into(), dport);
        FlowKey { tcp_flags: FlowKey::ACK, ..key }
    }

    fn with(key: FlowKey, tcp_flags: u8) -> FlowKey {
        FlowKey { tcp_flags, ..key }
    }

    fn atr() -> Atr82599 {
        Atr82599::new(8, 20, Pballoc::K64).unwrap()
    }

    #[test]
    fn the_twentieth_packet_teaches_whatever_the_first_nineteen_were() {
        let (mut atr, rx) = (atr(), flow([10, 0, 0, 5], 40000, 11211));
        let tx = rx.reversed();
        let udp = FlowKey { proto: proto::UDP, ..tx };
        for _ in 0..19 {
            assert_eq!(atr.transmit(3, &udp, 0), Transmit::NotTcp);
        }
        assert_eq!(atr.receive(&rx, 0), None);
        assert_eq!(atr.transmit(3, &tx, 0), Transmit::Added);
        assert_eq!(atr.receive(&rx, 0), Some(3));
        for _ in 0..19 {
            assert_eq!(atr.transmit(3, &tx, 0), Transmit::NotYet);
        }
        assert_eq!(atr.transmit(3, &tx, 0), Transmit::Updated);
    }

    #[test]
    fn rings_count_for_themselves() {
        let (mut atr, rx) = (atr(), flow([10, 0, 0, 5], 40000, 11211));
        for i in 0..38 {
            assert_eq!(atr.transmit(i % 2, &rx.reversed(), 0), Transmit::NotYet);
        }
        assert_eq!(atr.transmit(0, &rx.reversed(), 0), Transmit::Added);
        assert_eq!(atr.transmit(1, &rx.reversed(), 0), Transmit::Updated);
        assert_eq!(atr.receive(&rx, 0), Some(1), "the last sample wins");
        assert_eq!(atr.transmit(8, &rx.reversed(), 0), Transmit::Off, "there is no ring 8");
    }

    #[test]
    fn a_syn_teaches_at_once_and_a_fin_never() {
        let (mut atr, rx) = (atr(), flow([10, 0, 0, 5], 40000, 80));
        let tx = rx.reversed();
        let fin = with(tx, FlowKey::FIN | FlowKey::ACK);
        assert_eq!(atr.transmit(1, &with(tx, FlowKey::SYN | FlowKey::ACK), 0), Transmit::Added);
        for _ in 0..100 {
            assert_eq!(atr.transmit(1, &fin, 0), Transmit::Fin);
        }
        assert_eq!(atr.transmit(1, &with(tx, FlowKey::SYN | FlowKey::FIN), 0), Transmit::Fin);
        assert_eq!(atr.transmit(1, &tx, 0), Transmit::Updated, "the FINs were counted");
        assert_eq!(atr.stats().removes, 0);
    }

    #[test]
    fn rate_zero_is_off_and_so_are_the_drivers_conditions() {
        let mut atr = Atr82599::new(1, 0, Pballoc::K64).unwrap();
        let syn = with(flow([10, 0, 0, 5], 1, 2), FlowKey::SYN);
        assert_eq!(atr.transmit(0, &syn, 0), Transmit::Off);
        assert_eq!(Atr82599::new(0, 20, Pballoc::K64).unwrap_err(), Error::Rings(0));
        assert_eq!(Atr82599::new(64, 20, Pballoc::K64).unwrap_err(), Error::Rings(64));
        let on = Conditions { rss_queues: 16, sample_rate: 20, ..Conditions::default() };
        assert_eq!(on.off(), None);
        for off in [
            Conditions { ntuple: true, ..on },
            Conditions { hw_tc: true, ..on },
            Conditions { virtualised: true, ..on },
            Conditions { traffic_classes: 2, ..on },
            Conditions { rss_queues: 1, ..on },
            Conditions { sample_rate: 0, ..on },
        ] {
            assert!(off.off().is_some(), "{off:?}");
        }
    }

    #[test]
    fn near_full_stops_sampling_until_the_worker_has_lost_everything() {
        let mut atr = atr().with_flush_delay(1000);
        let syn = |i: u16| with(flow([10, 0, (i >> 8) as u8, i as u8], 1000, 80), FlowKey::SYN);
        let mut last = 0;
        while !atr.is_flushing() {
            assert_eq!(atr.transmit(0, &syn(last).reversed(), 5), Transmit::Added);
            last += 1;
        }
        assert_eq!(last, 8191 - 64);
        assert_eq!(atr.transmit(0, &syn(0).reversed(), 1004), Transmit::Off);
        assert_eq!(atr.receive(&syn(0), 1004), Some(0), "the old filters still work");
        assert_eq!(atr.receive(&syn(0), 1005), None);
        assert_eq!((atr.stats().occupancy, atr.stats().flushes), (0, 1));
        assert_eq!(atr.transmit(0, &syn(0).reversed(), 1005), Transmit::Added);
    }

    #[test]
    fn aliases_steal_and_are_counted() {
        let mut atr = atr();
        let all = [
            flow([10, 0, 0, 5], 40000, 11211),
            flow([10, 1, 0, 5], 40001, 11211),
            flow([10, 0, 0, 6], 40000, 11208),
        ];
        for (ring, rx) in all.iter().enumerate() {
            let expect = if ring == 0 { Transmit::Added } else { Transmit::Stolen };
            assert_eq!(atr.transmit(ring as u16, &with(rx.reversed(), FlowKey::SYN), 0), expect);
        }
        for rx in &all {
            assert_eq!(atr.receive(rx, 0), Some(2), "the last sample wins for all three");
        }
        let stats = atr.stats();
        assert_eq!((stats.occupancy, stats.aliases, atr.stolen()), (1, 2, 2));
    }

    #[test]
    fn fragments_miss_and_tags_count() {
        let (mut atr, rx) = (atr(), flow([10, 0, 0, 5], 40000, 80));
        let tagged = FlowKey { vlan_tci: 100, ..rx };
        atr.transmit(2, &with(tagged.reversed(), FlowKey::SYN), 0);
        assert_eq!(atr.receive(&tagged, 0), Some(2));
        assert_eq!(atr.receive(&rx, 0), None);
        assert_eq!(atr.receive(&FlowKey { frag: 1, ..tagged }, 0), None);
        assert_eq!(atr.stats().aliases, 0);
    }
}
