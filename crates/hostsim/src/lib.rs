//! A discrete-event host under a virtual clock: it predicts what two processors cannot measure.
//!
//! ```text
//!  clients ─> adapter: filters, RSS ─> rings ─interrupt─> cores: softirq ─> [RPS, RFS] ─> socket ─> thread
//!     ^        (crate adapter)        moderated             │                 IPI          wake       │
//!     └───────────────────────────────────────────── ATR learns <── transmit <─────────────────────────┘
//! ```
//!
//! [`server`] models that host with memcached as its application; [`closed`] models memcached with its
//! clients on the same two processors, and [`open`] the same under a load that does not wait for answers; [`pipeline`] models the cores and queues of the engine (or of a load
//! balancer); [`forward`] models a host that forwards at line rate. [`paper`] computes the tables and figures of
//! the papers with them, and [`predict`] curves for a machine that the user describes. Costs come from a [`Profile`]: measured by `flowyard calibrate`, or those of a
//! machine of the papers, with the source of each number.
//!
//! Time is integer nanoseconds; equal seeds give equal runs, event for event. No clock, no I/O.
//! Thread-safety: a run is one value on one thread; runs share nothing.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod closed;
pub mod events;
pub mod forward;
pub mod machine;
pub mod open;
pub mod paper;
pub mod pipeline;
pub mod predict;
pub mod profile;
pub mod server;

pub use accounting::Accounting;
pub use events::Events;
pub use machine::{Distance, Machine};
pub use profile::{Constant, How, Profile, ProfileError};
