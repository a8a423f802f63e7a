//! Layer 4 load balancer: chooses a backend for each connection and keeps the connection there.
//! Plans, connection tables and health need no engine; [`Balance`] is the engine's work that uses them to
//! rewrite and forward packets. The crate does no I/O.
//!
//! ```text
//!  services, health, drain ──> Control ──> Plan (one generation) ──> Hub ──> Balance of every core
//!  packet: key, hash ──> Conns (one table for each core) ──miss──> Plan::choose ──> Conns::insert
//! ```
#![forbid(unsafe_code)]

mod asked;
pub mod check;
mod conns;
mod control;
mod counts;
mod handed;
pub mod health;
pub mod icmp;
mod near;
mod persist;
mod plan;
pub mod quic;
mod service;
mod work;

pub use asked::Asked;
pub use conns::{
    Conn, ConnKey, Conns, Full, Held, Listed, LocalPort, Numbers, Owner, Progress, Proxied, Sender,
    Stage, State, Step, Timeouts,
};
pub use control::{BackendState, BadService, BadWhat, Control, HEAVIEST, ServiceState, Unknown};
pub use counts::{Cell, Counts, Limit, REASONS, Sum};
pub use near::nearest;
pub use persist::{Persist, Persisted, Persistence};
pub use plan::{Active, Ceiling, Entry, Plan, Table, Target, Turns};
pub use service::{AllDown, Backend, Choice, Exit, Mode, OnDown, Service};
pub use work::{
    Balance, BalanceLimits, BalanceSettings, Because, Connection, Explained, Filter, Hub, Kept,
    Network, Occupancy, Place, Report, StateFilter,
};
pub use work::{End, Scan, SyncReport};
pub use work::{LOCALS, PORTS, ports_for_unestablished};
