//! Work: what the yard is for. It sees each frame once, on one core, and says where it goes.
//!
//! The kinds here are `forward` and `burn`; others come by implementing [`Work`].
//!
//! Thread-safety: each core has a work of its own; what they share is theirs to arrange.

use flowyard_frame::{Batch, Lanes, Nanos, To};

use crate::pool::Pool;

mod burn;
mod forward;

pub use burn::Burn;
pub use forward::Forward;

/// What is done with frames.
pub trait Work: Send {
    /// Does the work on every lane whose action is a queue (a port is a table's answer, which
    /// stands; see [`todo()`]): changes bytes as it likes, and sets each lane's action to a port or a
    /// drop (with a [`crate::DropReason`]'s code as counter). Returns the time from
    /// which on the batch is done: `now`, unless the clock is a virtual one and the work takes
    /// time under it.
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos;
}

/// The lanes that want work: those whose action is a queue.
#[must_use]
#[inline]
pub fn todo(batch: &Batch) -> Lanes {
    let wants = |&lane: &usize| matches!(batch.actions[lane].to, To::Queue(_));
    Lanes(batch.lanes().filter(wants).fold(0, |bits, lane| bits | 1 << lane))
}
