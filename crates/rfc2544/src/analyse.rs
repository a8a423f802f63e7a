//! Analyse: the receiving half of the tester. Every frame is looked at; none is sampled.
//!
//! ```text
//!  frame ─ tag::read ─> good ─ Tracker (came? twice? late?) ─ latency, neighbour difference
//!                    └> corrupt, foreign, at the wrong port: counted
//! ```
//!
//! Invariant: received = good + duplicates + corrupt + foreign + misrouted + stale, always.
//! Thread-safety: one thread's.

use flowyard_frame::Nanos;

use crate::latency::Recorder;
use crate::tag::{self, Cover, Seen};
use crate::track::{Arrival, Known, Tracker};
use crate::trial::Counts;

/// Looks at all that comes back.
#[derive(Debug)]
pub struct Analyser {
    cover: Cover,
    start: Nanos,
    sources: Vec<Source>,
    /// Of every good frame.
    pub latency: Recorder,
    received: u64,
    corrupt: u64,
    foreign: u64,
    ports: Vec<Option<Nanos>>,
    silence: Option<(Nanos, Nanos)>,
}

/// What is known of the frames of one sending port.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) tracker: Tracker,
    /// Where flow `f` belongs: port `to[f % to.len()]`.
    to: Vec<u8>,
    misrouted: u64,
    last: Option<(u64, Nanos)>,
    /// Latencies kept one by one, of frames from `.0` on.
    pub(crate) kept: (u64, Vec<Option<Nanos>>),
    pub(crate) wanted: Vec<(u64, Option<Nanos>)>,
}

/// How much is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Flows of each source.
    pub flows: u16,
    /// Frames that a frame may be late by, see [`Tracker::new`].
    pub window: usize,
}

impl Analyser {
    /// For sources that send to `routes`: by source, the ports its flows go to in turn.
    #[must_use]
    pub fn new(routes: &[Vec<u8>], cover: Cover, memory: Memory, start: Nanos) -> Self {
        let flows = usize::from(memory.flows.max(1));
        // A megabyte of records for each source, shared by its flows.
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

    /// The trial starts at `start`, not at what was said before.
    pub(crate) const fn begin(&mut self, start: Nanos) {
        self.start = start;
    }

    /// `frame` came in by `port` at `at`.
    pub fn see(&mut self, at: Nanos, port: u8, frame: &[u8]) {
        self.received += 1;
        let tag = match tag::read(frame, self.cover) {
            Seen::Good(tag) => tag,
            Seen::Corrupt => return self.corrupt += 1,
            Seen::Foreign => return self.foreign += 1,
        };
        // Sent before this trial began: of the one before, out of some queue.
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

    /// By source.
    pub(crate) fn sources(&mut self) -> &mut [Source] {
        &mut self.sources
    }

    /// Whether a frame is lost for good: none that comes now would count.
    pub(crate) fn has_lost(&self) -> bool {
        self.sources.iter().any(|source| source.tracker.known.lost > 0)
    }

    /// What is known of each source now; before the end, not all losses are.
    pub(crate) fn known(&self) -> Vec<Known> {
        self.sources.iter().map(|source| source.tracker.known).collect()
    }

    /// Whether all frames before `tags`, by source, are known to be good or lost for good.
    pub(crate) fn has_decided(&self, tags: &[u64]) -> bool {
        self.sources.iter().zip(tags).all(|(source, tag)| source.tracker.decided() >= *tag)
    }

    /// The longest time without a frame at a port, after the start.
    #[must_use]
    pub const fn silence(&self) -> Option<(Nanos, Nanos)> {
        self.silence
    }

    /// What cannot be told by source, so far: received, corrupt, foreign, misrouted.
    #[must_use]
    pub fn strays(&self) -> [u64; 4] {
        let misrouted = self.sources.iter().map(|source| source.misrouted).sum();
        [self.received, self.corrupt, self.foreign, misrouted]
    }
}

impl Source {
    /// The latency of frame `index`, if it was wanted and came.
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

/// One source's share of the counts: `sent` and `intended` are the sender's.
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
