//! A memcached server: throughput and latency by offered load, under each way of steering.
//!
//! ```text
//!  cpu:  hard interrupts > inter-processor interrupts > softirq (rings, backlog) > threads
//!        one chunk of work at a time: a frame, a request, an interrupt; its effect comes at its end
//!
//!  ring ──poll──> driver ─┬─ no RPS ──────────────────────> stack ─> socket ─> wake the thread
//!                         └─ RPS, RFS ─> backlog of a cpu ─IPI─> stack ...
//! ```
//!
//! Softirq has priority over threads until it has run for 2 ms; from then on the two share the time, as
//! with ksoftirqd. The cost of a chunk is its work, which takes longer while the sibling hardware thread is
//! busy, and the cache lines that must be fetched from the processor that wrote them last. Not modelled: GRO,
//! delayed and pure acknowledgements, loss recovery other than a timeout, preemption within a chunk.
//!
//! Invariants: every request is at the client, in a ring, in a backlog, in a socket, or answered;
//! [`Outcome::is_balanced`] checks it. Thread-safety: a run is one value on one thread.

mod apps;
mod clients;
mod costs;
mod curve;
#[cfg(test)]
mod directions;
mod host;
mod outcome;
mod parts;
mod run;
mod setup;
mod softirq;
mod steer;
#[cfg(test)]
mod tests;

pub use costs::Costs;
pub use curve::{Curve, WALL_US};
pub use outcome::Outcome;
pub use setup::{Load, Moderation, Placement, Setup, SetupError, Steering};
