//! Application targeting routing (ATR): the driver samples the packets that it transmits, and
//! programs filters for the opposite direction of their flows.
//!
//! [`Atr82599`] models ixgbe. It steers the received direction of a flow to the queue with the
//! number of the transmit ring, "assuming both are bound to one core". Unlike RFS, ATR does not wait
//! until the old queue is drained: a flow that moves may arrive out of order.

mod ixgbe;

pub use ixgbe::{Atr82599, Conditions, Error, Transmit};
