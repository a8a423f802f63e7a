//! Live interfaces: what the ports on them have in common.
//!
//! ```text
//!  af_packet::Ring, Sender ──┐
//!  af_xdp::Socket, Program ──┼──> an interface of Linux, by name
//!  tap::Queue ───────────────┘        └── Watch: up, down, gone, back
//! ```
//!
//! Nothing here waits. An interface that goes down or vanishes is a state that [`Watch`] tells of,
//! not an error: sockets are opened anew on the interface that comes back under the name.
//!
//! Thread-safety: every value belongs to one thread at a time.

mod interface;
pub mod offload;
pub(crate) mod sys;
mod uplink;

pub use interface::{Change, Interface, Watch, has_link};
pub use uplink::default_route;

use std::io;

/// Why a port cannot be opened: what is wrong, and the mend.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}; {mend}")]
pub struct OpenError {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub mend: String,
}

impl OpenError {
    pub(crate) fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what: what.into(), mend: mend.into() }
    }

    /// `doing` failed: with the capability that is missing, where that is why.
    pub(crate) fn os(doing: &str, error: &io::Error, capability: &str) -> Self {
        let mend = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                format!(
                    "run as root, or give the program {capability} (setcap, or systemd's AmbientCapabilities)"
                )
            }
            Some(libc::ENOMEM | libc::ENOBUFS) => {
                "make 'ring_frames' smaller, or raise the limit of locked memory (ulimit -l)".into()
            }
            Some(libc::ENODEV | libc::ENXIO) => "see 'ip link' for the interfaces there are".into(),
            Some(libc::EBUSY) => "something else uses it: end that first".into(),
            _ => "see what the kernel said in 'dmesg'".into(),
        };
        Self::new(format!("{doing} failed: {error}"), mend)
    }
}

/// A point in time or a duration, in nanoseconds.
type Nanos = flowyard_frame::Nanos;
