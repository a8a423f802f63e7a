//! The load balancer: which backend a connection goes to, and that it stays there. Writes tables,
//! owns no packets.
//!
//! ```text
//!  services, health, drain ──> Control ──> Plan (one generation) ──> every core
//!  packet: key, hash ──> Conns (one table for each core) ──miss──> Plan::choose ──> Conns::insert
//! ```
#![forbid(unsafe_code)]

mod conns;
mod control;
pub mod health;
pub mod icmp;
mod plan;
pub mod probe;
pub mod quic;
mod service;

pub use conns::{Conn, ConnKey, Conns, Full, Proxied, Stage, State, Step, Timeouts};
pub use control::{BadService, BadWhat, Control, HEAVIEST, Unknown};
pub use plan::{Plan, Table, Target, Turns};
pub use service::{AllDown, Backend, Choice, Exit, Mode, OnDown, Service};
