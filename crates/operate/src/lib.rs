//! Operation of a running engine: everything beside the packet path that people need to run it.
//!
//! ```text
//!  flowyard show, top, trace ──unix socket──> control ──┐
//!  Prometheus ──────────────HTTP, loopback──> metrics ──┼──> Handle ──mail──> cores
//!  backends <──checks, probers── health ──> Hub: the state of a balancer's backends
//!  routing daemon <─── routes ── announce ── Hub: which VIPs have backends
//!  etcd ─────────services──> cluster ── run ──> Hub; generation, checksum and errors go back as a status
//!  systemd <──────────────── ready, watchdog ─ service ─┘
//!  OpenFlow controllers ──── openflow ── agent ──> changes ──> a switch's data plane
//!  flowyard doctor ──> /proc, /sys, ethtool: the machine, read only
//! ```
//!
//! Nothing in this crate is on the packet path: cores publish their counters in shared memory and
//! answer queries between batches.
//!
//! Thread-safety: the control server, the metrics server and the health checks each have their own
//! threads and share a [`flowyard_yard::Handle`], which any thread may use.

mod accounts;
pub mod announce;
pub mod answers;
pub mod client;
pub mod cluster;
pub mod control;
mod dns;
pub mod doctor;
mod fix;
mod flows;
pub mod handover;
pub mod health;
pub mod ipsec;
pub mod lb;
pub mod metrics;
mod names;
pub mod offload;
pub mod openflow;
pub mod privilege;
pub mod protocol;
pub mod reload;
pub mod service;
mod socket;
pub mod switch;
pub mod sync;
mod sys;
pub mod take_over;
mod trace;
