//! One pass over a capture that compares steering policies: which core each frame gets, and why.
//!
//! ```text
//!  Burst ─> parse ─> flow table ─> host model ─> RSS hash ─┬─> policy 1 ─> cores ─> tally
//!           headers   flow,         consumer's  the same   ├─> policy 2 ─> cores ─> tally
//!                     direction     core        for all    └─> ...
//! ```
//!
//! Everything that the policies have in common is computed once per frame. Each policy then decides
//! independently (`policy`), has its own model of the cores, which computes when the frame is done
//! (`delay`), and its own counters (`tally`).
//!
//! Invariants: every received frame is counted exactly once under every policy, also if the policy
//! drops it; equal setups and captures give equal results; memory grows with the number of flows,
//! not with the number of frames.
//! Thread-safety: an [`Analyzer`] is used by one thread.
#![forbid(unsafe_code)]

mod analyzer;
mod checksums;
mod clock;
mod delay;
mod explain;
mod flows;
mod hashed;
mod host;
mod interrupts;
mod landing;
mod over_time;
mod packet;
mod policy;
mod setup;
mod storage;
mod summary;
mod tally;
mod tenants;
mod trails;
mod verdict;

pub(crate) use flowyard_frame::rng::mix;

pub use analyzer::{Analyzer, NoPacket, Target};
pub use delay::Delays;
pub use explain::*;
pub use host::{Consumers, Local};
pub use interrupts::{InterruptSummary, Interrupting, QueueInterrupts, VectorSummary};
pub use policy::rule_engine;
pub use setup::{BadSetup, KeySource, RuleFile, Setup, Spec};
pub use storage::StorageSummary;
pub use summary::*;
