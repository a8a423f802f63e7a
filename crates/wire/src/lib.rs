//! Parses the headers of frames; computes and verifies checksums. No allocation. The only `unsafe` is the call of
//! a function compiled for AVX2, in `checksum/wide.rs`.
//!
//! [`Headers::parse`] parses the outermost level of a captured frame, [`Headers::inner`] the next level
//! inside a tunnel. Both accept any bytes; [`Headers::fault`] is the reason if parsing stopped early.
//! [`checksum`] has the checksum functions, and [`Headers::transport_checksum`] verifies a packet.
//! [`edit`] changes header fields in place. [`offload`] says what is left to do to a frame before it is on a wire.

pub mod checksum;
pub mod coalesce;
pub mod edit;
mod fast_path;
mod fault;
pub mod fc;
mod headers;
mod ip;
mod link;
pub mod ncsi;
pub mod offload;
mod other_links;
mod parse;
pub mod quic;
pub mod segment;
mod transport;
mod tunnel;
mod verify;
mod view;
mod walk;

pub use fault::Fault;
pub use headers::{Fragment, Headers, Labels, Net, Next, Tags};
pub use link::LinkType;
pub use offload::{Offload, Refused, Segment, Verdict, Verdicts};
pub use verify::Ends;
pub use view::Icmp;
pub use walk::is_tag;
