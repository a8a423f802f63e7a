//! Link types: the kind of the first header of a captured frame.

/// The first header of a frame (the "network" field of a pcap file, LINKTYPE_* registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LinkType {
    /// An Ethernet header, from the destination MAC (1).
    Ethernet,
    /// An IP header, version by its first nibble (101, and 12 or 14 as DLT_RAW).
    RawIp,
    /// An IPv4 header (228).
    Ipv4,
    /// An IPv6 header (229).
    Ipv6,
    /// BSD loopback: a 4-byte address family in the byte order of the writing host (0).
    Null,
    /// OpenBSD loopback: a 4-byte address family in network order (108).
    Loop,
    /// Linux "cooked" capture v1, 16 bytes (113).
    LinuxSll,
    /// Linux "cooked" capture v2, 20 bytes (276).
    LinuxSll2,
}

impl LinkType {
    /// Every supported link type.
    pub const ALL: [Self; 8] = [
        Self::Ethernet,
        Self::RawIp,
        Self::Ipv4,
        Self::Ipv6,
        Self::Null,
        Self::Loop,
        Self::LinuxSll,
        Self::LinuxSll2,
    ];

    /// The link type with this number in the LINKTYPE_* registry, if flowyard supports it.
    #[must_use]
    pub const fn from_registry(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::RawIp,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            0 => Self::Null,
            108 => Self::Loop,
            113 => Self::LinuxSll,
            276 => Self::LinuxSll2,
            _ => return None,
        })
    }
}
