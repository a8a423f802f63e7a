//! The data plane of an OpenFlow switch: frames in, frames and punts out.
//!
//! ```text
//!   agent ── Change 1, 2, 3 ──> Datapath::apply ──┐
//!   frames ── Datapath::front ──> a port of the yard, if the port mapping has an entry
//!   frames ── Datapath::look ──> Datapath::act, each ──> Effects: frames to send, punts, the reason
//!             parse, cache | tables | actions, groups, meters
//! ```
//!
//! The data plane has no threads, no I/O and no clock: time is an argument, and each core has its own
//! [`Datapath`].
//!
//! Invariants: no panic on any frame; in the steady state only frames to controllers allocate memory; a
//! change is in force as soon as it is applied.
#![forbid(unsafe_code)]

mod cache;
mod classify;
mod datapath;
mod effects;
mod key;
mod mapping;
mod meter;
mod packet;
mod parse;
mod pause;
mod sample;
mod set;
mod unfinished;
mod why;
mod work;
mod world;

pub use classify::{Classifier, Lookup, TUPLES};
pub use datapath::{AHEAD, Arrival, Datapath, MASK, Moved, Place, Preparation, Settings, Totals};
pub use effects::{BUCKETS_MAX, Bytes, COPIES_MAX, Effects, Reason, Seen, Sent};
pub use key::{Key, Pattern};
pub use why::{Answer, Rest, Why};
pub use work::{Changes, Switch, SwitchHub, SwitchSettings, TotalsAsked, WhyAsked, change_message};
