//! Elephants: the learner of `flowyard_flow::learn::elephant`, run by the cores of an engine.
//!
//! ```text
//!  core 0   Sampling ──Report──┐ each window                     ┌──Edit, Entry──> tables of every
//!  core 1   Sampling ──Report──┼──> Decider (on one core) ───────┤                 core that receives
//!  core 2   Sampling ──Report──┘    waits for all, or for half   └──> Decisions: every decision, with
//!                                   a window                           its figures
//! ```
//!
//! A promoted flow has an exact entry that sends it to the ordered queue named in `[elephants]`. The
//! table with this entry comes after the user's tables and before what other learners wrote. Frames in
//! flight stay where they are: settle delays the move until they have left, and the hold stage lets a
//! flow move that never pauses. A demotion deletes the entry; the flow returns in the same way.
//!
//! Reports, edits and changed entries of the indirection table travel by mail. A core whose report is lost
//! or late is left out of one decision: it counts as fully loaded. An edit that finds a mailbox full is
//! offered again at every tick.
//!
//! Thread-safety: each sampler belongs to its core, and the detector to one core. The log has a lock, which
//! its one writer takes at the end of a window, and readers take.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_flow::learn::elephant::{Decision, Seen};
use flowyard_frame::Nanos;

use crate::stages::Stages;

mod decider;
mod sampling;

pub(crate) use decider::Decider;
pub(crate) use sampling::Sampling;

/// The report of one core at the end of a window.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    core: u16,
    /// The number of the window that ended.
    window: u64,
    /// The share of the window in which the core made progress.
    busy: f64,
    /// Frames that wait in the queue that only this core serves.
    queue_len: u64,
    /// Frames that it could not enqueue and dropped, by queue.
    drops: Vec<u64>,
    seen: Seen,
    /// Cost of the stages in this window.
    stages: Stages,
}

/// Number of decisions kept; the oldest are removed first.
const KEPT: usize = 1024;

/// The log of decisions, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Decisions(Arc<Mutex<VecDeque<Decision>>>);

impl Decisions {
    /// The last decisions, at most 1,024, the oldest first.
    #[must_use]
    pub fn last(&self) -> Vec<Decision> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn add(&self, decision: Decision) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(decision);
    }
}

/// The number of the window that `now` falls into.
const fn window_of(now: Nanos, length: Nanos) -> u64 {
    now / length
}

#[cfg(test)]
mod tests;
