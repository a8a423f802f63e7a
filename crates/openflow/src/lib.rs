//! OpenFlow 1.0, 1.3 and 1.4: the codec, and the switch's tables as plain calls.
//!
//! ```text
//!   bytes ── decode ──> Message ── Agent::handle(message, now) ──> messages ── encode ──> bytes
//! ```
//!
//! [`Message`] represents the messages of all versions. The walk over the fields of a message handles the
//! differences between versions; it is one function for reading and writing (`io`). [`view`] reads the
//! three most frequent messages without copying them. A message that is refused has a
//! [`problem::Problem`]: the error type and code to answer with.
//!
//! The crate does no I/O and reads no clock. No input causes a panic, and the memory that a message takes
//! is proportional to its length.
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
mod translate;
mod v10;
mod version;
pub mod view;

#[cfg(feature = "make")]
pub use make::make;
pub use matching::Match;
pub use message::{Header, Message, Rejected, decode, encode};
pub use oxm::{Field, Oxm};
pub use version::Version;
