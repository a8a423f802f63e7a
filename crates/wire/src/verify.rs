//! Verifies the checksums of frames, outer and inner, and tells wrong ones from those left to an adapter.

use std::net::{IpAddr, Ipv6Addr};

use crate::{
    Headers, LinkType, Net, Verdict, Verdicts,
    checksum::{Sum, transport_checksum, verify_ipv4_header, verify_sctp},
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

    /// As [`Headers::transport_checksum`], but a wrong checksum of TCP or UDP is partial if it is the sum of the
    /// pseudo header: a frame captured before its sender's adapter completed it.
    #[must_use]
    pub fn transport_verdict(&self, bytes: &[u8]) -> Verdict {
        match self.transport_checksum(bytes) {
            Verdict::Bad if self.is_partial(bytes) == Some(true) => Verdict::Partial,
            verdict => verdict,
        }
    }

    fn is_partial(&self, bytes: &[u8]) -> Option<bool> {
        let at = match self.proto {
            proto::TCP => 16,
            proto::UDP => 6,
            _ => return Some(false),
        };
        let segment = self.segment(bytes)?;
        let stored = segment.get(at..at + 2)?;
        let (src, dst) = (self.checksum_src(bytes)?, self.checksum_dst(bytes)?);
        let sum = Sum::ZERO.address(src).address(dst).word(self.proto.into());
        let sum = !sum.word(segment.len() as u64).finish();
        Some(sum.to_be_bytes() == stored)
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

/// The outermost and the innermost IP header of a frame, which are those that a frame's [`Verdicts`] are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ends {
    /// The outermost level with an IP header.
    pub outer: Option<Headers>,
    /// The innermost level with another IP header: `None` without a tunnel.
    pub inner: Option<Headers>,
}

impl Ends {
    /// The ends of the frame whose outermost level is `first`.
    #[must_use]
    pub fn of(first: &Headers, bytes: &[u8]) -> Self {
        let mut ends = Self::default();
        let levels = std::iter::successors(Some(*first), |level| level.inner(bytes));
        for level in levels.filter(|level| matches!(level.net, Net::Ipv4 | Net::Ipv6)) {
            let end = if ends.outer.is_none() { &mut ends.outer } else { &mut ends.inner };
            *end = Some(level);
        }
        ends
    }

    /// Verifies the checksums of both ends. An outer one is partial, too, if it is right for the packet with the inner
    /// one completed.
    #[must_use]
    pub fn verdicts(&self, bytes: &[u8]) -> Verdicts {
        let of = |end: &Option<Headers>| {
            end.as_ref().map_or_else(Default::default, |end| {
                (end.ipv4_checksum(bytes), end.transport_verdict(bytes))
            })
        };
        let ((ip, mut l4), (inner_ip, inner_l4)) = (of(&self.outer), of(&self.inner));
        if l4 == Verdict::Bad
            && inner_l4 == Verdict::Partial
            && self.is_right_when_completed(bytes) == Some(true)
        {
            l4 = Verdict::Partial;
        }
        Verdicts { ip, l4, inner_ip, inner_l4 }
    }
}

impl Ends {
    /// Whether the outer checksum covers the inner packet as it is when its partial checksum is completed: then the
    /// packet sums up to the complement of what its field holds now (local checksum offload).
    fn is_right_when_completed(&self, bytes: &[u8]) -> Option<bool> {
        let (outer, inner) = (self.outer.as_ref()?, self.inner.as_ref()?);
        let segment = outer.segment(bytes)?;
        let front = bytes.get(outer.l4 as usize..inner.l4 as usize)?;
        if outer.l4 as usize + segment.len() != inner.end as usize {
            return Some(false);
        }
        let field = inner.l4 as usize + if inner.proto == proto::TCP { 16 } else { 6 };
        let partial = bytes.get(field..field + 2)?;
        let (src, dst) = (outer.checksum_src(bytes)?, outer.checksum_dst(bytes)?);
        let pseudo = Sum::ZERO.address(src).address(dst).word(outer.proto.into());
        let inside = u64::from(!u16::from_be_bytes([partial[0], partial[1]]));
        let sum = pseudo.word(segment.len() as u64).bytes(front).word(inside);
        Some(front.len().is_multiple_of(2) && sum.finish() == 0)
    }
}

impl Verdicts {
    /// Verifies the checksums of a frame, outermost and innermost.
    #[must_use]
    pub fn of(link: LinkType, bytes: &[u8]) -> Self {
        Ends::of(&Headers::parse(link, bytes), bytes).verdicts(bytes)
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
mod tests;
