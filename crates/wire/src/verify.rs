//! Verifies the checksums of captured packets.

use std::net::{IpAddr, Ipv6Addr};

use crate::{
    Headers, Net,
    checksum::{transport_checksum, verify_ipv4_header, verify_sctp},
    ip::{extension_size, is_extension, proto},
};

/// The result of verifying a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The checksum is correct.
    Good,
    /// The checksum is wrong: the packet is damaged, or was captured before checksum offload.
    Bad,
    /// The sender did not compute it (UDP over IPv4, field zero).
    Absent,
    /// It cannot be verified: a fragment, a packet cut by the capture, a protocol without checksum.
    Unknown,
}

impl Verdict {
    const fn of(good: bool) -> Self {
        if good { Self::Good } else { Self::Bad }
    }
}

impl Headers {
    /// Verifies the IPv4 header checksum; `Unknown` outside IPv4.
    #[must_use]
    pub fn ipv4_checksum(&self, bytes: &[u8]) -> Verdict {
        let l3 = self.l3 as usize;
        let Some(first) = bytes.get(l3).filter(|_| self.net == Net::Ipv4) else {
            return Verdict::Unknown;
        };
        let size = usize::from(first & 0xf) * 4;
        bytes
            .get(l3..l3 + size)
            .map_or(Verdict::Unknown, |header| Verdict::of(verify_ipv4_header(header)))
    }

    /// Verifies the checksum of TCP, UDP, SCTP, ICMP or ICMPv6. It covers the whole datagram, so this
    /// reads the whole payload.
    #[must_use]
    pub fn transport_checksum(&self, bytes: &[u8]) -> Verdict {
        if self.proto == proto::UDP && self.l4 != 0 && !self.fragment.is_later() {
            // The field is zero even if the rest was not captured.
            let at = self.l4 as usize + 6;
            match (self.net, bytes.get(at..at + 2)) {
                (Net::Ipv4, Some([0, 0])) => return Verdict::Absent,
                (Net::Ipv6, Some([0, 0])) => return Verdict::Bad, // RFC 8200 section 8.1
                _ => {}
            }
        }
        let Some(segment) = self.segment(bytes) else { return Verdict::Unknown };
        match (self.proto, self.net) {
            (proto::SCTP, _) if segment.len() >= 12 => Verdict::of(verify_sctp(segment)),
            (proto::ICMP, Net::Ipv4) if segment.len() >= 4 => {
                Verdict::of(crate::checksum::checksum(segment) == 0)
            }
            (proto::TCP, _) if segment.len() >= 20 => self.pseudo(bytes, segment),
            (proto::UDP, _) if segment.len() >= 8 => self.pseudo(bytes, segment),
            (proto::ICMPV6, Net::Ipv6) if segment.len() >= 4 => self.pseudo(bytes, segment),
            _ => Verdict::Unknown,
        }
    }

    fn pseudo(&self, bytes: &[u8], segment: &[u8]) -> Verdict {
        match (self.checksum_src(bytes), self.checksum_dst(bytes)) {
            (Some(src), Some(dst)) => {
                Verdict::of(transport_checksum(src, dst, self.proto, segment) == 0)
            }
            _ => Verdict::Unknown,
        }
    }

    /// The transport header and the data that its checksum covers; `None` for fragments, and unless every
    /// byte was captured.
    #[must_use]
    pub fn segment<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.l4 == 0 || self.fragment.is_fragment() {
            return None;
        }
        let (l3, l4) = (self.l3 as usize, self.l4 as usize);
        let field =
            |at: usize| bytes.get(at..at + 2).map(|b| usize::from(b[0]) << 8 | usize::from(b[1]));
        // Zero means the captured length, see `Walk::ipv4`.
        let ip_end = match (self.net, field(l3 + 2)?, field(l3 + 4)?) {
            (Net::Ipv4, 0, _) | (Net::Ipv6, _, 0) => bytes.len(),
            (Net::Ipv4, total, _) => l3 + total,
            (Net::Ipv6, _, payload) => l3 + 40 + payload,
            _ => return None,
        };
        let end = match (self.proto, field(l4 + 4)) {
            (proto::UDP, Some(length)) if length >= 8 => l4 + length,
            _ => ip_end,
        };
        bytes.get(l4..end.min(bytes.len())).filter(|_| end <= ip_end.min(bytes.len()))
    }

    /// The source address of the pseudo header: the home address, if there is one (RFC 6275 11.3.1).
    #[must_use]
    pub fn checksum_src(&self, bytes: &[u8]) -> Option<IpAddr> {
        match self.home_address {
            0 => self.src_ip(bytes),
            at => address(bytes, at as usize),
        }
    }

    /// The destination address of the pseudo header: the last one on the route (RFC 8200 section 8.1).
    /// `None` if it is in a routing header of an unknown type.
    #[must_use]
    pub fn checksum_dst(&self, bytes: &[u8]) -> Option<IpAddr> {
        match self.last_hop(bytes)? {
            LastHop::Header => self.dst_ip(bytes),
            LastHop::Route(address) => Some(address),
        }
    }

    /// Whether the pseudo header has the destination of the IP header.
    #[must_use]
    pub fn covers_dst(&self, bytes: &[u8]) -> bool {
        matches!(self.last_hop(bytes), Some(LastHop::Header))
    }

    fn last_hop(&self, bytes: &[u8]) -> Option<LastHop> {
        if self.net == Net::Ipv4 {
            return Some(self.source_route(bytes).map_or(LastHop::Header, LastHop::Route));
        }
        let (mut at, end) = (self.l3 as usize + 40, self.l4 as usize);
        let mut next = *bytes.get(self.l3 as usize + 6)?;
        while at < end && is_extension(next) {
            let header = bytes.get(at..at + 8)?;
            if next == proto::ROUTING && header[3] != 0 {
                let address = match header[2] {
                    0 if header[1] >= 2 => address(bytes, at + 8 * usize::from(header[1]) - 8),
                    // Home address (RFC 6275); the last segment comes first (RFC 8754).
                    2 | 4 if header[1] >= 2 => address(bytes, at + 8),
                    _ => None,
                };
                return address.map(LastHop::Route);
            }
            at += extension_size(next, header[1]);
            next = header[0];
        }
        Some(LastHop::Header)
    }
}

