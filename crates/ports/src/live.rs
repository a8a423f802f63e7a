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

mod error;
mod interface;
pub mod offload;
pub(crate) mod sys;
mod uplink;

pub use error::{OpenError, is_down, is_full, is_too_long};
pub use interface::{Change, Interface, Watch, has_link, mac_address, speed};
pub use uplink::default_route;
