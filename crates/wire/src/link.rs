//! Link types of captures: what the first byte of a frame is.

use crate::{
    Fault,
    walk::{Step, Walk, ether},
};

/// What the first byte of a frame is (the "network" field of a pcap file, LINKTYPE_* registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LinkType {
    /// Ethernet, from the destination MAC (1).
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
    /// The link type with this number in the LINKTYPE_* registry, if flowyard reads it.
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

/// The links that are rarer than Ethernet.
impl Walk<'_, '_> {
    #[inline(never)]
    pub(crate) fn other_link(&mut self, link: LinkType) -> Step {
        match link {
            LinkType::Ethernet => self.ethernet(),
            LinkType::RawIp => self.ip(),
            LinkType::Ipv4 => self.ipv4(),
            LinkType::Ipv6 => self.ipv6(),
            LinkType::Null | LinkType::Loop => self.loopback(link),
            LinkType::LinuxSll => self.cooked::<16>(14, 2),
            LinkType::LinuxSll2 => self.cooked::<20>(0, 8),
        }
    }

    /// A 4-byte address family. Families are small, so a large one is in the other byte order;
    /// the number of AF_INET6 depends on the system: Linux 10, NetBSD and OpenBSD 24, FreeBSD 28,
    /// Darwin 30.
    fn loopback(&mut self, link: LinkType) -> Step {
        let Some(family) = self.peek::<4>() else {
            return Err(self.short(Fault::TruncatedLink));
        };
        let mut family = u32::from_be_bytes(*family);
        if link == LinkType::Null && family > 0xffff {
            family = family.swap_bytes();
        }
        self.at += 4;
        self.h.l3 = self.at as u32;
        match family {
            2 => self.ipv4(),
            10 | 24 | 28 | 30 => self.ipv6(),
            _ => Ok(()),
        }
    }

    /// Linux cooked capture of `N` bytes, with the protocol and the ARPHRD type at these offsets.
    fn cooked<const N: usize>(&mut self, protocol: usize, hardware: usize) -> Step {
        let Some(header) = self.peek::<N>() else {
            return Err(self.short(Fault::TruncatedLink));
        };
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        self.at += N;
        self.h.l3 = self.at as u32;
        match (field(hardware), field(protocol)) {
            // Here the protocol field is no EtherType: frame relay, GRE, radiotap, netlink.
            (770 | 778 | 803 | 824, _) => Ok(()),
            (_, 4) => self.llc(),
            (_, 0..=ether::MAX_LENGTH) => Ok(()),
            (_, eth_type) => self.ether_type(eth_type),
        }
    }
}
