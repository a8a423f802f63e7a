//! Ports, where frames enter and leave: memory, capture files, network interfaces.
//!
//! ```text
//!  file, gzip file, standard input ──> pcap::Reader ──┐
//!                                                     ├──> Source::read ──> Burst (up to 32 frames)
//!  frames in memory ─────────────────> mem::Frames ───┘
//!
//!  frames ──> pcap::Writer ──> temporary name ──finish──> capture file
//! ```
//!
//! A [`Source`] lends its frames one [`Burst`] at a time: dynamic dispatch costs once per burst,
//! nothing is allocated or copied per frame, and memory use does not depend on the length of a
//! capture.
//!
//! Invariants: frames keep the order of the source; a damaged capture yields every complete frame
//! before the damage, and then where and why it ended ([`Damage`]); frames that are not delivered
//! are counted by reason ([`Skipped`]).
//! Thread-safety: sources and interfaces are `Send`, and used by one thread at a time.

pub mod af_packet;
pub mod af_xdp;
mod burst;
mod error;
mod limits;
pub mod linktype;
pub mod live;
pub mod mem;
pub mod pcap;
pub mod port;
pub mod tap;

pub use burst::{Burst, Progress, Record, Skipped, Source};
pub use error::{Damage, Error, Fault, Unread};
