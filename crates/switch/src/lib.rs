//! The data plane of an OpenFlow switch: no threads, no I/O, no clock.
#![forbid(unsafe_code)]
pub mod classify;
mod key;
mod packet;
mod parse;
pub use key::{Key, Pattern};
