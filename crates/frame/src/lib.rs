//! The basic types of flowyard, all plain data: [`Frame`], [`FlowKey`], [`Action`], [`Batch`], [`Edit`].
//!
//! ```text
//!  lane      0        1        2             31
//!  frames  [frame ] [frame ] [frame ]  ...         16 bytes each: handles on pool buffers
//!  keys    [key   ] [key   ] [key   ]  ...         64 bytes each: header fields
//!  actions [action] [action] [action]  ...         12 bytes each: destinations
//! ```
//!
//! Invariants: lanes never move (a drop is an [`Action`], not a removal); a [`Frame`] is not `Clone`, so
//! every frame is in exactly one place.
//! Thread-safety: plain data, no interior mutability.
//! Soundness: only [`Frame::from_raw_parts`] makes a frame that names a buffer, and it is unsafe.
#![deny(unsafe_code)]

mod action;
mod batch;
mod key;
pub mod rng;
pub mod schedule;
mod text;

pub use action::{Action, Edit, To};
pub use batch::{Batch, Frame, LANES, Lanes};
pub use key::{FlowKey, Frag, proto};
pub use rng::Rng;
pub use text::BadFlow;

/// A point in time or a duration, in nanoseconds. Time is an argument: only the command line and live
/// ports read a clock. Time stamps of captures count from the Unix epoch.
pub type Nanos = u64;
