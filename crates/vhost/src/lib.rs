//! vhost-user: the back end of a network adapter that a virtual machine sees, without the kernel.
//!
//! ```text
//!  guest's driver ── rings and frames in guest memory ──> Receiver, Sender of a core
//!        │                                                      ^
//!  front end (QEMU, DPDK's virtio-user) ── messages ──> control thread: maps the memory, hands rings to the cores
//! ```
//!
//! The front end sends the guest's memory as file descriptors, and says where the rings are in it. A queue of
//! the adapter has two rings, split or packed: in one the guest transmits, in the other it offers buffers to receive
//! into. The messages are handled by the crate `vhost` of rust-vmm; the rings are read by this crate.
//!
//! Invariants: nothing in the guest's memory is trusted. Every number is read once and checked, work is
//! bounded, and a guest that breaks the rules loses its own port until it resets its device. A truncated file
//! behind the memory takes the port down, too, and does not end the process.
//! Thread-safety: one thread serves the socket; each half of a [`Queue`] belongs to one thread.
//!
//! Source: Virtual I/O Device (VIRTIO) version 1.2; "Vhost-user Protocol" of QEMU.

mod channel;
mod control;
mod device;
mod early;
mod guard;
#[cfg(feature = "guest")]
pub mod guest;
pub mod handover;
mod memory;
mod messages;
mod receive;
mod ring;
mod send;
mod shared;
mod sys;
mod violation;

pub use channel::OpenError;
pub use control::open;
pub use receive::{Got, Receiver};
pub use send::{Sender, Sent};
pub use shared::{Port, Queue, RxQueue, TxQueue};
pub use violation::Violation;

/// Queue pairs of a port.
pub const PAIRS: usize = 32;

/// What is reported: connections, their ends, guests that break the rules, and the reasons.
pub type Log = std::sync::Arc<dyn Fn(&str) + Send + Sync>;

/// Who listens at the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// This side listens, and the front end connects.
    Server,
    /// This side connects to the front end, which listens.
    Client,
}

/// The parameters of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Who listens at the socket.
    pub role: Role,
    /// The path of the socket.
    pub socket: std::path::PathBuf,
}
