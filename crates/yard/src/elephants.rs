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
//! Where adapters mark frames, they are also asked to mark those of promoted flows.
//!
//! Reports, edits and changed entries of the indirection table travel by mail. A core whose report is lost
//! or late is left out of one decision: it counts as fully loaded. An edit that finds a mailbox full is
//! offered again at every tick.
//!
//! Thread-safety: each sampler belongs to its core, and the detector to one core. The log has a lock, which
//! its one writer takes at the end of a window, and readers take.

mod decider;
mod marks;
pub(crate) mod report;
mod sampling;

pub(crate) use decider::Decider;
pub use report::{Decisions, Report};
pub(crate) use sampling::Sampling;

#[cfg(test)]
mod tests;
