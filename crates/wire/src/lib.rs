//! Parses the headers of frames; computes and verifies checksums. No allocation, no unsafe.
//!
//! [`Headers::parse`] parses the outermost level of a captured frame, [`Headers::inner`] the next level
//! inside a tunnel. Both accept any bytes; [`Headers::fault`] is the reason if parsing stopped early.
//! [`checksum`] has the checksum functions, and [`Headers::transport_checksum`] verifies a packet.
//! [`edit`] changes header fields in place.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod edit;
mod fast_path;
mod fault;
pub mod fc;
mod headers;
mod ip;
mod link;
pub mod ncsi;
mod other_links;
mod parse;
pub mod quic;
mod transport;
mod tunnel;
mod verify;
mod view;
mod walk;

pub use fault::Fault;
pub use headers::{Fragment, Headers, Labels, Net, Next, Tags};
pub use link::LinkType;
pub use verify::Verdict;
pub use view::Icmp;
pub use walk::is_tag;
