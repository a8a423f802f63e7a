//! Packet interfaces in shared memory: memif 2.0, as VPP and DPDK speak it.
//!
//! ```text
//!  client ── HELLO, INIT, ADD_REGION, ADD_RING, CONNECT ──> server      control channel: a Unix socket
//!    │ owns the memory                                        │ maps it
//!    ├── ring to the server ── descriptors, buffers ──> Receiver
//!    └── ring to the client <── descriptors, buffers ── Sender
//! ```
//!
//! The client creates the memory, with all rings and buffers, and hands it to the server as a file
//! descriptor. A ring has one producer of buffers, the client, and one consumer of buffers, the server: the
//! client advances `head`, the server `tail`, in both directions. In rings to the server the buffers are
//! frames; in rings to the client they are empty, and the server fills them.
//!
//! Invariants: nothing that the peer writes is trusted. Every descriptor is read once and checked against its
//! region, and a peer that breaks the protocol loses the connection and nothing else. Memory that the peer
//! could shrink is refused, because reading it could then end the process.
//! Thread-safety: one thread serves the control channel; a [`Receiver`] and a [`Sender`] belong to one thread
//! each.
//!
//! Source: the protocol's definition in DPDK (`drivers/net/memif/memif.h`) and its guide ("Memif Poll Mode
//! Driver").

mod buffers;
mod channel;
mod control;
mod handshake;
mod layout;
mod link;
mod message;
mod receive;
mod ring;
mod send;
mod shared;
mod sys;
#[cfg(test)]
mod tests;

pub use channel::OpenError;
pub use control::{Log, open};
pub use handshake::{Attach, Client, Parts, Refused, Reply, Server, Step};
pub use layout::Layout;
pub use link::{Link, Role};
pub use message::{AddRing, BadMessage, MESSAGE_BYTES, Message};
pub use receive::{Got, Receiver};
pub use ring::Violation;
pub use send::{Sender, Sent};
pub use shared::{Port, Queue, RxQueue, TxQueue};

/// The parameters of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Which side of the connection this is.
    pub role: Role,
    /// The path of the control channel's socket.
    pub socket: std::path::PathBuf,
    /// The number of the interface, which both sides name.
    pub id: u32,
    /// The name that the other side learns; at most 31 bytes of it are sent.
    pub name: String,
    /// What the client must know; empty: nothing. At most 24 bytes.
    pub secret: Vec<u8>,
    /// The number of queues of each direction: of a server the most, of a client the wanted.
    pub queues: u16,
    /// Client: the number of descriptors of a ring, as a power of two; 2 to 14.
    pub log2_ring: u8,
    /// Client: the bytes of a buffer.
    pub buffer_bytes: u32,
}
