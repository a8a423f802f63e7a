//! Where frames enter and leave: memory, capture files, interfaces of the system.
//!
//! ```text
//!  file, gzip file, standard input ──> pcap::Reader ──┐
//!                                                     ├──> Source::read ──> Burst (up to 32 frames)
//!  frames in memory ─────────────────> mem::Frames ───┘
//!
//!  frames ──> pcap::Writer ──> temporary name ──finish──> capture file
//! ```
//!
//! A [`Source`] lends its frames a [`Burst`] at a time: `dyn` costs per burst, nothing is
//! allocated or copied per frame, and memory does not grow with the length of a capture.
//!
//! Invariants: frames come in the order of the source; a damaged capture gives every frame that
//! was whole and then says where and why it stopped ([`Damage`]); a frame that is not given is
//! counted by name ([`Skipped`]).
//! Thread-safety: sources and interfaces are `Send`, and used by one thread at a time.

pub mod af_packet;
pub mod af_xdp;
mod burst;
mod error;
pub mod linktype;
pub mod live;
pub mod mem;
pub mod pcap;
pub mod port;
pub mod tap;

pub use burst::{Burst, Progress, Record, Skipped, Source};
pub use error::{Damage, Error, Fault};
