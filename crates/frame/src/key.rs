//! Flow keys: header fields at fixed offsets. A key is also used as a mask and as a filter.
//!
//! ```text
//!   0         16        32    34    36    37   38  39        40      46      52      54   56      58   60        64
//!   | src     | dst     |sport|dport|proto|frag|tos|tcp_flags|eth_dst|eth_src|eth_typ|vlan|in_port|flex|tunnel_id|
//! ```
//!
//! The first 37 bytes are the 5-tuple. IPv4 addresses are in the first four bytes of their 16-byte slot;
//! the other bytes are zero. A field that a frame does not have is zero. Integers are in host order,
//! addresses in network order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// IP protocol numbers (IANA) that flowyard distinguishes.
pub mod proto {
    #![allow(missing_docs, reason = "the names are IANA's own")]
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const IPIP: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const SCTP: u8 = 132;

    /// Protocols that can be written by name.
    pub const NAMES: [(&str, u8); 8] = [
        ("tcp", TCP),
        ("udp", UDP),
        ("sctp", SCTP),
        ("icmp", ICMP),
        ("icmp6", ICMPV6),
        ("gre", GRE),
        ("esp", ESP),
        ("ah", AH),
    ];

    /// Whether the protocol has ports.
    #[must_use]
    pub const fn has_ports(protocol: u8) -> bool {
        matches!(protocol, TCP | UDP | SCTP)
    }
}

/// Whether a frame is an IP fragment. An IPv6 "atomic" fragment (offset 0, no further fragments, RFC
/// 6946) is [`Frag::No`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frag {
    /// A whole datagram.
    No,
    /// The first fragment, which has the ports.
    First,
    /// A later fragment, which has no ports.
    Later,
}

/// Header fields at fixed offsets, 64 bytes; absent fields are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct FlowKey {
    /// Source address; IPv4 in the first four bytes.
    pub src: [u8; 16],
    /// Destination address; IPv4 in the first four bytes.
    pub dst: [u8; 16],
    /// Source port of TCP, UDP or SCTP; zero for any other protocol and for later fragments.
    pub sport: u16,
    /// Destination port, as `sport`.
    pub dport: u16,
    /// The protocol above IP, after all IPv6 extension headers.
    pub proto: u8,
    /// 0 for a whole datagram, 1 for a first, 2 for a later fragment; see [`FlowKey::fragment`].
    pub frag: u8,
    /// IPv4 TOS or IPv6 traffic class.
    pub tos: u8,
    /// TCP flags, byte 13 of the TCP header.
    pub tcp_flags: u8,
    /// Destination MAC address.
    pub eth_dst: [u8; 6],
    /// Source MAC address.
    pub eth_src: [u8; 6],
    /// The EtherType after all tags and labels: 0x0800, 0x86dd, 0x0806, ...
    pub eth_type: u16,
    /// TCI of the outermost VLAN tag; zero when untagged.
    pub vlan_tci: u16,
    /// Number of the port that received the frame.
    pub in_port: u16,
    /// Two bytes from a configurable offset of the frame, as adapters match on.
    pub flex: u16,
    /// VNI, TEID or GRE key of the tunnel that contains these headers; zero outside a tunnel.
    pub tunnel_id: u32,
}

/// TCP flag bits, as in byte 13 of the TCP header.
impl FlowKey {
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// RST.
    pub const RST: u8 = 0x04;
    /// ACK.
    pub const ACK: u8 = 0x10;
}

impl FlowKey {
    /// All fields zero; as a mask, it matches every frame.
    pub const ZERO: Self = Self {
        src: [0; 16],
        dst: [0; 16],
        sport: 0,
        dport: 0,
        proto: 0,
        frag: 0,
        tos: 0,
        tcp_flags: 0,
        eth_dst: [0; 6],
        eth_src: [0; 6],
        eth_type: 0,
        vlan_tci: 0,
        in_port: 0,
        flex: 0,
        tunnel_id: 0,
    };

