//! The word choices of the test methods' options, and what each means in `rfc2544`.

use clap::ValueEnum;
use flowyard_bench::tester::Kind;
use flowyard_rfc2544::profile::Test;
use flowyard_rfc2544::tag::Cover;
use flowyard_rfc2544::traffic::Addresses;

/// Values of `--port`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum PortKind {
    /// Packet socket (AF_PACKET): works on every interface
    AfPacket,
    /// AF_XDP socket for both directions: uses one queue, and frames of no more than 2048 bytes
    AfXdp,
    /// Sends by AF_XDP, receives by a packet socket
    Mixed,
}

impl From<PortKind> for Kind {
    fn from(kind: PortKind) -> Self {
        match kind {
            PortKind::AfPacket => Self::AfPacket,
            PortKind::AfXdp => Self::AfXdp,
            PortKind::Mixed => Self::Mixed,
        }
    }
}

/// Values of `--addresses`.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum AddressKind {
    /// Consecutive hosts of one network
    Patterned,
    /// Random destinations in 256 networks (RFC 2544 section 12)
    Networks,
    /// Random MAC addresses, IP addresses and ports (RFC 4814)
    Random,
    /// Random, but all in one entry of a 128-entry RSS indirection table
    Colliding,
}

impl From<AddressKind> for Addresses {
    fn from(kind: AddressKind) -> Self {
        match kind {
            AddressKind::Patterned => Self::Patterned,
            AddressKind::Networks => Self::Networks,
            AddressKind::Random => Self::Random,
            AddressKind::Colliding => Self::Colliding,
        }
    }
}

/// Values of `--topology`.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum TopologyKind {
    /// One port sends to the other
    Uni,
    /// Both ports of every pair send to each other
    Pairs,
    /// Every port sends to every other; needs --bridge
    Mesh,
}

/// Values of `--cover`.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum CoverPart {
    /// The whole frame, for a bridge
    Frame,
    /// All but MAC addresses, TTL and the IPv4 header checksum, for a router
    Network,
    /// Only the payload, for a device that rewrites headers
    Payload,
}

impl From<CoverPart> for Cover {
    fn from(part: CoverPart) -> Self {
        match part {
            CoverPart::Frame => Self::Frame,
            CoverPart::Network => Self::Network,
            CoverPart::Payload => Self::Payload,
        }
    }
}

/// Values of `--filters`; the discriminant is the number of filters.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum FilterCount {
    /// No filter
    #[value(name = "0")]
    None = 0,
    /// One that allows the test traffic; everything else is denied
    #[value(name = "1")]
    One = 1,
    /// The filter of 1, and before it 24 filters that match no test frame
    #[value(name = "25")]
    TwentyFive = 25,
}

/// Values of `--tests`.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum TestName {
    /// Highest rate without loss (RFC 2544 section 26.1)
    Throughput,
    /// Latency at the throughput (RFC 2544 section 26.2, RFC 8219)
    Latency,
    /// Frame loss rate by load (RFC 2544 section 26.3)
    LossRate,
    /// Longest burst at line rate without loss (RFC 9004)
    BackToBack,
    /// Time to recover from an overload (RFC 2544 section 26.5)
    Recovery,
    /// Time to recover from a reset (RFC 6201)
    Reset,
    /// Shortest interval between bursts of 16, 64, 256 and 1024 frames without loss (RFC 2544
    /// section 21)
    Bursts,
}

impl From<TestName> for Test {
    fn from(name: TestName) -> Self {
        match name {
            TestName::Throughput => Self::Throughput,
            TestName::Latency => Self::Latency,
            TestName::LossRate => Self::LossRate,
            TestName::BackToBack => Self::BackToBack,
            TestName::Recovery => Self::Recovery,
            TestName::Reset => Self::Reset,
            TestName::Bursts => Self::Bursts,
        }
    }
}
