//! Arrivals: what a work notes about frames in the order in which they enter an ordered queue.
//!
//! ```text
//!  core 0 ── look ──┐                                    ┌─> core 0: works on frames 0..31
//!  core 1 ── look ──┴─> [ lock: number, enqueue ] ─queue─┴─> core 1: works on frames 32..63
//! ```
//!
//! Cores that share an ordered queue work on its frames in any order, and its frames leave in the order in which they
//! entered. Numbers that must rise from frame to frame as they leave, such as those of ESP, are therefore taken where
//! frames enter (`docs/decisions/0069-sequence-numbers-of-one-tunnel.md`).
//!
//! Invariant: frames enter the queue in the order in which they were numbered, whichever cores receive them.
//! Thread-safety: any core.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_frame::{Batch, Lanes};
use flowyard_pool::Pool;

/// What a work notes about frames that enter an ordered queue of several consumers.
pub trait Arrivals: Send + Sync {
    /// `lanes` are about to enter. Frames that found the queue full are looked at again.
    fn look(&self, pool: &Pool, batch: &Batch, lanes: Lanes);

    /// `lanes` enter now, in this order. No other core numbers frames of the queue meanwhile.
    fn number(&self, pool: &Pool, batch: &Batch, lanes: Lanes);

    /// `lanes`, which were numbered last, found the queue full. No other core has numbered frames of the queue since.
    fn refused(&self, pool: &Pool, batch: &Batch, lanes: Lanes);
}

/// The arrivals of one queue.
pub struct Numbered {
    arrivals: Arc<dyn Arrivals>,
    lock: Mutex<()>,
}

impl fmt::Debug for Numbered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbered").finish_non_exhaustive()
    }
}

impl Numbered {
    /// The arrivals of one queue.
    #[must_use]
    pub fn new(arrivals: Arc<dyn Arrivals>) -> Self {
        Self { arrivals, lock: Mutex::new(()) }
    }

    /// Numbers `lanes` and calls `enqueue`, which returns those that the queue refused.
    pub fn enter(
        &self,
        pool: &Pool,
        batch: &mut Batch,
        lanes: Lanes,
        enqueue: impl FnOnce(&mut Batch) -> Lanes,
    ) -> Lanes {
        self.arrivals.look(pool, batch, lanes);
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.arrivals.number(pool, batch, lanes);
        let refused = enqueue(batch);
        if !refused.is_empty() {
            self.arrivals.refused(pool, batch, refused);
        }
        refused
    }
}
