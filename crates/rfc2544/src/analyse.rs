//! The receiving half of the tester. Every frame is analysed; there is no sampling.
//!
//! ```text
//!  frame ─ tag::read ─> good ─ Tracker (new? duplicate? reordered?) ─ latency, delay variation
//!                    └> corrupt, foreign, at the wrong port: counted
//! ```
//!
//! Invariant: received = good + duplicates + corrupt + foreign + misrouted + stale, always.
//! Thread-safety: used by one thread.

use flowyard_frame::Nanos;

use crate::latency::Recorder;
use crate::tag::{self, Cover, Seen};
use crate::track::{Arrival, Known, Tracker};
use crate::trial::Counts;

/// Analyses every received frame.
#[derive(Debug)]
pub struct Analyser {
    cover: Cover,
    start: Nanos,
    sources: Vec<Source>,
    /// Latencies of all good frames.
    pub latency: Recorder,
    received: u64,
    corrupt: u64,
    foreign: u64,
    ports: Vec<Option<Nanos>>,
    silence: Option<(Nanos, Nanos)>,
}

/// State about the frames of one sending port.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) tracker: Tracker,
    /// The destination of flow `f` is port `to[f % to.len()]`.
    to: Vec<u8>,
    misrouted: u64,
    last: Option<(u64, Nanos)>,
    /// Individual latencies of consecutive frames, starting with frame `.0`.
    pub(crate) kept: (u64, Vec<Option<Nanos>>),
    /// Individual latencies of tagged frames, by index.
    pub(crate) wanted: Vec<(u64, Option<Nanos>)>,
}

/// Counters that are not kept per source, as in [`Counts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Received frames of all kinds.
    pub received: u64,
    /// Test frames with wrong bits.
    pub corrupt: u64,
    /// Frames that the tester did not send, or sent in an earlier trial.
    pub foreign: u64,
    /// Undamaged test frames received at the wrong port.
    pub misrouted: u64,
}

impl Totals {
    /// Sets these counters in `counts`.
    pub(crate) const fn store(&self, counts: &mut Counts) {
        counts.received = self.received;
        counts.corrupt = self.corrupt;
        counts.foreign = self.foreign;
        counts.misrouted = self.misrouted;
    }

    /// The increase since `before`.
    pub(crate) const fn since(&self, before: &Self) -> Self {
        Self {
            received: self.received - before.received,
            corrupt: self.corrupt - before.corrupt,
            foreign: self.foreign - before.foreign,
            misrouted: self.misrouted - before.misrouted,
        }
    }

    /// Adds `times` times `other`.
    pub(crate) const fn add(&mut self, other: &Self, times: u64) {
        self.received += other.received * times;
        self.corrupt += other.corrupt * times;
        self.foreign += other.foreign * times;
        self.misrouted += other.misrouted * times;
    }
}

/// How much state the analyser keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Flows per source.
    pub flows: u16,
    /// The number of frames by which a frame may be late, see [`Tracker::new`].
    pub window: usize,
}

impl Analyser {
    /// An analyser for sources that send to `routes`: for each source, the destination ports of its
    /// flows in rotation.
    #[must_use]
    pub fn new(routes: &[Vec<u8>], cover: Cover, memory: Memory, start: Nanos) -> Self {
        let flows = usize::from(memory.flows.max(1));
        // One megabyte of records per source, shared by its flows.
        let records = (65_536 / flows).clamp(16, memory.window.max(16));
        let source = |to: &Vec<u8>| Source {
            tracker: Tracker::new(flows, memory.window, records),
            to: to.clone(),
            misrouted: 0,
            last: None,
            kept: (0, Vec::new()),
            wanted: Vec::new(),
        };
        let ports = routes.iter().flatten().max().map_or(0, |port| usize::from(*port) + 1);
        Self {
            cover,
            start,
            sources: routes.iter().map(source).collect(),
            latency: Recorder::new(),
            received: 0,
            corrupt: 0,
            foreign: 0,
            ports: vec![None; ports],
            silence: None,
        }
    }

    /// Sets the start of the trial to `start`, in place of the time given to `new`.
    pub(crate) const fn begin(&mut self, start: Nanos) {
        self.start = start;
    }