    /// The mask of a flow: the 5-tuple and the EtherType.
    pub const FLOW: Self = Self {
        src: [0xff; 16],
        dst: [0xff; 16],
        sport: 0xffff,
        dport: 0xffff,
        proto: 0xff,
        eth_type: 0xffff,
        ..Self::ZERO
    };

    /// A key with a 5-tuple and the matching EtherType. Both addresses must have the same family.
    #[must_use]
    pub fn five_tuple(proto: u8, src: IpAddr, sport: u16, dst: IpAddr, dport: u16) -> Self {
        debug_assert_eq!(src.is_ipv4(), dst.is_ipv4());
        let eth_type = if src.is_ipv4() { 0x0800 } else { 0x86dd };
        Self { src: slot(src), dst: slot(dst), sport, dport, proto, eth_type, ..Self::ZERO }
    }

    /// This key with the fields outside `mask` cleared.
    #[must_use]
    #[inline]
    pub fn masked(&self, mask: &Self) -> Self {
        let (own, mask): ([u64; 8], [u64; 8]) =
            (zerocopy::transmute!(*self), zerocopy::transmute!(*mask));
        zerocopy::transmute!(std::array::from_fn::<u64, 8, _>(|i| own[i] & mask[i]))
    }

    /// The union of two masks.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (own, other): ([u64; 8], [u64; 8]) =
            (zerocopy::transmute!(*self), zerocopy::transmute!(*other));
        zerocopy::transmute!(std::array::from_fn::<u64, 8, _>(|i| own[i] | other[i]))
    }

    /// Whether all bits of this key, or mask, are also in `mask`.
    #[must_use]
    pub fn is_within(&self, mask: &Self) -> bool {
        self.masked(mask) == *self
    }

    /// The flow of this frame: the key under [`FlowKey::FLOW`].
    #[must_use]
    #[inline]
    pub fn flow(&self) -> Self {
        self.masked(&Self::FLOW)
    }

    /// The key of the opposite direction: source and destination addresses, ports and MACs exchanged.
    #[must_use]
    #[inline]
    pub fn reversed(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            eth_dst: self.eth_src,
            eth_src: self.eth_dst,
            ..*self
        }
    }

    /// Whether the frame is an IP fragment.
    #[must_use]
    #[inline]
    pub const fn fragment(&self) -> Frag {
        match self.frag {
            0 => Frag::No,
            1 => Frag::First,
            _ => Frag::Later,
        }
    }

    /// Whether the frame is IPv4.
    #[must_use]
    #[inline]
    pub const fn is_ipv4(&self) -> bool {
        self.eth_type == 0x0800
    }

    /// Whether the frame is IPv6.
    #[must_use]
    #[inline]
    pub const fn is_ipv6(&self) -> bool {
        self.eth_type == 0x86dd
    }

    /// Whether the frame is IPv4 or IPv6.
    #[must_use]
    #[inline]
    pub const fn is_ip(&self) -> bool {
        self.is_ipv4() || self.is_ipv6()
    }

    /// Source address, if the frame is IP.
    #[must_use]
    pub fn src_ip(&self) -> Option<IpAddr> {
        self.ip(&self.src)
    }

    /// Destination address, if the frame is IP.
    #[must_use]
    pub fn dst_ip(&self) -> Option<IpAddr> {
        self.ip(&self.dst)
    }

    fn ip(&self, slot: &[u8; 16]) -> Option<IpAddr> {
        if self.is_ipv4() {
            Some(Ipv4Addr::new(slot[0], slot[1], slot[2], slot[3]).into())
        } else if self.is_ipv6() {
            Some(Ipv6Addr::from(*slot).into())
        } else {
            None
        }
    }
}

