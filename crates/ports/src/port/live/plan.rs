//! The parameters of ports on interfaces.

use std::sync::Arc;

use crate::live::Carries;
use crate::{af_packet, af_xdp, tap};

/// A callback for events at ports: the port's name and a message.
pub type Log = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The parameters of a port on an interface.
#[derive(Clone, Debug)]
pub struct LivePort {
    /// The port number in the metadata of its frames.
    pub number: u16,
    /// The name of the port in messages.
    pub name: String,
    /// The name of the interface.
    pub interface: String,
    /// Number of cores that own the port; each has its own receive and transmit queue.
    pub cores: usize,
    /// The mechanism, with its settings.
    pub kind: LiveKind,
    /// The unfinished frames that the port passes on, if the kernel can, too.
    pub carries: Carries,
    /// The unfinished frames that ports of the engine may receive: those that this port does not pass on it finishes.
    pub delivered: Carries,
    /// Whether transmitted TCP segments are coalesced, if the port passes on long frames.
    pub coalesces: bool,
}

/// The mechanism of a port on an interface.
#[derive(Clone, Debug)]
pub enum LiveKind {
    /// Packet sockets (AF_PACKET).
    AfPacket {
        /// Fanout mode, and capacity of the rings.
        settings: af_packet::Settings,
        /// Whether transmitted frames bypass the queueing discipline. The driver's queue then
        /// depends on the CPU, so this is only for cores that are pinned to one CPU.
        bypass: bool,
    },
    /// XDP sockets (AF_XDP).
    AfXdp(XdpPort),
    /// A TAP interface: the engine acts as an adapter of the host.
    Tap {
        /// MTU and hardware address.
        settings: tap::Settings,
        /// How the host chooses the queue of a frame that it sends.
        host_queue: tap::HostQueue,
    },
}

impl LiveKind {
    /// The word for it in a configuration.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AfPacket { .. } => "af_packet",
            Self::AfXdp(_) => "af_xdp",
            Self::Tap { .. } => "tap",
        }
    }
}

/// The parameters of an AF_XDP port.
#[derive(Clone, Debug)]
pub struct XdpPort {
    /// Copy mode, and capacity of the rings.
    pub settings: af_xdp::Settings,
    /// The frames that are taken from the kernel.
    pub rules: af_xdp::Rules,
    /// The interface queue of each core.
    pub queues: Vec<u32>,
    /// Whether TCP and UDP checksums are recomputed, for senders on the same machine.
    pub completes_checksums: bool,
    /// What runs in front of the port's program.
    pub ahead: Option<Arc<dyn af_xdp::Ahead>>,
}
