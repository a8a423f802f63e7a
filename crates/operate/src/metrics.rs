//! Metrics in the text format of Prometheus (version 0.0.4).
//!
//! ```text
//!  flowyard_rx_frames_total{core="0"} 1234
//!  flowyard_dropped_frames_total{core="0",reason="queue_full"} 5
//! ```
//!
//! Names follow the conventions of Prometheus: base units, and `_total` for counters. Every counter of
//! the engine is exported under its own name; its help text is in `HELP`.
//!
//! Thread-safety: plain functions over a `Handle`.

mod cluster;
mod engine;
mod http;
mod ipsec;
mod lb;
mod page;
mod steer;
mod switch;
mod sync;
mod text;

pub use http::{Metrics, MetricsError, address};
pub use page::page;
pub use steer::steer_page;
