//! Learners: they observe which cores work on which flows, and teach the tables.
//!
//! A learner only emits edits. The owner of the table applies them between batches, and settle keeps
//! the moves that they cause in order.

use flowyard_frame::{Batch, Edit, Lanes, Nanos};

pub mod atr;
pub mod cache;
pub mod elephant;
pub mod rebalance;
pub mod rfs;
mod store;

pub use atr::Atr;
pub use cache::Cache;
pub use rebalance::Rebalance;
pub use rfs::Rfs;

/// Observes batches and emits edits.
pub trait Learn {
    /// Core `core` handled these lanes of `batch` at `now`: it transmitted them, worked on them or
    /// looked them up, depending on what this learner learns from. New edits are added to `edits`.
    fn observe(
        &mut self,
        core: u16,
        batch: &Batch,
        lanes: Lanes,
        now: Nanos,
        edits: &mut Vec<Edit>,
    );

    /// The tables that the learner learns from have changed, so everything that it learnt is
    /// invalid. Adds the edits that remove it; the caller applies them before the next lookup.
    fn reset(&mut self, _edits: &mut Vec<Edit>) {}
}

#[cfg(test)]
mod tests;
