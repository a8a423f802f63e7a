//! The nouns of flowyard as plain data: [`Frame`], [`FlowKey`], [`Action`], [`Batch`], [`Edit`].
//!
//! ```text
//!  lane      0        1        2             31
//!  frames  [frame ] [frame ] [frame ]  ...         16 bytes each: where the bytes are
//!  keys    [key   ] [key   ] [key   ]  ...         64 bytes each: who the frame is
//!  actions [action] [action] [action]  ...         12 bytes each: where it goes
//! ```
//!
//! Invariants: lanes never move (a drop is an [`Action`], not a removal); a [`Frame`] is not
//! `Clone`, so a frame is in exactly one place.
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

/// A point in time or a duration, in nanoseconds. Time is an argument, never read from a clock
/// below the command line. Capture time stamps count from the Unix epoch.
pub type Nanos = u64;
