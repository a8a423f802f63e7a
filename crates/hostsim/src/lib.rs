//! A discrete-event host under a virtual clock: what two cores cannot measure, predicted.
//!
//! ```text
//!  clients ─> adapter: filters, RSS ─> rings ─interrupt─> cores: softirq ─> [RPS, RFS] ─> socket ─> thread
//!     ^        (crate adapter)        moderated             │                 IPI          wake       │
//!     └───────────────────────────────────────────── ATR learns <── transmit <─────────────────────────┘
//! ```
//!
//! [`server`] is that host, with memcached for an application; [`pipeline`] is the yard's cores and queues
//! (or a load balancer's), [`forward`] a host that forwards at line rate. [`paper`] makes the tables and
//! figures of the papers with them, [`figure`] holds the papers' numbers. Costs come from a [`Profile`]: measured
//! by `flowyard calibrate`, or a machine of the papers with the source of each number.
//!
//! Time is integer nanoseconds; equal seeds give equal runs, event for event. No clock, no I/O.
//! Thread-safety: a run is one value on one thread; runs share nothing.
#![forbid(unsafe_code)]

pub mod closed;
pub mod events;
pub mod forward;
pub mod machine;
pub mod paper;
pub mod pipeline;
pub mod profile;
pub mod server;

pub use events::Events;
pub use machine::{Distance, Machine};
pub use profile::{Constant, How, Profile, ProfileError};
