//! Keywords of the configuration that select one of several choices.

use serde::{Deserialize, Serialize};

/// How producers behave when a queue is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FullWord {
    /// They keep the frames, and receive no more until these fit. Nothing is lost.
    #[default]
    Hold,
    /// They drop the frames, counted as `queue_full`.
    Drop,
}

impl std::convert::From<FullWord> for flowyard_yard::Full {
    fn from(word: FullWord) -> Self {
        match word {
            FullWord::Hold => Self::Hold,
            FullWord::Drop => Self::Drop,
        }
    }
}

/// How an idle core waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IdleWord {
    /// It sleeps, and longer the longer it is idle: this saves power and costs latency.
    #[default]
    Sleep,
    /// It polls again at once.
    Busy,
}

impl std::convert::From<IdleWord> for flowyard_yard::blueprint::Idle {
    fn from(word: IdleWord) -> Self {
        match word {
            IdleWord::Sleep => Self::Sleep,
            IdleWord::Busy => Self::Busy,
        }
    }
}

/// What the queues of a yard are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineWord {
    /// Queues of flowyard's own.
    #[default]
    Own,
    /// The queues of an event device of DPDK.
    Eventdev,
}

/// The limits of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueLimits {
    /// Those of one queue of Intel's Dynamic Load Balancer 2.0.
    Dlb2,
}

/// The kind of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortKind {
    /// Receives a capture from memory; discards transmitted frames.
    Mem,
    /// Receives a capture while reading the file; writes transmitted frames to a capture.
    Pcap,
    /// An interface, through packet sockets of the kernel; works everywhere.
    AfPacket,
    /// Queues of an interface, through XDP sockets; matching frames bypass the kernel.
    AfXdp,
    /// An interface of the host for which the yard is the adapter.
    Tap,
    /// Memory that is shared with another process, as VPP and DPDK do it.
    Memif,
    /// The network adapter of a virtual machine.
    VhostUser,
    /// A device of DPDK, in a program that was built with the feature `dpdk`.
    Dpdk,
}

impl PortKind {
    /// The keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mem => "mem",
            Self::Pcap => "pcap",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Tap => "tap",
            Self::Memif => "memif",
            Self::VhostUser => "vhost_user",
            Self::Dpdk => "dpdk",
        }
    }

    /// Whether frames come from outside while the engine runs.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(
            self,
            Self::AfPacket | Self::AfXdp | Self::Tap | Self::Memif | Self::VhostUser | Self::Dpdk
        )
    }
}

/// How received frames of an `af_packet` port are distributed to cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FanoutWord {
    /// By the kernel's flow hash.
    #[default]
    Hash,
    /// By the processor that received the frame.
    Cpu,
    /// By the queue of the adapter that received the frame.
    Queue,
}

/// `offload` of `[[port]]`. What is not written is on where it is possible, but `gro`, which is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortOffload {
    /// Whether checksums are left to the receiver of the frames; `false` also excludes the others.
    pub csum: Option<bool>,
    /// Whether TCP segments pass as one long frame.
    pub tso: Option<bool>,
    /// Whether UDP datagrams pass as one long frame.
    pub uso: Option<bool>,
    /// Whether received TCP segments are joined into long frames; ports of all kinds.
    pub gro: Option<bool>,
}

/// What a port does with frames that have a wrong checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BadChecksumsWord {
    /// They are dropped and counted.
    Drop,
    /// They are counted.
    Pass,
}

/// How the host chooses the queue of a `tap` port to send by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostQueueWord {
    /// By a hash of the flow, so that a flow stays in its queue.
    #[default]
    Flow,
    /// The queue to which the flow was last written. The frames of a flow whose queue changes may be
    /// reordered.
    Learned,
    /// The queue of the core that is pinned to the sending processor.
    Cpu,
}

/// The side of a `memif` or `vhost_user` port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleWord {
    /// Listens at the socket.
    #[default]
    Server,
    /// Connects to the socket. The client of `memif` owns the memory.
    Client,
}

/// Which memory a `dpdk` port receives into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryWord {
    /// The yard's, if the driver allows it; otherwise frames are copied.
    #[default]
    Auto,
    /// The yard's; an error if the driver does not allow it.
    Yard,
    /// DPDK's own; frames are copied.
    Copy,
}

impl std::convert::From<MemoryWord> for flowyard_ports::port::dpdk::Memory {
    fn from(word: MemoryWord) -> Self {
        match word {
            MemoryWord::Auto => Self::Auto,
            MemoryWord::Yard => Self::Yard,
            MemoryWord::Copy => Self::Copy,
        }
    }
}

/// Whether the frames of an `af_xdp` port are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeWord {
    /// Not copied if the driver supports it; otherwise copied by the kernel.
    #[default]
    Auto,
    /// Copied by the kernel.
    Copy,
    /// Not copied; an error if the driver does not support it.
    ZeroCopy,
}

/// The order that a queue guarantees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One consumer, first in first out.
    Direct,
    /// Any number of consumers, any order.
    Unordered,
    /// Any number of consumers; frames leave in the order they came.
    Ordered,
    /// A flow stays with one consumer while any of its frames is in flight.
    Atomic,
}

impl std::convert::From<Order> for flowyard_queue::Order {
    fn from(order: Order) -> Self {
        match order {
            Order::Direct => Self::Direct,
            Order::Unordered => Self::Unordered,
            Order::Ordered => Self::Ordered,
            Order::Atomic => Self::Atomic,
        }
    }
}

/// The Toeplitz key.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(from = "String")]
pub enum HashKey {
    /// A random key from the seed.
    Random,
    /// A key with which both directions of a flow have equal hashes.
    Symmetric,
    /// The key of Microsoft's verification suite.
    Microsoft,
    /// The text of the user: bytes in hexadecimal, or a mistake.
    Written(String),
}

impl std::convert::From<String> for HashKey {
    fn from(text: String) -> Self {
        match text.as_str() {
            "random" => Self::Random,
            "symmetric" => Self::Symmetric,
            "microsoft" => Self::Microsoft,
            _ => Self::Written(text),
        }
    }
}

/// Parses bytes written as `6d:5a:...` or `6d5a...`.
#[must_use]
pub fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !matches!(c, ':' | ' '))
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}
