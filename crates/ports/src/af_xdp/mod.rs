//! AF_XDP: the kernel's driver fills buffers that we own, and empties them.
//!
//! ```text
//!   buffers of one memory (UMEM), each in one place
//!
//!   ours ──fill──> [kernel] ──receive──> ours ──transmit──> [kernel] ──complete──> ours
//!                     ^ XDP program: what matches goes here, by queue; the rest to the kernel
//! ```
//!
//! A [`Socket`] is bound to one queue of an interface, and registers the memory for itself: the
//! same memory may be registered by many sockets, so a buffer that came in by one may leave by
//! another, uncopied by us. Where the driver cannot write into it (zero copy), the kernel copies.
//!
//! The [`Program`] is attached by a link that the kernel takes off when its last descriptor is
//! closed: at the end of the process, however it ends, nothing stays behind.
//!
//! Invariants: a buffer that was filled or transmitted is the kernel's until it comes back by
//! `receive` or `complete`, or the socket is dropped. Who keeps that has no data race.
//! Thread-safety: a socket is one thread's at a time; a program may be shared.

pub(crate) mod assemble;
mod exchange;
mod program;
mod rules;
mod socket;
pub(crate) mod sys;

pub use exchange::Exchange;
pub use flowyard_pool::{HEADROOM, Umem};
pub use program::{Attached, Program};
pub use rules::{BadRule, Prefix, Rule, Rules};
pub use socket::{Desc, Mode, Settings, Socket};

const CAPABILITY: &str = "CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF";