/// Where the address of the last hop is.
enum LastHop {
    /// In the IP header.
    Header,
    /// In a source route or routing header, which has this address.
    Route(IpAddr),
}

impl Headers {
    /// The last address of an IPv4 source route with remaining hops (RFC 1122 section 3.2.1.8); the
    /// destination field has the next hop.
    fn source_route(&self, bytes: &[u8]) -> Option<IpAddr> {
        let l3 = self.l3 as usize;
        let size = usize::from(bytes.get(l3)? & 0xf) * 4;
        let mut options = bytes.get(l3 + 20..l3 + size)?;
        loop {
            options = match *options {
                [1, ref rest @ ..] => rest,
                [131 | 137, size, pointer, ..] if size >= 7 && pointer < size => {
                    let last = options.get(..size.into())?.last_chunk::<4>()?;
                    return Some(std::net::Ipv4Addr::from(*last).into());
                }
                [kind, size, ..] if kind != 0 && size >= 2 => options.get(size.into()..)?,
                _ => return None,
            };
        }
    }
}

fn address(bytes: &[u8], at: usize) -> Option<IpAddr> {
    let octets: &[u8; 16] = bytes.get(at..)?.first_chunk()?;
    Some(Ipv6Addr::from(*octets).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;

    /// An IPv6 packet with `extensions` and a UDP datagram, whose checksum is over `src` and `dst`.
    fn packet(next: u8, extensions: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let mut udp = vec![0, 1, 0, 2, 0, 11, 0, 0, 7, 8, 9];
        let sum = transport_checksum(src.into(), dst.into(), proto::UDP, &udp);
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        let mut bytes = vec![0x60, 0, 0, 0, 0, (extensions.len() + 11) as u8, next, 64];
        bytes.extend([[0xaa; 16], [0xbb; 16]].concat());
        bytes.extend(extensions);
        bytes.extend(udp);
        bytes
    }

    fn verdict(bytes: &[u8]) -> Verdict {
        Headers::parse(LinkType::RawIp, bytes).transport_checksum(bytes)
    }

    #[test]
    fn the_pseudo_header_has_the_ends_of_the_route() {
        let (src, dst, far) = ([0xaa; 16].into(), [0xbb; 16].into(), [0xcc; 16].into());
        let hop = |kind: u8, left: u8| [&[17, 2, kind, left, 0, 0, 0, 0][..], &[0xcc; 16]].concat();
        assert_eq!(verdict(&packet(17, &[], src, dst)), Verdict::Good);
        for kind in [0, 2, 4] {
            assert_eq!(verdict(&packet(43, &hop(kind, 1), src, far)), Verdict::Good, "type {kind}");
            assert_eq!(verdict(&packet(43, &hop(kind, 1), src, dst)), Verdict::Bad, "type {kind}");
            assert_eq!(
                verdict(&packet(43, &hop(kind, 0), src, dst)),
                Verdict::Good,
                "no remaining hops"
            );
        }
        assert_eq!(verdict(&packet(43, &hop(3, 1), src, dst)), Verdict::Unknown);
        let home = [&[17, 2, 1, 2, 0, 0, 0xc9, 16][..], &[0xcc; 16]].concat();
        assert_eq!(verdict(&packet(60, &home, far, dst)), Verdict::Good);
        assert_eq!(verdict(&packet(60, &home, src, dst)), Verdict::Bad);
    }

    #[test]
    fn an_absent_checksum_is_wrong_only_in_ipv6() {
        let (src, dst) = (Ipv6Addr::from([0xaa; 16]), Ipv6Addr::from([0xbb; 16]));
        let mut v6 = packet(17, &[], src, dst);
        v6[46..48].fill(0);
        assert_eq!(verdict(&v6), Verdict::Bad);
        let v4 = [&[0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0][..], &[1; 8], &v6[40..]].concat();
        assert_eq!(verdict(&v4), Verdict::Absent);
    }

    #[test]
    fn a_cut_packet_is_unknown() {
        let (src, dst) = (Ipv6Addr::from([0xaa; 16]), Ipv6Addr::from([0xbb; 16]));
        let whole = packet(17, &[], src, dst);
        assert_eq!(verdict(&whole[..whole.len() - 1]), Verdict::Unknown);
        let mut more = whole.clone();
        more.push(0xee); // padding is not summed
        assert_eq!(verdict(&more), Verdict::Good);
    }
}
