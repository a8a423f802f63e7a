//! Elephants: the learner of `flowyard_flow::learn::elephant`, among the cores of a yard.
//!
//! ```text
//!  core 0   Sampling ──Report──┐ each window                     ┌──Edit, Entry──> tables of every
//!  core 1   Sampling ──Report──┼──> Decider (on one core) ───────┤                 core that receives
//!  core 2   Sampling ──Report──┘    waits for all, or for half   └──> Decisions: every decision, with
//!                                   a window                           its figures
//! ```
//!
//! A promoted flow has an exact entry that sends it to the ordered queue named in `[elephants]`; the
//! table that holds it stands behind the user's and in front of what other learners wrote. Its
//! frames in flight stay where they are: settle holds the move until they are out, and the hold
//! stage makes that happen if the flow never pauses. A demotion deletes the entry, and the same
//! happens the other way.
//!
//! Reports, edits and moved entries travel by mail. A report that is lost, or late, leaves its core
//! out of one decision: such a core has nothing to spare. An edit that finds a mailbox full is
//! offered again at every tick.
//!
//! Thread-safety: sampling and deciding are each one core's. The log is under a lock, which is
//! taken at the end of a window by its one writer, and by whoever reads it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_flow::learn::elephant::{Decision, Seen};
use flowyard_frame::Nanos;

use crate::stages::Stages;

mod decider;
mod sampling;

pub(crate) use decider::Decider;
pub(crate) use sampling::Sampling;

/// What one core has to say at the end of a window.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    core: u16,
    /// The number of the window that ended.
    window: u64,
    /// The share of the window that the core had something to do.
    busy: f64,
    /// Frames that wait in its own queue.
    queue_len: u64,
    /// Frames that it could not enqueue and dropped, by queue.
    drops: Vec<u64>,
    seen: Seen,
    /// What stages cost in this window.
    stages: Stages,
}

/// Decisions kept for whoever asks; the oldest go first.
const KEPT: usize = 1024;

/// What was decided, oldest first.
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
