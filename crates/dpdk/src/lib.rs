//! DPDK behind a small C interface: ports, the yard's memory, rules in adapters, event devices, and a yard's queues over them.
//!
//! ```text
//!  ports, bench ──> Eal, Port, Queue, External, Rules, EventDevice ──> sys (extern "C") ──> shim/*.c ──> libdpdk
//! ```
//!
//! DPDK's burst functions are inline functions of C, and its structures change between releases: only the C files in
//! `shim` see them. They are compiled by the `cc` crate against the library that `pkg-config` finds (22.11 or later).
//! The structures between C and Rust are our own and have no padding; both sides assert their sizes.
//!
//! Without the feature `dpdk`, which is off by default, the crate has only [`rules`] with a stand-in for an adapter: then
//! it needs no DPDK and no C compiler.
//!
//! Invariants: the environment of DPDK (EAL) is started once in a process. A `Queue` is used by one thread at a time.
//! A buffer of external memory belongs either to the yard or to DPDK; `External` keeps account, and memory that a
//! driver may still write is never freed.
//! Thread-safety: as said at each type.

#[cfg(feature = "dpdk")]
mod eal;
#[cfg(feature = "dpdk")]
mod error;
#[cfg(feature = "dpdk")]
mod event;
#[cfg(feature = "dpdk")]
mod memory;
#[cfg(feature = "dpdk")]
mod port;
#[cfg(feature = "dpdk")]
mod queue;
pub mod rules;
#[cfg(feature = "dpdk")]
mod schedule;
#[cfg(feature = "dpdk")]
mod sys;

#[cfg(feature = "dpdk")]
pub use self::{
    eal::{Eal, version},
    error::Error,
    event::{Event, EventDevice, EventInfo, EventPort, EventQueue, Op, Sched, Setup},
    memory::{Buffers, Copying, External},
    port::{Info, Link, Port, Rss, Settings, Stats},
    queue::{Lent, Outgoing, Queue, Received},
    schedule::EventScheduler,
};

/// The number of frames or events that one call moves at most.
pub const BURST: usize = 32;

/// Whether this program was built with DPDK.
#[must_use]
pub const fn is_built() -> bool {
    cfg!(feature = "dpdk")
}
