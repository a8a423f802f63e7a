//! flowyard's own policy: an exact table that an ATR learner fills, then the indirection table, and
//! `settle` after both. The stages are those of the engine, from `flowyard-flow`.
//!
//! ```text
//!  batch ─> steer (exact, spread) ─> settle ─> cores
//!                  ^                   heads and tails of the modelled cores
//!                  └── edits, between batches ── ATR learner <── transmitted frames
//! ```
//!
//! A live engine receives frames in batches, but a capture only has time stamps. Frames that arrive
//! within [`BATCH_SPAN`] of the first one form a batch, as if one poll had received them.

use flowyard_adapter::{FilterStats, Rss};
use flowyard_flow::learn::atr::{Atr, Settings};
use flowyard_flow::table::{Exact, Spread};
use flowyard_flow::toeplitz::{HashTypes, Toeplitz};
use flowyard_flow::{Learn, Settle, Steer, Tails};
use flowyard_frame::{Batch, Edit, FlowKey, Frame, Lanes, Nanos, To};

use crate::delay::Cores;
use crate::landing::{Landing, Stage};
use crate::packet::Packet;
use crate::setup::Setup;
use crate::tally::Tally;
use crate::trails::Trails;

/// Longest time between the first and the last frame of a batch.
const BATCH_SPAN: Nanos = 10_000;
/// Number of entries in the exact table, equal to the number of filters of the XL710.
const ENTRIES: usize = 8192;
/// Number of slots of the settle stage, which is well above the number of flows that are active at
/// the same time.
const SLOTS: usize = 1 << 16;

/// The stages of the engine.
pub(crate) struct Yard {
    steer: Steer,
    settle: Settle,
    learner: Atr,
    /// Computes the hash if the adapter does not.
    toeplitz: Option<Toeplitz>,
    types: HashTypes,
    batch: Batch,
    edits: Vec<Edit>,
    stats: FilterStats,
    queues: u16,
}

impl Yard {
    pub(crate) fn new(setup: &Setup, rss: Option<&Rss>) -> Self {
        let size = rss.map_or(128, |rss| rss.reta().len()).max(usize::from(setup.cores));
        let spread = Spread::new(size.next_power_of_two(), setup.cores.into())
            .expect("a power of two of entries, at least one core");
        let exact = Exact::new(ENTRIES, &FlowKey::FLOW, setup.seed);
        let settings =
            Settings { entries: ENTRIES, sample_every: setup.sample_rate, ..Settings::default() };
        let toeplitz = match rss {
            Some(_) => None,
            None => Toeplitz::new(&setup.rss.key).ok(),
        };
        Self {
            steer: Steer::new(vec![Box::new(exact)], spread),
            settle: Settle::new(SLOTS, setup.seed),
            learner: Atr::new(setup.cores, settings, setup.seed),
            toeplitz,
            types: HashTypes::default(),
            batch: Batch::default(),
            edits: Vec::new(),
            stats: FilterStats { capacity: ENTRIES as u32, ..FilterStats::default() },
            queues: setup.queues,
        }
    }

    /// Steers a burst as one or more batches.
    pub(crate) fn burst(
        &mut self,
        packets: &[Packet],
        cores: &mut Cores,
        tally: &mut Tally,
        trails: &mut Trails,
    ) {
        let mut rest = packets;
        while !rest.is_empty() {
            let batch;
            (batch, rest) = rest.split_at(batch_len(rest));
            self.receive(batch, cores, tally, trails);
            self.learn(batch);
        }
    }

    /// Steers, settles and enqueues the received frames of a batch.
    fn receive(
        &mut self,
        packets: &[Packet],
        cores: &mut Cores,
        tally: &mut Tally,
        trails: &mut Trails,
    ) {
        let received = packets.iter().filter(|packet| packet.received);
        self.fill(received.clone());
        let answered = self.steer.walk(&mut self.batch);
        let wanted = self.batch.actions;
        let Some(first) = received.clone().next() else { return };
        let places = Places { cores, now: first.now };
        let lanes = self.batch.lanes();
        self.settle.settle(&mut self.batch, lanes, &places);
        for ((lane, packet), wanted) in lanes.zip(received).zip(wanted) {
            let to = self.batch.actions[lane].to;
            let stage = match (to == wanted.to, answered.has(lane), packet.key.is_ip()) {
                (false, _, _) => Stage::Settling,
                (true, true, _) => Stage::Filter,
                (true, false, true) => Stage::Rss,
                (true, false, false) => Stage::NoHash,
            };
            let core = core_of(to);
            let done = cores.take(core, packet.now);
            let landing = Landing { queue: core % self.queues, core, stage };
            tally.land(packet, landing, done, trails);
        }
        self.settle.enqueued(&Places { cores, now: first.now });
        self.batch.drain().for_each(drop);
    }

