//! Verifies the checksums of captured packets.

use std::net::{IpAddr, Ipv6Addr};

use crate::{
    Headers, Net, Verdict,
    checksum::{transport_checksum, verify_ipv4_header, verify_sctp},
    ip::{extension_size, is_extension, proto},
};

impl Headers {
    /// Verifies the IPv4 header checksum; `NotChecked` outside IPv4.
    #[must_use]
    pub fn ipv4_checksum(&self, bytes: &[u8]) -> Verdict {
        let l3 = self.l3 as usize;
        let Some(first) = bytes.get(l3).filter(|_| self.net == Net::Ipv4) else {
            return Verdict::NotChecked;
        };
        let size = usize::from(first & 0xf) * 4;
        bytes
            .get(l3..l3 + size)
            .map_or(Verdict::NotChecked, |header| Verdict::of(verify_ipv4_header(header)))
    }

    /// Verifies the checksum of TCP, UDP, SCTP, ICMP or ICMPv6. It covers the whole datagram, so this
    /// reads the whole payload.
    #[must_use]
    pub fn transport_checksum(&self, bytes: &[u8]) -> Verdict {
        if self.proto == proto::UDP && self.l4 != 0 && !self.fragment.is_later() {
            // The field is zero even if the rest was not captured.
            let at = self.l4 as usize + 6;
            match (self.net, bytes.get(at..at + 2)) {
                (Net::Ipv4, Some([0, 0])) => return Verdict::NotChecked,
                (Net::Ipv6, Some([0, 0])) => return Verdict::Bad, // RFC 8200 section 8.1
                _ => {}
            }
        }
        let Some(segment) = self.segment(bytes) else { return Verdict::NotChecked };
        match (self.proto, self.net) {
            (proto::SCTP, _) if segment.len() >= 12 => Verdict::of(verify_sctp(segment)),
            (proto::ICMP, Net::Ipv4) if segment.len() >= 4 => {
                Verdict::of(crate::checksum::checksum(segment) == 0)
            }
            (proto::TCP, _) if segment.len() >= 20 => self.pseudo(bytes, segment),
            (proto::UDP, _) if segment.len() >= 8 => self.pseudo(bytes, segment),
            (proto::ICMPV6, Net::Ipv6) if segment.len() >= 4 => self.pseudo(bytes, segment),
            _ => Verdict::NotChecked,
        }
    }

