//! Real ports for the test bench of `rfc2544`, with the isolation check before they are opened; saved and
//! replayed traffic.

pub mod generate;
mod guard;
pub mod journal;
mod port;
pub mod qualify;
pub mod replay;
mod reset;
pub mod rfc2889;

pub use port::{Kind, LiveBench, Port};
pub use reset::Command;
