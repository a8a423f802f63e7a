//! Words of the configuration that stand for a choice.

use serde::Deserialize;

/// What producers do when a queue is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FullWord {
    /// They hold frames, and receive no more until these fit: nothing is lost.
    #[default]
    Hold,
    /// They drop frames, counted as `queue_full`.
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

/// What an idle core does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdleWord {
    /// Sleeps, for longer the longer there is nothing: saves power, costs latency.
    #[default]
    Sleep,
    /// Looks again at once.
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

/// What a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortKind {
    /// Receives a capture that is read into memory first; forgets what it transmits.
    Mem,
    /// Receives a capture as it is read; writes what it transmits.
    Pcap,
    /// An interface, by the kernel's packet sockets: works everywhere.
    AfPacket,
    /// Queues of an interface, by XDP sockets: what matches bypasses the kernel.
    AfXdp,
    /// An interface of the host whose adapter is the yard.
    Tap,
}

impl PortKind {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mem => "mem",
            Self::Pcap => "pcap",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Tap => "tap",
        }
    }

    /// Whether it is an interface of the system.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::AfPacket | Self::AfXdp | Self::Tap)
    }
}

/// How the cores of an `af_packet` port share what comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FanoutWord {
    /// By the kernel's flow hash.
    #[default]
    Hash,
    /// By the processor that received it.
    Cpu,
    /// By the adapter's queue that received it.
    Queue,
}

/// By which queue of a `tap` port the host sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostQueueWord {
    /// The one that the flow was last written to.
    #[default]
    Flow,
    /// The one of the core that is pinned to the processor that sends.
    Cpu,
}

/// Who copies the frames of an `af_xdp` port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeWord {
    /// Nobody, where the driver can do that; the kernel elsewhere.
    #[default]
    Auto,
    /// The kernel.
    Copy,
    /// Nobody; a driver that cannot is an error.
    ZeroCopy,
}

/// What a queue promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One consumer, first in first out.
    Direct,
    /// Any consumer, any order.
    Unordered,
    /// Any consumer, and frames leave in the order they came.
    Ordered,
    /// A flow stays with one consumer while any of it is in flight.
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
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(from = "String")]
pub enum HashKey {
    /// From the seed.
    Random,
    /// Both directions of a flow hash alike.
    Symmetric,
    /// That of Microsoft's verification suite.
    Microsoft,
    /// What the user wrote: bytes in hexadecimal, or something else that is wrong.
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

/// Bytes written as `6d:5a:...` or `6d5a...`.
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
