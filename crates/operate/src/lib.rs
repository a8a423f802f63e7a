//! Operating a yard: what happens beside the walk, so that people can run it.
//!
//! ```text
//!  flowyard show, top, trace ──unix socket──> control ──┐
//!  Prometheus ──────────────HTTP, loopback──> metrics ──┼──> Handle ──mail──> cores
//!  backends <──checks, probers── health ──> Hub: the tables of a balancer
//!  systemd <──────────────── ready, watchdog ─ service ─┘
//!  OpenFlow controllers ──── openflow ── agent ──> changes ──> a switch's data plane
//!  flowyard doctor ──> /proc, /sys, ethtool: the machine, read only
//! ```
//!
//! Nothing here is on a frame's way: cores show their counters on boards, and answer questions
//! between batches.
//!
//! Thread-safety: the control and metrics servers and the checks have threads of their own, and share a
//! [`flowyard_yard::Handle`], which anyone may use.

pub mod answers;
pub mod client;
pub mod control;
pub mod doctor;
mod flows;
pub mod health;
pub mod lb;
mod mend;
pub mod metrics;
mod names;
pub mod openflow;
pub mod privilege;
pub mod protocol;
pub mod service;
pub mod switch;
mod sys;
mod trace;

pub use mend::mend;
