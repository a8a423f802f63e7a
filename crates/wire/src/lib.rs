//! Bytes to headers, and headers to bytes; checksums. No allocation, no unsafe.
#![forbid(unsafe_code)]

mod headers;
mod link;

pub use headers::{Fault, Fragment, Headers, Labels, Net, Next, Tags};
pub use link::LinkType;
