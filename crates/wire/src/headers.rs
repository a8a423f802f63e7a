//! One level of headers: link, tags, labels, IP, transport; and what the payload holds.
//!
//! ```text
//!  Ethernet | tags | labels | PPPoE | IP + extensions | transport | payload
//!                                   ^ l3              ^ l4        ^ payload: maybe the next level
//! ```
//!
//! A tunnel's inner frame is the next level: [`Headers::inner`] parses it. Offsets count from the
//! first byte of the captured frame at every level, so views stay cheap.

/// The network layer of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Net {
    /// Neither IP nor ARP.
    #[default]
    Other,
    /// ARP (or RARP).
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// IP fragmentation of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fragment {
    /// Offset of this fragment in the datagram, in bytes.
    pub offset: u32,
    /// More fragments follow.
    pub more: bool,
    /// An IPv6 fragment header is present, even if it fragments nothing (RFC 6946).
    pub header: bool,
}

/// VLAN tags, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tags {
    /// How many tags the frame has; at most [`Tags::MAX`] are kept.
    pub count: u8,
    /// Tag control information (priority, DEI, VLAN id) of each tag kept.
    pub tci: [u16; Tags::MAX],
}

impl Tags {
    /// How many tags are kept.
    pub const MAX: usize = 4;
}

/// MPLS labels, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Labels {
    /// How many labels the stack has; at most [`Labels::MAX`] are kept.
    pub count: u8,
    /// The label stack entries kept, whole: label, traffic class, bottom of stack, TTL.
    pub entry: [u32; Labels::MAX],
}

impl Labels {
    /// How many labels are kept.
    pub const MAX: usize = 4;
}

/// What the payload of a level holds, when it is a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Next {
    /// No tunnel.
    #[default]
    None,
    /// An IP packet, version by its first nibble.
    Ip,
    /// An Ethernet frame.
    Ethernet,
    /// Anything else with an EtherType of its own (GRE): MPLS, ARP, 802.1Q ...
    EtherType(u16),
    /// A PPP frame.
    Ppp,
}

/// Why parsing stopped before the transport header. Each is a counter of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The frame has no bytes.
    Empty,
}

/// One level of headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// Offset of the Ethernet header (destination MAC); `None` where the level has none.
    pub eth: Option<u32>,
    /// The EtherType after all tags; 0 where there is none.
    pub eth_type: u16,
    /// VLAN tags.
    pub tags: Tags,
    /// MPLS labels.
    pub labels: Labels,
    /// PPPoE session, if any.
    pub pppoe: Option<u16>,
    /// The network layer.
    pub net: Net,
    /// Offset of the network header.
    pub l3: u32,
    /// The protocol above IP after every extension header; 0 outside IP.
    pub proto: u8,
    /// IP fragmentation.
    pub fragment: Fragment,
    /// Offset of the transport header.
    pub l4: u32,
    /// Source and destination port are present (TCP, UDP, SCTP; not a later fragment).
    pub ports: Option<(u16, u16)>,
    /// TCP flags (byte 13), 0 outside TCP.
    pub tcp_flags: u8,
    /// Offset of the home address in an IPv6 destination option (RFC 6275), 0 for none.
    pub home_address: u32,
    /// Offset of the address in an IPv6 routing header type 2 (RFC 6275), 0 for none.
    pub routing2: u32,
    /// Offset of what follows the deepest header understood.
    pub payload: u32,
    /// What the payload holds.
    pub next: Next,
    /// VNI, TEID or GRE key of the tunnel whose payload this level carries; 0 for none.
    pub tunnel_id: u32,
    /// Why parsing stopped early, if it did.
    pub fault: Option<Fault>,
}
