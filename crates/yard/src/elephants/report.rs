//! The reports of the cores, and the log of decisions.
//!
//! Thread-safety: a report is a plain value; the log has a lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_flow::learn::elephant::{Decision, Seen};
use flowyard_frame::Nanos;

use crate::stages::Stages;

/// The report of one core at the end of a window.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    pub(super) core: u16,
    /// The number of the window that ended.
    pub(super) window: u64,
    /// The share of the window in which the core made progress.
    pub(super) busy: f64,
    /// Frames that wait in the queue that only this core serves.
    pub(super) queue_len: u64,
    /// Frames that it could not enqueue and dropped, by queue.
    pub(super) drops: Vec<u64>,
    pub(super) seen: Seen,
    /// Cost of the stages in this window.
    pub(super) stages: Stages,
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

    pub(super) fn add(&self, decision: Decision) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(decision);
    }
}

/// The number of the window that `now` falls into.
pub(super) const fn window_of(now: Nanos, length: Nanos) -> u64 {
    now / length
}