/// The 16-byte slot of a key for an address.
fn slot(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => {
            let mut slot = [0; 16];
            slot[..4].copy_from_slice(&v4.octets());
            slot
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> FlowKey {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        FlowKey::five_tuple(proto::TCP, a.into(), 40000, b.into(), 11211)
    }

    #[test]
    fn the_flow_is_the_five_tuple() {
        let seen = FlowKey { tcp_flags: FlowKey::SYN, tos: 3, vlan_tci: 7, ..key() };
        assert_eq!(seen.flow(), key());
        assert_eq!(seen.masked(&FlowKey::ZERO), FlowKey::ZERO);
        assert!(seen.flow().is_within(&FlowKey::FLOW) && !seen.is_within(&FlowKey::FLOW));
        let vlan = FlowKey { vlan_tci: 0xfff, ..FlowKey::ZERO };
        assert_eq!(seen.masked(&vlan.union(&FlowKey::FLOW)), FlowKey { vlan_tci: 7, ..key() });
        assert_eq!(seen.reversed().reversed(), seen);
        let sent = FlowKey { eth_src: [1; 6], eth_dst: [2; 6], ..seen };
        assert_eq!((sent.reversed().eth_src, sent.reversed().eth_dst), ([2; 6], [1; 6]));
    }

    /// Bit by bit: what a mask keeps, what two masks keep together, and which masks lie in which.
    #[test]
    fn masks_are_sets_of_bits() {
        let mut rng = crate::rng::Rng::new(1);
        let mut key = || -> FlowKey {
            let words: [u64; 8] = std::array::from_fn(|_| rng.bits());
            zerocopy::transmute!(words)
        };
        let words = |key: FlowKey| -> [u64; 8] { zerocopy::transmute!(key) };
        for _ in 0..100 {
            let (a, b) = (key(), key());
            let both: [u64; 8] = std::array::from_fn(|i| words(a)[i] & words(b)[i]);
            let either: [u64; 8] = std::array::from_fn(|i| words(a)[i] | words(b)[i]);
            assert_eq!((words(a.masked(&b)), words(a.union(&b))), (both, either));
            assert!(a.masked(&b).is_within(&b) && a.is_within(&a.union(&b)));
            assert!(!a.union(&b).is_within(&b) && FlowKey::ZERO.is_within(&a));
        }
    }

    #[test]
    fn only_ip_has_addresses() {
        let (v4, v6) = (Ipv4Addr::new(1, 2, 3, 4), Ipv6Addr::from([1, 2, 3, 4, 0, 0, 7, 8]));
        let slots = FlowKey { src: slot(v4.into()), dst: slot(v6.into()), ..FlowKey::ZERO };
        let as_v6 = Ipv6Addr::from([0x102, 0x304, 0, 0, 0, 0, 0, 0]);
        for (eth_type, is_ipv4, is_ipv6, ips) in [
            (0x0800, true, false, Some((v4.into(), Ipv4Addr::new(0, 1, 0, 2).into()))),
            (0x86dd, false, true, Some((as_v6.into(), v6.into()))),
            (0x0806, false, false, None),
            (0, false, false, None),
        ] {
            let key = FlowKey { eth_type, ..slots };
            assert_eq!((key.is_ipv4(), key.is_ipv6()), (is_ipv4, is_ipv6), "{eth_type:#x}");
            assert_eq!(key.is_ip(), is_ipv4 || is_ipv6, "{eth_type:#x}");
            assert_eq!(key.src_ip().zip(key.dst_ip()), ips, "{eth_type:#x}");
            assert_eq!(key.src_ip().is_some(), key.dst_ip().is_some(), "{eth_type:#x}");
        }
    }

    #[test]
    fn the_fragment_and_the_ports_of_every_number() {
        for n in 0..=255 {
            let fragment = match n {
                0 => Frag::No,
                1 => Frag::First,
                _ => Frag::Later,
            };
            assert_eq!(FlowKey { frag: n, ..FlowKey::ZERO }.fragment(), fragment, "{n}");
            assert_eq!(proto::has_ports(n), [6, 17, 132].contains(&n), "{n}");
        }
    }
}
