//! Learners: they watch what cores do and write it into tables.
//!
//! A learner only emits edits; whoever owns the table applies them between batches, and settle
//! keeps the moves they cause in order.

use flowyard_frame::{Batch, Edit, Lanes, Nanos};

pub mod atr;
pub mod elephant;

pub use atr::Atr;

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
}
