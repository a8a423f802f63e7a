//! For tests on real interfaces: network namespaces, links between them, traffic, and the lines of hosts on
//! which the engine is tested.
//!
//! ```text
//!  net ──> namespaces and veths     line ──> two hosts and the instance between them
//!  sys ──> system calls             traffic ──> streams and numbered datagrams, checked by the receiver
//!  guest ──> a virtual machine whose adapter has RSS
//! ```
//!
//! A failure panics, as in a test. Only tests depend on this crate.
//! Thread-safety: a thread enters a namespace by itself; everything else is plain data.

use std::time::Instant;

use flowyard_frame::Nanos;

pub mod guest;
pub mod line;
pub mod net;
pub mod sys;
pub mod traffic;

pub use line::{Kind, Line, Plan, ips};
pub use net::{Net, alone, pings};

/// A clock that counts nanoseconds from now.
#[allow(clippy::disallowed_methods, reason = "live tests use the real clock")]
pub fn clock() -> impl Fn() -> Nanos + Send + Sync + 'static {
    let start = Instant::now();
    move || start.elapsed().as_nanos() as Nanos
}