    /// Analyses `frame`, received at `port` at time `at`.
    pub fn see(&mut self, at: Nanos, port: u8, frame: &[u8]) {
        self.received += 1;
        let tag = match tag::read(frame, self.cover) {
            Seen::Good(tag) => tag,
            Seen::Corrupt => return self.corrupt += 1,
            Seen::Foreign => return self.foreign += 1,
        };
        // Sent before this trial started: a frame of an earlier trial, delayed in a queue.
        if tag::age(tag.sent, at) > at.saturating_sub(self.start) {
            return self.foreign += 1;
        }
        let Some(source) = self.sources.get_mut(usize::from(tag.source)) else {
            return self.foreign += 1;
        };
        let to = source.to.get(usize::from(tag.flow) % source.to.len().max(1));
        if to != Some(&port) {
            return source.misrouted += 1;
        }
        let index = source.tracker.widen(tag.index);
        if !matches!(source.tracker.see(index, tag.flow), Arrival::New { .. }) {
            return;
        }
        let latency = tag::age(tag.sent, at);
        self.latency.record(latency, 1);
        if let Some((before, was)) = source.last
            && index == before + 1
        {
            self.latency.vary(latency as i64 - was as i64, 1);
        }
        source.last = Some((index, latency));
        source.keep(index, latency);
        let last = self.ports.get_mut(usize::from(port));
        if let Some(before) = last.and_then(|last| last.replace(at)) {
            let longest = self.silence.map_or(0, |(from, to)| to - from);
            if at - before > longest {
                self.silence = Some((before - self.start, at - self.start));
            }
        }
    }

    /// The state of each source.
    pub(crate) fn sources(&mut self) -> &mut [Source] {
        &mut self.sources
    }

    /// Whether any frame is already counted as lost, so that a later arrival could not change it.
    pub(crate) fn has_lost(&self) -> bool {
        self.sources.iter().any(|source| source.tracker.known.lost > 0)
    }

    /// The counters of each source so far. Before the end of the trial not all losses are known.
    pub(crate) fn known(&self) -> Vec<Known> {
        self.sources.iter().map(|source| source.tracker.known).collect()
    }

    /// Whether, for each source, all frames before the index in `tags` are counted as good or lost.
    pub(crate) fn has_decided(&self, tags: &[u64]) -> bool {
        self.sources.iter().zip(tags).all(|(source, tag)| source.tracker.decided() >= *tag)
    }

    /// The longest time without a received frame at a port, relative to the start.
    #[must_use]
    pub const fn silence(&self) -> Option<(Nanos, Nanos)> {
        self.silence
    }

    /// Counters that are not kept per source.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let misrouted = self.sources.iter().map(|source| source.misrouted).sum();
        let Self { received, corrupt, foreign, .. } = *self;
        Totals { received, corrupt, foreign, misrouted }
    }
}

impl Source {
    /// The latency of frame `index`, if it is a tagged frame and was received.
    pub(crate) fn latency_of(&self, index: u64) -> Option<Nanos> {
        let at = self.wanted.binary_search_by_key(&index, |(wanted, _)| *wanted).ok()?;
        self.wanted[at].1
    }

    fn keep(&mut self, index: u64, latency: Nanos) {
        if let Ok(at) = self.wanted.binary_search_by_key(&index, |(wanted, _)| *wanted) {
            self.wanted[at].1 = Some(latency);
        }
        let place = index.checked_sub(self.kept.0).map(|at| at as usize);
        if let Some(slot) = place.and_then(|at| self.kept.1.get_mut(at)) {
            *slot = Some(latency);
        }
    }
}

/// The counters of one source; `intended` and `sent` come from the sender.
#[must_use]
pub(crate) const fn counts(known: &Known, intended: u64, sent: u64) -> Counts {
    Counts {
        intended,
        sent,
        received: known.good + known.duplicates + known.stale,
        good: known.good,
        duplicates: known.duplicates,
        corrupt: 0,
        foreign: 0,
        misrouted: 0,
        stale: known.stale,
        reordered: known.reordered,
        max_extent: known.max_extent,
        extent_beyond: known.extent_beyond,
        gaps: known.gaps,
        tester_tx_drops: 0,
        tester_rx_drops: 0,
    }
}
