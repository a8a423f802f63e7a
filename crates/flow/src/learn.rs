//! Learners: they watch what cores do and write it into tables.
//!
//! A learner only emits edits; whoever owns the table applies them between batches, and settle
//! keeps the moves they cause in order.

use flowyard_frame::{Batch, Edit, Lanes, Nanos};

pub mod atr;
pub mod cache;
pub mod elephant;
pub mod rfs;
mod store;

pub use atr::Atr;
pub use cache::Cache;
pub use rfs::Rfs;

/// Watches batches, emits edits.
pub trait Learn {
    /// Core `core` had these lanes of `batch` in hand at `now`: transmitted them, consumed them or
    /// looked them up, whatever this learner learns from. New edits are added to `edits`.
    fn observe(
        &mut self,
        core: u16,
        batch: &Batch,
        lanes: Lanes,
        now: Nanos,
        edits: &mut Vec<Edit>,
    );

    /// The tables that it learns from have changed: what it learnt is void. Adds the edits that
    /// take it back; they are to be applied before the next lookup.
    fn reset(&mut self, _edits: &mut Vec<Edit>) {}
}