    /// Puts frames into the batch, with keys and hashes.
    fn fill<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>) {
        for packet in packets {
            let hash = match &self.toeplitz {
                Some(toeplitz) => toeplitz.hash_flow(&packet.key, &self.types),
                None => packet.hash.unwrap_or(0),
            };
            let mut frame = Frame::unbacked(0);
            frame.hash = hash;
            if self.batch.push(frame, packet.key).is_err() {
                break; // does not happen: a burst is no longer than a batch
            }
        }
    }

    /// Learns from the transmitted frames of a batch. The edits take effect before the next batch.
    fn learn(&mut self, packets: &[Packet]) {
        for packet in packets.iter().filter(|packet| !packet.received) {
            if let Some((_, core)) = packet.flow {
                self.learner.transmitted(core, &packet.key, packet.now, &mut self.edits);
            }
        }
        if let Some(last) = packets.last() {
            // An empty observation, which advances the learner's clock hand with every batch.
            self.learner.observe(0, &self.batch, Lanes::NONE, last.now, &mut self.edits);
        }
        self.apply();
    }

    fn apply(&mut self) {
        if self.edits.is_empty() {
            return;
        }
        let known = |learner: &Atr| learner.len() as u32;
        let mut refused = Vec::new();
        if let Some(table) = self.steer.table(0) {
            table.apply(&self.edits, &mut refused);
        }
        let puts = self.edits.iter().filter(|edit| matches!(edit, Edit::Put(..))).count() as u64;
        let dels = self.edits.len() as u64 - puts;
        // New entries: those that exist now, plus those deleted, minus those that existed before.
        let added = u64::from(known(&self.learner)) + dels - u64::from(self.stats.occupancy);
        self.stats.adds += added;
        self.stats.updates += puts - added.min(puts);
        self.stats.removes += dels;
        self.stats.failed_adds += refused.len() as u64;
        self.stats.occupancy = known(&self.learner);
        self.edits.clear();
    }

    pub(crate) fn stats(&self) -> FilterStats {
        let hits = self.steer.hits();
        FilterStats { hits: hits[0], misses: hits[1..].iter().sum(), ..self.stats }
    }

    /// Number of receive queues; core c has queue c modulo this number.
    pub(crate) const fn queues(&self) -> u16 {
        self.queues
    }

    /// Where a frame would go now, without a change of state.
    pub(crate) fn peek(&mut self, packet: &Packet, cores: &Cores) -> Peek {
        self.fill(std::iter::once(packet));
        let learned = self.steer.walk(&mut self.batch).has(0);
        let wanted = core_of(self.batch.actions[0].to);
        let lanes = self.batch.lanes();
        self.settle.clone().settle(&mut self.batch, lanes, &Places { cores, now: packet.now });
        let core = core_of(self.batch.actions[0].to);
        self.batch.drain().for_each(drop);
        Peek { wanted, core, learned }
    }
}

/// The decision on a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peek {
    /// The core that the tables select.
    pub(crate) wanted: u16,
    /// The core that the frame goes to. It is another one while packets of the flow wait there.
    pub(crate) core: u16,
    /// Whether a learned entry selected the core, and not the indirection table.
    pub(crate) learned: bool,
}

/// The number of frames at the start of `packets` that form a batch.
fn batch_len(packets: &[Packet]) -> usize {
    let first = packets.first().map_or(0, |packet| packet.now);
    packets.partition_point(|packet| packet.now - first <= BATCH_SPAN)
}

/// The core of a queue: queue n belongs to core n.
fn core_of(to: To) -> u16 {
    match to {
        To::Queue(queue) => queue,
        _ => 0,
    }
}

/// The modelled cores at one moment, as `settle` uses them.
struct Places<'a> {
    cores: &'a Cores,
    now: Nanos,
}

impl Tails for Places<'_> {
    fn tail(&self, home: To) -> u64 {
        self.cores.tail(core_of(home))
    }

    fn head(&self, home: To) -> u64 {
        self.cores.head(core_of(home), self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_frames_within_its_span_of_the_first_one() {
        let at = |now| Packet::new(FlowKey::ZERO, now, 60);
        // Each frame is within the span of the one before it, but not of the first.
        let trickle: Vec<_> = (0..32).map(|n| at(n * BATCH_SPAN * 3 / 4)).collect();
        assert_eq!(batch_len(&trickle), 2);
        assert_eq!(batch_len(&[at(7), at(7), at(7 + BATCH_SPAN), at(8 + BATCH_SPAN)]), 3);
        assert_eq!(batch_len(&[at(Nanos::MAX)]), 1);
    }
}
