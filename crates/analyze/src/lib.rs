//! One pass over a capture, all policies side by side: which core gets each frame, and why.
//!
//! ```text
//!  Burst ─> parse ─> flow table ─> host model ─> RSS hash ─┬─> policy 1 ─> cores ─> tally
//!           headers   who, side     consumer's  once for   ├─> policy 2 ─> cores ─> tally
//!                                   core        all        └─> ...
//! ```
//!
//! Everything that the policies share is worked out once per frame; each policy then decides on
//! its own (`policy`), its own model of the cores says when the frame would be done
//! (`delay`), and its own tally keeps what became of it (`tally`).
//!
//! Invariants: every received frame lands exactly once under every policy (a drop is a landing
//! too); equal setups and captures give equal results; memory grows with flows, not with frames.
//! Thread-safety: an [`Analyzer`] is used by one thread.
#![forbid(unsafe_code)]

mod analyzer;
mod clock;
mod delay;
mod explain;
mod flows;
mod host;
mod landing;
mod packet;
mod policy;
mod setup;
mod summary;
mod tally;
mod trails;

pub use analyzer::{Analyzer, NoPacket, Target};
pub use delay::Delays;
pub use explain::*;
pub use host::{Consumers, Local};
pub use setup::{BadSetup, RuleFile, Setup, Spec};
pub use summary::*;

/// A fast mix of 64 bits (the finaliser of SplitMix64), for tables and seeded choices.
#[inline]
pub(crate) const fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
