//! AF_XDP: the kernel's driver receives into and transmits from buffers that we own.
//!
//! ```text
//!   buffers of one memory (UMEM); each is in exactly one place
//!
//!   ours ──fill──> [kernel] ──receive──> ours ──transmit──> [kernel] ──complete──> ours
//!                     ^ XDP program: matching frames go here, by queue; all others to the kernel
//! ```
//!
//! A [`Socket`] is bound to one queue of an interface and registers the memory for itself. Many
//! sockets may register the same memory, so a buffer received by one may be transmitted by another
//! without a copy by us. If the driver cannot write into it (zero copy), the kernel copies.
//!
//! The [`Program`] is attached by a link, which the kernel removes when its last descriptor is
//! closed: nothing remains attached after the process ends, however it ends.
//!
//! Invariants: a buffer passed to `fill` or `transmit` belongs to the kernel until `receive` or
//! `complete` returns it, or the socket is dropped. A caller that respects this has no data race.
//! Thread-safety: a socket is used by one thread at a time; a program may be shared.

pub(crate) mod assemble;
mod exchange;
mod program;
mod rules;
mod socket;
pub(crate) mod sys;

pub use exchange::Exchange;
pub use flowyard_pool::{HEADROOM, Umem};
pub use program::{Ahead, Attached, Before, Program};
pub use rules::{BadRule, Prefix, Rule, Rules};
pub use socket::{Desc, Mode, Settings, Socket};
