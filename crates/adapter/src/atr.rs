//! Application targeting routing: the driver watches what it transmits and teaches the adapter.
//!
//! [`Atr82599`] is ixgbe's. It steers a flow's receive side to the queue whose number is the
//! transmit ring's, "assuming both are bound to one core", and has no equivalent of RFS's drained
//! queue check: a flow that moves may arrive out of order.

mod ixgbe;

pub use ixgbe::{Atr82599, Conditions, Error, Transmit};
