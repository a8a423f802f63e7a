//! Network interfaces: code shared by all ports that use them.
//!
//! ```text
//!  af_packet::Ring, Sender ──┐
//!  af_xdp::Socket, Program ──┼──> an interface of Linux, by name
//!  tap::Queue ───────────────┘        └── Watch: up, down, gone, back
//! ```
//!
//! No function waits. An interface that goes down or vanishes is not an error but a state that
//! [`Watch`] reports; sockets are reopened when an interface with the same name appears again.
//!
//! Thread-safety: every value is used by one thread at a time.

mod interface;
pub mod offload;
pub(crate) mod sys;
mod uplink;

pub use interface::{Change, Interface, Watch, has_link};
pub use uplink::default_route;

use std::io;

/// Why a port cannot be opened, and how to fix that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}; {fix}")]
pub struct OpenError {
    /// What failed.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl OpenError {
    pub(crate) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }

    /// The operation `doing` failed; `capability` is what it requires.
    pub(crate) fn os(doing: &str, error: &io::Error, capability: &str) -> Self {
        let fix = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                format!(
                    "run as root, or grant the program {capability} (setcap, or AmbientCapabilities in \
                     systemd)"
                )
            }
            Some(libc::ENOMEM | libc::ENOBUFS) => {
                "reduce 'ring_frames', or raise the limit of locked memory (ulimit -l)".into()
            }
            Some(libc::ENODEV | libc::ENXIO) => {
                "list the existing interfaces with 'ip link'".into()
            }
            Some(libc::EBUSY) => "another program uses it; stop that program first".into(),
            _ => "look for messages of the kernel in 'dmesg'".into(),
        };
        Self::new(format!("{doing} failed: {error}"), fix)
    }
}

/// A time or duration in nanoseconds.
type Nanos = flowyard_frame::Nanos;
