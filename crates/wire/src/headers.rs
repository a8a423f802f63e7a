//! One level of headers: link, tags, labels, IP, transport; and the kind of the payload.
//!
//! ```text
//!  Ethernet | tags | labels | PPPoE | IP + extensions | transport | payload           | padding
//!                                   ^ l3              ^ l4        ^ payload           ^ end
//!                                                                 may be the next level
//! ```
//!
//! The inner frame of a tunnel is the next level: [`Headers::inner`] parses it. At every level, offsets
//! count from the first byte of the captured frame, so that views need no adjustment.
//!
//! Invariants: `l3 <= l4 <= payload <= end <= frame length` (`l4` only above IP); every level starts
//! after the start of the level around it, so the number of levels is finite; no input panics.
//! Thread-safety: plain data.

use crate::Fault;

/// The network layer of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Net {
    /// Neither IP nor ARP, or a malformed IP header (then there is a fault).
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
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// An IPv6 fragment header is present, even if it fragments nothing (RFC 6946).
    pub header: bool,
}

impl Fragment {
    /// Whether the packet is not a whole datagram. An IPv6 atomic fragment (RFC 6946) is whole.
    #[must_use]
    #[inline]
    pub const fn is_fragment(self) -> bool {
        self.more || self.offset != 0
    }

    /// Whether this is a fragment without the transport header.
    #[must_use]
    #[inline]
    pub const fn is_later(self) -> bool {
        self.offset != 0
    }
}

/// VLAN tags, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tags {
    /// Number of tags; at most [`Tags::MAX`] of them are kept.
    pub count: u8,
    /// Tag control information (priority, DEI, VLAN id) of each tag that is kept.
    pub tci: [u16; Self::MAX],
}

impl Tags {
    /// The largest number of tags that are kept.
    pub const MAX: usize = 4;
    /// The largest number of tags that are parsed; one more is [`Fault::TooManyTags`].
    pub const LIMIT: usize = 16;

    /// The VLAN ids kept, outermost first.
    pub fn ids(&self) -> impl Iterator<Item = u16> + '_ {
        self.tci[..Self::MAX.min(self.count.into())].iter().map(|tci| tci & 0xfff)
    }
}

/// MPLS labels, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Labels {
    /// Number of labels in the stack; at most [`Labels::MAX`] of them are kept.
    pub count: u8,
    /// The label stack entries that are kept: label, traffic class, bottom of stack, TTL.
    pub entry: [u32; Self::MAX],
}

impl Labels {
    /// The largest number of labels that are kept.
    pub const MAX: usize = 4;
    /// The largest number of labels that are parsed; one more is [`Fault::TooManyLabels`].
    pub const LIMIT: usize = 16;

    /// The 20-bit labels kept, outermost first.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.entry[..Self::MAX.min(self.count.into())].iter().map(|entry| entry >> 12)
    }
}

/// The kind of the payload of a level, if it is a tunnel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Next {
    /// Not a tunnel.
    #[default]
    None,
    /// An IP packet, version by its first nibble.
    Ip,
    /// An IPv4 packet, and no other version.
    Ipv4,
    /// An IPv6 packet, and no other version.
    Ipv6,
    /// An Ethernet frame.
    Ethernet,
    /// Anything else with an EtherType of its own (GRE): MPLS, ARP, 802.1Q ...
    EtherType(u16),
    /// A PPP frame.
    Ppp,
}

/// One level of headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// Offset of the Ethernet header (destination MAC); `None` if the level has none.
    pub eth: Option<u32>,
    /// The EtherType after all tags (that of SNAP, if there is SNAP); 0 if there is none.
    pub eth_type: u16,
    /// VLAN tags.
    pub tags: Tags,
    /// MPLS labels.
    pub labels: Labels,
    /// PPPoE session, if any.
    pub pppoe: Option<u16>,
    /// The network layer.
    pub net: Net,
    /// Offset of the network header; if `net` is `Other`, of the bytes after the link layer.
    pub l3: u32,
    /// The protocol above IP after every extension header; 0 outside IP.
    pub proto: u8,
    /// IP fragmentation.
    pub fragment: Fragment,
    /// Offset of the transport header, of the data of a later fragment, or of the bytes after IP (ESP,
    /// an unknown protocol); 0 if parsing stopped earlier.
    pub l4: u32,
    /// Source and destination port, if present (TCP, UDP, SCTP; not in later fragments).
    pub ports: Option<(u16, u16)>,
    /// TCP flags (byte 13), 0 outside TCP.
    pub tcp_flags: u8,
    /// Offset of the home address in an IPv6 destination option (RFC 6275), 0 for none.
    pub home_address: u32,
    /// Offset of the address in an IPv6 routing header type 2 (RFC 6275), 0 for none.
    pub routing2: u32,
    /// Offset of the bytes after the last parsed header.
    pub payload: u32,
    /// Offset of the first byte after the payload: the end of the frame, or of the IP packet or UDP
    /// datagram if bytes follow it (Ethernet padding, trailers).
    pub end: u32,
    /// The kind of the payload. `None` for fragments, whose payload is not a whole packet.
    pub next: Next,
    /// VNI, TEID, GRE key or ERSPAN session of the payload, if `next` is a tunnel; 0 for none.
    pub next_id: u32,
    /// VNI, TEID, GRE key or ERSPAN session of the tunnel that contains this level: the `next_id` of
    /// the level around it. 0 for none.
    pub tunnel_id: u32,
    /// Why parsing stopped early, if it did.
    pub fault: Option<Fault>,
}

impl Headers {
    /// The largest number of extension headers that are parsed; one more is
    /// [`Fault::TooManyExtensions`].
    pub const MAX_EXTENSIONS: usize = 16;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_fits_in_a_line_and_a_half() {
        assert!(size_of::<Headers>() <= 96, "{}", size_of::<Headers>());
    }
}
