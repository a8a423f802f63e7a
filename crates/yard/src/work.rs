//! Work: what the yard is for. It sees each frame once, on one core, and says where it goes.
//!
//! The kinds here are `forward` and `burn`; others come by implementing [`Work`].
//!
//! Thread-safety: each core has a work of its own; what they share is theirs to arrange.

use flowyard_frame::{Batch, Nanos};

use crate::pool::Pool;

mod burn;
mod forward;

pub use burn::Burn;
pub use forward::Forward;

/// What is done with frames.
pub trait Work: Send {
    /// Does the work on every lane: changes bytes as it likes, and sets each lane's action to a
    /// port or a drop (with a [`crate::DropReason`]'s code as counter). Returns the time from
    /// which on the batch is done: `now`, unless the clock is a virtual one and the work takes
    /// time under it.
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos;
}
