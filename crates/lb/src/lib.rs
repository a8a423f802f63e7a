//! The load balancer: which backend a connection goes to, and that it stays there. Writes tables,
//! owns no packets.
#![forbid(unsafe_code)]

mod conns;
pub mod icmp;
pub mod quic;
mod service;

pub use conns::{Conn, ConnKey, Conns, Full, State, Timeouts};
pub use service::{AllDown, Backend, Choice, Exit, Mode, OnDown, Service};