    fn pseudo(&self, bytes: &[u8], segment: &[u8]) -> Verdict {
        match (self.checksum_src(bytes), self.checksum_dst(bytes)) {
            (Some(src), Some(dst)) => {
                Verdict::of(transport_checksum(src, dst, self.proto, segment) == 0)
            }
            _ => Verdict::NotChecked,
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
        assert_eq!(verdict(&packet(43, &hop(3, 1), src, dst)), Verdict::NotChecked);
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
        assert_eq!(verdict(&v4), Verdict::NotChecked);
    }

    #[test]
    fn a_cut_packet_is_unknown() {
        let (src, dst) = (Ipv6Addr::from([0xaa; 16]), Ipv6Addr::from([0xbb; 16]));
        let whole = packet(17, &[], src, dst);
        assert_eq!(verdict(&whole[..whole.len() - 1]), Verdict::NotChecked);
        let mut more = whole.clone();
        more.push(0xee); // padding is not summed
        assert_eq!(verdict(&more), Verdict::Good);
    }

    /// The pseudo header has the end of the route, whatever extension headers stand in front of it.
    #[test]
    fn a_route_is_found_behind_other_extensions() {
        let (src, dst, far) = ([0xaa; 16].into(), [0xbb; 16].into(), [0xcc; 16].into());
        let plain = |next: u8| [&[next, 1][..], &[0; 14]].concat();
        let fronts = |next: u8| {
            [
                (0, [&[next, 1, 1, 12][..], &[0; 12]].concat()), // hop-by-hop
                (60, [&[next, 1, 1, 12][..], &[0; 12]].concat()), // destination
                (44, vec![next, 0xff, 0, 0, 0, 0, 0, 9]),        // atomic fragment
                (51, [&[next, 2, 0, 0][..], &[0; 12]].concat()), // authentication
                (135, plain(next)),
                (139, plain(next)),
                (140, plain(next)),
            ]
        };
        // Type, words, and the place of the last address: at the end, or for types 2 and 4 in front.
        for (kind, words, place) in [(0, 2, 0), (0, 4, 16), (0, 6, 32), (2, 2, 0), (4, 4, 0)] {
            let mut route = vec![17, words, kind, 1];
            route.resize(8 + 8 * usize::from(words), 0xdd);
            route[8 + place..24 + place].fill(0xcc);
            for (first, front) in fronts(43) {
                let packet = packet(first, &[front, route.clone()].concat(), src, far);
                let headers = Headers::parse(LinkType::RawIp, &packet);
                let name = format!("type {kind} of {words} words behind {first}");
                assert_eq!(headers.checksum_dst(&packet), Some(far.into()), "{name}");
                assert!(!headers.covers_dst(&packet), "{name}");
                assert_eq!(headers.transport_checksum(&packet), Verdict::Good, "{name}");
            }
        }
        for (first, front) in fronts(17) {
            assert_eq!(verdict(&packet(first, &front, src, dst)), Verdict::Good, "only {first}");
        }
        // A route that is too short for an address, or ends in front of its last.
        for (kind, words) in [(0, 1), (2, 1), (4, 1), (0, 0)] {
            let mut route = vec![17, words, kind, 1];
            route.resize(8 + 8 * usize::from(words), 0xcc);
            assert_eq!(verdict(&packet(43, &route, src, dst)), Verdict::NotChecked, "{kind}");
        }
    }

    /// The least segment of each protocol has a checksum; a shorter one has none.
    #[test]
    fn a_segment_shorter_than_its_header_is_unknown() {
        for (proto, least, v4, v6) in [
            (6, 20, true, true),
            (17, 8, true, true),
            (132, 12, true, true),
            (1, 4, true, false),
            (58, 4, false, true),
        ] {
            for len in 0..=least {
                let mut segment = vec![0x50; len];
                if proto == 17 && len >= 6 {
                    segment[4..6].copy_from_slice(&[0, 8]);
                }
                let mut ipv4 = vec![0x45, 0, 0, 20 + len as u8, 0, 0, 0, 0, 64, proto, 0, 0];
                ipv4.extend([1; 8]);
                let mut ipv6 = vec![0x60, 0, 0, 0, 0, len as u8, proto, 64];
                ipv6.extend([1; 32]);
                for (has, mut bytes) in [(v4, ipv4), (v6, ipv6)] {
                    bytes.extend(&segment);
                    let want = if has && len == least { Verdict::Bad } else { Verdict::NotChecked };
                    assert_eq!(verdict(&bytes), want, "protocol {proto}, {len} bytes, {bytes:x?}");
                }
            }
        }
    }

    /// ICMP has no pseudo header; the IPv4 header has a checksum of its own, with its options.
    #[test]
    fn checksums_without_a_pseudo_header() {
        for words in 5..=15_u8 {
            let header = usize::from(words) * 4;
            let mut bytes = vec![0x40 | words, 0, 0, header as u8 + 8, 0, 0, 0, 0, 64, 1, 0, 0];
            bytes.extend([9; 8]);
            bytes.resize(header, 1);
            let sum = crate::checksum::checksum(&bytes);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend([8, 0, 0xe6, 0xf8, 0x11, 7, 0, 0]);
            let frame = [&[2; 12][..], &[8, 0], &bytes].concat();
            for (link, l3, bytes) in [(LinkType::RawIp, 0, bytes), (LinkType::Ethernet, 14, frame)]
            {
                let check = |bytes: &[u8]| {
                    let headers = Headers::parse(link, bytes);
                    (headers.ipv4_checksum(bytes), headers.transport_checksum(bytes))
                };
                assert_eq!(check(&bytes), (Verdict::Good, Verdict::Good), "{words} words");
                for at in [8, 12, header - 1] {
                    let mut damaged = bytes.clone();
                    damaged[l3 + at] ^= 4;
                    assert_eq!(check(&damaged).0, Verdict::Bad, "{words} words, byte {at}");
                }
                let mut damaged = bytes.clone();
                damaged[l3 + header + 7] ^= 1;
                assert_eq!(check(&damaged), (Verdict::Good, Verdict::Bad), "{words} words");
                let cut = &bytes[..l3 + header - 1];
                assert_eq!(check(cut), (Verdict::NotChecked, Verdict::NotChecked), "{words} words");
            }
        }
    }

    /// A fragment, and a level without IP, have no segment.
    #[test]
    fn no_segment_without_a_whole_datagram() {
        let (src, dst) = ([0xaa; 16].into(), [0xbb; 16].into());
        for (word, is_whole) in [(0, true), (1, false), (8, false), (9, false)] {
            let bytes = packet(44, &[17, 0, 0, word, 0, 0, 0, 1], src, dst);
            let headers = Headers::parse(LinkType::RawIp, &bytes);
            assert_eq!(headers.segment(&bytes).is_some(), is_whole, "{word}");
            let want = if is_whole { Verdict::Good } else { Verdict::NotChecked };
            assert_eq!(headers.transport_checksum(&bytes), want, "{word}");
        }
        let arp = [&[2; 12][..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[9; 20]].concat();
        let headers = Headers::parse(LinkType::Ethernet, &arp);
        assert_eq!(
            (headers.segment(&arp), headers.ipv4_checksum(&arp)),
            (None, Verdict::NotChecked)
        );
    }

    /// A length of zero means up to the end of the captured bytes.
    #[test]
    fn an_open_packet_ends_with_the_frame() {
        let (src, dst) = ([0xaa; 16].into(), [0xbb; 16].into());
        let mut v6 = packet(17, &[], src, dst);
        v6[4..6].fill(0);
        assert_eq!(verdict(&v6), Verdict::Good);
        v6.push(0xee); // behind the datagram, which has its own length
        assert_eq!(verdict(&v6), Verdict::Good);
        let mut v4 = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
        v4.extend([8, 0, 0xe6, 0xf8, 0x11, 7, 0, 0]);
        assert_eq!(verdict(&v4), Verdict::Good);
        v4.push(0xee);
        assert_eq!(verdict(&v4), Verdict::Bad, "the frame is the packet");
    }
}
