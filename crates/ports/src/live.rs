//! Network interfaces: code shared by all ports that use them.
//!
//! ```text
//!  af_packet::Ring, Sender ──┐
//!  af_xdp::Socket, Program ──┼──> an interface of Linux, by name
//!  tap::Queue ───────────────┘        └── Looker: its state, its counters
//! ```
//!
//! No function waits. An interface that goes down or vanishes is not an error but a state, which
//! `port::live` watches; sockets are reopened when an interface with the same name appears again.
//!
//! Thread-safety: every value is used by one thread at a time.

mod carries;
mod counts;
mod error;
mod interface;
pub mod offload;
pub(crate) mod sys;
mod uplink;

pub use carries::Carries;
pub use counts::Counts;
pub use error::{OpenError, is_detached, is_down, is_full, is_too_long};
pub(crate) use interface::Looker;
pub use interface::{Interface, State, has_link, mac_address, speed};
pub use uplink::default_route;
