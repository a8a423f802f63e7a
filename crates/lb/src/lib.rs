//! Layer 4 load balancer: chooses a backend for each connection and keeps the connection there.
//! This crate computes plans and tables. It does no I/O and never owns a packet.
//!
//! ```text
//!  services, health, drain ──> Control ──> Plan (one generation) ──> every core
//!  packet: key, hash ──> Conns (one table for each core) ──miss──> Plan::choose ──> Conns::insert
//! ```
#![forbid(unsafe_code)]

pub mod check;
mod conns;
mod control;
mod counts;
pub mod health;
pub mod icmp;
mod near;
mod plan;
pub mod quic;
mod service;
mod work;

pub use conns::{Conn, ConnKey, Conns, Full, Proxied, Stage, State, Step, Timeouts};
pub use control::{BackendState, BadService, BadWhat, Control, HEAVIEST, ServiceState, Unknown};
pub use counts::{Cell, Counts, REASONS, Sum};
pub use near::nearest;
pub use plan::{Entry, Plan, Table, Target, Turns};
pub use service::{AllDown, Backend, Choice, Exit, Mode, OnDown, Service};
pub use work::{Balance, BalanceSettings, Because, Explained, Hub, Kept, Occupancy, Place, Report};
