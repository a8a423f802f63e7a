//! In front of a yard: XDP sends frames of flows on that the yard has answered before, and adapters drop and mark frames by
//! rules (module [`adapters`]).
//!
//! ```text
//!  work of a core ──put──> Kernel ──maps──> XDP ──known flow──> changed, out of a port
//!                  <──counts───┘             └──everything else──> the port's AF_XDP sockets
//! ```
//!
//! The program's source is `crates/steer/bpf/front.c`; `cargo xtask bpf` compiles it, and the object file is committed.
//! Entries and counters are arrays that this process and the program see as the same memory; only adding and removing a
//! flow are system calls.
//!
//! Invariants: the number of a flow is used again [`flowyard_yard::front::AFTER`] after its removal at the earliest, so
//! what the program reads of an entry never changes while it answers. The program ends with the process, however that
//! ends.
//! Thread-safety: a [`Kernel`] is shared by all cores; adding and removing flows takes a lock.

pub mod adapters;
mod kernel;
mod layout;
mod memory;
mod netdev;
mod port;

pub use adapters::Adapters;
pub use kernel::{Error, Kernel, Settings};
pub use port::OfPort;
