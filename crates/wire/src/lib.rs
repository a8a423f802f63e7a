//! Bytes to headers, and headers to bytes; checksums. No allocation, no unsafe.
//!
//! [`Headers::parse`] reads one level of a captured frame, [`Headers::inner`] the next one inside
//! a tunnel. Both always answer; [`Headers::fault`] says why an answer is shallow. [`checksum`]
//! has the sums and [`Headers::transport_checksum`] checks them. [`edit`] changes header fields in place.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod edit;
mod fast_path;
mod fault;
mod headers;
mod ip;
mod link;
mod other_links;
mod parse;
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
