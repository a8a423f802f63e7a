//! The load balancer: which backend a connection goes to, and that it stays there. Writes tables,
//! owns no packets.
#![forbid(unsafe_code)]

mod conns;

pub use conns::{Conn, ConnKey, Conns, Full, State, Timeouts};
