//! Cycle detection: finds that the state of a trial recurs, and counts one cycle by itself.
//!
//! ```text
//!  search ── key seen before, C rows ago ──> settle ── window passed ──> count ── C rows ──> skip
//!            (traffic, phase, lines, device)   the key must recur every C rows
//! ```
//!
//! The settle stage is needed because the tracker counts a frame as lost only when it leaves the
//! window; before that, a cycle's losses are not yet those of the steady state.

use std::collections::HashMap;

use flowyard_frame::Nanos;

use crate::analyse::{Analyser, Source, Totals};
use crate::latency::Recorder;
use crate::track::Known;
use crate::trial::{Shape, Trial};

/// The maximum number of keys kept; a device that needs more has no short cycle.
const KEYS: usize = 1 << 15;

/// The longest cycle, in rows.
const LONGEST: u64 = 1 << 18;

pub(super) struct Cycle {
    stage: Stage,
    window: u64,
}

enum Stage {
    Closed,
    Search(HashMap<Vec<u64>, u64>),
    /// The key must recur every `rows` rows; from the tags in `tags` on, the trial is in the
    /// steady state.
    Settle {
        key: Vec<u64>,
        rows: u64,
        next: u64,
        tags: Vec<u64>,
    },
    Count(Box<Count>),
}

/// The counters at the start of the counted cycle.
struct Count {
    key: Vec<u64>,
    rows: u64,
    from: u64,
    tags: Vec<u64>,
    known: Vec<Known>,
    totals: Totals,
    latency: Recorder,
}

/// Cycles that are not simulated: the counters of one, and their number.
pub(super) struct Skip {
    pub(super) times: u64,
    pub(super) rows: u64,
    /// For each port: the first tag after the counted cycle, and the number of tags per cycle.
    at: Vec<(u64, u64)>,
    known: Vec<Known>,
    pub(super) totals: Totals,
    pub(super) latency: Recorder,
}

impl Cycle {
    pub(super) fn new(may: bool, trial: &Trial, window: usize) -> Self {
        let steady = matches!(trial.shape, Shape::Even | Shape::Bursts { .. });
        let stage = if may && steady { Stage::Search(HashMap::new()) } else { Stage::Closed };
        Self { stage, window: window as u64 }
    }

    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Closed)
    }

    /// Whether `look` has something to do at `row`.
    pub(super) fn wants(&self, row: u64) -> bool {
        match &self.stage {
            Stage::Closed => false,
            Stage::Search(_) => true,
            Stage::Settle { next, .. } => row >= *next,
            Stage::Count(count) => row >= count.from + count.rows,
        }
    }

    pub(super) fn close(&mut self) {
        self.stage = Stage::Closed;
    }

    /// Called when all ports are about to send `row` of `rows` with tags `tags`; `key` is the
    /// complete state. Returns the cycles to skip, once one has been counted.
    pub(super) fn look(
        &mut self,
        key: Vec<u64>,
        row: u64,
        rows: u64,
        tags: &[u64],
        analyser: &mut Analyser,
    ) -> Option<Skip> {
        match &mut self.stage {
            Stage::Closed => {}
            Stage::Search(seen) => {
                if let Some(&before) = seen.get(&key) {
                    let length = row - before;
                    // Skipping is not worthwhile or not possible: simulate to the end.
                    self.stage = if length > LONGEST || row + self.window + 3 * length >= rows {
                        Stage::Closed
                    } else {
                        Stage::Settle { key, rows: length, next: row + length, tags: tags.to_vec() }
                    };
                } else if seen.len() == KEYS {
                    self.stage = Stage::Closed;
                } else {
                    seen.insert(key, row);
                }
            }
            Stage::Settle { key: wanted, rows: length, next, tags: steady } => {
                if row < *next {
                    return None;
                }
                if key != *wanted || row > *next {
                    self.stage = Stage::Closed; // the exported state is not complete
                } else if !analyser.has_decided(steady) {
                    *next += *length;
                } else {
                    self.stage = Stage::Count(Box::new(Count {
                        key,
                        rows: *length,
                        from: row,
                        tags: tags.to_vec(),
                        known: analyser.known(),
                        totals: analyser.totals(),
                        latency: std::mem::take(&mut analyser.latency),
                    }));
                    for (source, tag) in analyser.sources().iter_mut().zip(tags) {
                        let keeps = !source.wanted.is_empty();
                        let room = if keeps { LONGEST as usize } else { 0 };
                        source.kept = (*tag, vec![None; room]);
                    }
                }
            }
            Stage::Count(count) => {
                let end = count.from + count.rows;
                if row < end {
                    return None;
                }
                let is_same = key == count.key && row == end;
                return self.counted(is_same, row, rows, tags, analyser);
            }
        }
        None
    }

    fn counted(
        &mut self,
        is_same: bool,
        row: u64,
        end: u64,
        tags: &[u64],
        analyser: &mut Analyser,
    ) -> Option<Skip> {
        let stage = std::mem::replace(&mut self.stage, Stage::Closed);
        let Stage::Count(count) = stage else { return None };
        let Count { rows, tags: before, known, totals, mut latency, .. } = *count;
        // The counted cycle is also part of the trial.
        let cycle = std::mem::take(&mut analyser.latency);
        latency.add(&cycle, 1);
        analyser.latency = latency;
        let times = (end - row) / rows;
        if !is_same || times == 0 {
            return None;
        }
        let at: Vec<_> =
            tags.iter().zip(&before).map(|(tag, before)| (*tag, tag - before)).collect();
        let skip = Skip {
            times,
            rows,
            known: analyser.known().iter().zip(&known).map(|(now, was)| less(now, was)).collect(),
            totals: analyser.totals().since(&totals),
            latency: cycle,
            at,
        };
        for (port, source) in analyser.sources().iter_mut().enumerate() {
            let ((at, cycle), skipped) = (skip.at[port], skip.tags(port));
            source.kept.1.truncate(cycle as usize);
            source.wanted.retain(|(index, _)| !(at..at + skipped).contains(index));
            for (index, _) in &mut source.wanted {
                *index -= if *index >= at { skipped } else { 0 };
            }
        }
        Some(skip)
    }
}

