//! Views: single fields, read from the bytes of the frame that a level was parsed from.
//!
//! `bytes` is always the whole captured frame. With other bytes the result is wrong or `None`, but no
//! function panics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Headers, Net, ip::proto};

/// Type and code of an ICMP or ICMPv6 message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Icmp {
    /// The message type.
    pub kind: u8,
    /// The code within the type.
    pub code: u8,
}

/// `N` bytes at `at`.
#[inline]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

impl Headers {
    /// The destination MAC address.
    #[must_use]
    #[inline]
    pub fn eth_dst<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8; 6]> {
        chunk(bytes, self.eth? as usize)
    }

    /// The source MAC address.
    #[must_use]
    #[inline]
    pub fn eth_src<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8; 6]> {
        chunk(bytes, self.eth? as usize + 6)
    }

    /// The source address bytes, 4 or 16, in network order; empty outside IP.
    #[must_use]
    #[inline]
    pub fn src_octets<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.octets(bytes, 12, 8, 0)
    }

    /// The destination address bytes, 4 or 16, in network order; empty outside IP.
    #[must_use]
    #[inline]
    pub fn dst_octets<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.octets(bytes, 16, 8, 16)
    }

    #[inline]
    fn octets<'a>(&self, bytes: &'a [u8], v4: usize, v6: usize, skip: usize) -> &'a [u8] {
        let l3 = self.l3 as usize;
        let range = match self.net {
            Net::Ipv4 => l3 + v4..l3 + v4 + 4,
            Net::Ipv6 => l3 + v6 + skip..l3 + v6 + skip + 16,
            Net::Arp | Net::Other => return &[],
        };
        bytes.get(range).unwrap_or_default()
    }

    /// The source address of the IP header.
    #[must_use]
    #[inline]
    pub fn src_ip(&self, bytes: &[u8]) -> Option<IpAddr> {
        ip(self.src_octets(bytes))
    }

    /// The destination address of the IP header.
    #[must_use]
    #[inline]
    pub fn dst_ip(&self, bytes: &[u8]) -> Option<IpAddr> {
        ip(self.dst_octets(bytes))
    }

    /// IPv4 TOS or IPv6 traffic class: DSCP and ECN.
    #[must_use]
    #[inline]
    pub fn tos(&self, bytes: &[u8]) -> Option<u8> {
        let [first, second] = *chunk(bytes, self.l3 as usize)?;
        match self.net {
            Net::Ipv4 => Some(second),
            Net::Ipv6 => Some(first << 4 | second >> 4),
            Net::Arp | Net::Other => None,
        }
    }

    /// IPv4 time to live or IPv6 hop limit.
    #[must_use]
    #[inline]
    pub fn ttl(&self, bytes: &[u8]) -> Option<u8> {
        let at = match self.net {
            Net::Ipv4 => 8,
            Net::Ipv6 => 7,
            Net::Arp | Net::Other => return None,
        };
        bytes.get(self.l3 as usize + at).copied()
    }

    /// The 20-bit IPv6 flow label (RFC 6437).
    #[must_use]
    #[inline]
    pub fn flow_label(&self, bytes: &[u8]) -> Option<u32> {
        let word = chunk(bytes, self.l3 as usize).filter(|_| self.net == Net::Ipv6)?;
        Some(u32::from_be_bytes(*word) & 0xf_ffff)
    }

    /// Type and code of ICMP over IPv4 or ICMPv6 over IPv6, if this level has them.
    #[must_use]
    #[inline]
    pub fn icmp(&self, bytes: &[u8]) -> Option<Icmp> {
        match (self.net, self.proto) {
            (Net::Ipv4, proto::ICMP) | (Net::Ipv6, proto::ICMPV6) => {}
            _ => return None,
        }
        if self.l4 == 0 || self.fragment.is_later() {
            return None;
        }
        let [kind, code] = *chunk(bytes.get(..self.end as usize)?, self.l4 as usize)?;
        Some(Icmp { kind, code })
    }

    /// The bytes after the last parsed header, without padding.
    #[must_use]
    #[inline]
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.payload as usize..self.end as usize).unwrap_or_default()
    }
}

/// An address of 4 or 16 bytes.
#[inline]
fn ip(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(octets) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(octets).ok().map(|v6| Ipv6Addr::from(v6).into())
}
