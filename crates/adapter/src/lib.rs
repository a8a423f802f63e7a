//! Models of real network adapters, bit by bit: what each would do with a packet.
#![forbid(unsafe_code)]

pub mod i40e;
pub mod linux;
pub mod rules;
pub mod stats;