impl Skip {
    /// The number of tags skipped at a port.
    pub(super) fn tags(&self, port: usize) -> u64 {
        self.at[port].1 * self.times
    }

    /// The counters of all frames, given the counters `known` of the simulated ones.
    pub(super) fn multiply(&self, port: usize, known: &Known) -> Known {
        let (cycle, times) = (&self.known[port], self.times);
        let (at, skipped) = (self.at[port].0, self.tags(port));
        // If a cycle loses frames, so does the last skipped one.
        let shift =
            |index: u64| if index >= at || cycle.lost > 0 { index + skipped } else { index };
        let first = |index: u64| if index >= at { index + skipped } else { index };
        Known {
            good: known.good + times * cycle.good,
            duplicates: known.duplicates + times * cycle.duplicates,
            stale: known.stale + times * cycle.stale,
            reordered: known.reordered + times * cycle.reordered,
            max_extent: known.max_extent,
            extent_beyond: known.extent_beyond + times * cycle.extent_beyond,
            lost: known.lost + times * cycle.lost,
            gaps: known.gaps + times * cycle.gaps,
            first_lost: known.first_lost.map(first),
            last_lost: known.last_lost.map(shift),
        }
    }

    /// The latency of frame `index` of the trial.
    pub(super) fn latency(&self, port: usize, index: u64, source: &Source) -> Option<Nanos> {
        let ((at, cycle), skipped) = (self.at[port], self.tags(port));
        if index < at {
            source.latency_of(index)
        } else if index >= at + skipped {
            source.latency_of(index - skipped)
        } else {
            source.kept.1.get(((index - at) % cycle.max(1)) as usize).copied().flatten()
        }
    }
}

fn less(now: &Known, was: &Known) -> Known {
    Known {
        good: now.good - was.good,
        duplicates: now.duplicates - was.duplicates,
        stale: now.stale - was.stale,
        reordered: now.reordered - was.reordered,
        extent_beyond: now.extent_beyond - was.extent_beyond,
        lost: now.lost - was.lost,
        gaps: now.gaps - was.gaps,
        ..*now
    }
}
