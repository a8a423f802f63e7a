//! OpenFlow 1.0, 1.3 and 1.4: the codec, and the switch's tables as plain calls.
//!
//! ```text
//!   bytes ── decode ──> Message ── Agent::handle(message, now) ──> messages ── encode ──> bytes
//! ```
//!
//! One [`Message`] for all versions: what a version says otherwise is in the walk over its fields,
//! which is one function for reading and writing (`io`). [`view`] looks at the three hot
//! messages without copying them. What is wrong with a message is a [`problem::Problem`]: the type
//! and code to answer with.
//!
//! No I/O, no clock. Nothing here panics on any input, and nothing is allocated that the bytes at
//! hand do not pay for.
#![forbid(unsafe_code)]

pub mod act;
pub mod agent;
pub mod bundle;
pub mod change;
pub mod flow;
pub mod group;
mod io;
#[cfg(feature = "make")]
mod make;
pub mod matching;
pub mod message;
pub mod multipart;
pub mod ofctl;
pub mod oxm;
pub mod port;
pub mod problem;
pub mod session;
pub mod table;
mod v10;
mod version;
pub mod view;

#[cfg(feature = "make")]
pub use make::make;
pub use matching::Match;
pub use message::{Header, Message, Rejected, decode, encode};
pub use oxm::{Field, Oxm};
pub use version::Version;
