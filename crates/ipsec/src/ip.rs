//! The IP header of a packet, as far as ESP needs it; and the header of a tunnel.
//!
//! ```text
//!  IPv4  [ header with options ]                               | ESP or upper layer
//!  IPv6  [ header | hop-by-hop | destination | routing ... ]   | ESP or upper layer
//! ```
//!
//! Invariants: offsets lie in the packet. All bytes are handled.

use std::net::IpAddr;

use flowyard_frame::proto;
use flowyard_wire::checksum;

/// The protocol number of "no next header", which a dummy packet has (RFC 4303 section 2.6).
pub(crate) const NO_NEXT: u8 = 59;

/// Extension headers that may stand in front of ESP, and their limit in a packet.
const IN_FRONT: [u8; 3] = [0, 43, 60];
const FRAGMENT: u8 = 44;
const MOST: usize = 8;

/// A packet's IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ip {
    pub(crate) is_v6: bool,
    /// Where the upper layer starts.
    pub(crate) upper: usize,
    /// The protocol of the upper layer, and where it is written.
    pub(crate) proto: u8,
    pub(crate) proto_at: usize,
    /// The length of the packet.
    pub(crate) total: usize,
    /// The traffic class: DSCP and ECN.
    pub(crate) tos: u8,
    pub(crate) is_fragment: bool,
    /// Whether routers must not fragment it.
    pub(crate) is_whole: bool,
    /// Whether it is a part of a packet other than the first.
    pub(crate) is_later: bool,
}

impl Ip {
    /// The header at the start of `packet`; `None` if it is not valid, or the packet is not complete.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::v4(packet),
            6 => Self::v6(packet),
            _ => None,
        }
    }

    fn v4(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<20>()?;
        let upper = usize::from(header[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let flags = u16::from_be_bytes([header[6], header[7]]);
        let is_valid = (20..=total).contains(&upper) && total <= packet.len();
        is_valid.then_some(Self {
            is_v6: false,
            upper,
            proto: header[9],
            proto_at: 9,
            total,
            tos: header[1],
            is_fragment: flags & 0x3fff != 0,
            is_whole: flags & 0x4000 != 0,
            is_later: flags & 0x1fff != 0,
        })
    }

    fn v6(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<40>()?;
        let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let packet = packet.get(..total)?;
        let mut ip = Self {
            is_v6: true,
            upper: 40,
            proto: header[6],
            proto_at: 6,
            total,
            tos: header[0] << 4 | header[1] >> 4,
            is_fragment: false,
            is_whole: true,
            is_later: false,
        };
        for _ in 0..MOST {
            let next = *packet.get(ip.upper..).and_then(|rest| rest.first()).unwrap_or(&NO_NEXT);
            if ip.proto == FRAGMENT {
                let at = packet.get(ip.upper..)?.first_chunk::<8>()?;
                let place = u16::from_be_bytes([at[2], at[3]]);
                // An atomic fragment is a whole packet (RFC 6946), but ESP cannot be put in front of its header here.
                (ip.is_fragment, ip.is_later) = (true, place & 0xfff8 != 0);
                return Some(ip);
            }
            if !IN_FRONT.contains(&ip.proto) {
                return Some(ip);
            }
            let len = 8 + usize::from(*packet.get(ip.upper + 1)?) * 8;
            (ip.proto_at, ip.proto) = (ip.upper, next);
            ip.upper = Some(ip.upper + len).filter(|upper| *upper <= total)?;
        }
        None
    }

    /// The addresses of `packet`.
    pub(crate) fn addresses(&self, packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
        if self.is_v6 {
            let at = |at: usize| packet.get(at..)?.first_chunk::<16>().copied().map(IpAddr::from);
            Some((at(8)?, at(24)?))
        } else {
            let at = |at: usize| packet.get(at..)?.first_chunk::<4>().copied().map(IpAddr::from);
            Some((at(12)?, at(16)?))
        }
    }

    /// Writes another protocol of the upper layer and another length into the header.
    pub(crate) fn change(&self, packet: &mut [u8], proto: u8, total: usize) {
        if let Some(byte) = packet.get_mut(self.proto_at) {
            *byte = proto;
        }
        let (at, len) = if self.is_v6 { (4, total.saturating_sub(40)) } else { (2, total) };
        if let Some(field) = packet.get_mut(at..at + 2) {
            field.copy_from_slice(&(len as u16).to_be_bytes());
        }
        if !self.is_v6 {
            write_sum(packet, self.upper);
        }
    }
}

/// Writes the traffic class of the packet's header, and its checksum.
pub(crate) fn set_tos(packet: &mut [u8], tos: u8) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let header = usize::from(packet[0] & 0xf) * 4;
            if let Some(field) = packet.get_mut(1) {
                *field = tos;
            }
            write_sum(packet, header);
        }
        Some(6) if packet.len() > 1 => {
            packet[0] = 0x60 | tos >> 4;
            packet[1] = packet[1] & 0xf | tos << 4;
        }
        _ => {}
    }
}

/// Computes the checksum of the IPv4 header of `header` bytes.
pub(crate) fn write_sum(packet: &mut [u8], header: usize) {
    if let Some(header) = packet.get_mut(..header).filter(|header| header.len() >= 20) {
        header[10..12].fill(0);
        let sum = checksum::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// What the header of a tunnel has in its fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outer {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) tos: u8,
    pub(crate) proto: u8,
    /// The identification of an IPv4 packet that may be fragmented.
    pub(crate) id: u16,
    pub(crate) is_whole: bool,
    pub(crate) hops: u8,
}

impl Outer {
    /// Writes the header into the first bytes of `packet`. Returns whether it fits and the addresses are of one family.
    pub(crate) fn write(&self, packet: &mut [u8]) -> bool {
        let total = packet.len();
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let Some(header) = packet.first_chunk_mut::<20>() else { return false };
                let [length, id] =
                    [total as u16, if self.is_whole { 0 } else { self.id }].map(u16::to_be_bytes);
                let flags = if self.is_whole { 0x40 } else { 0 };
                header[..2].copy_from_slice(&[0x45, self.tos]);
                header[2..4].copy_from_slice(&length);
                header[4..6].copy_from_slice(&id);
                header[6..12].copy_from_slice(&[flags, 0, self.hops, self.proto, 0, 0]);
                header[12..16].copy_from_slice(&src.octets());
                header[16..20].copy_from_slice(&dst.octets());
                write_sum(packet, 20);
                true
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let Some(header) = packet.first_chunk_mut::<40>() else { return false };
                header[..4].copy_from_slice(&[0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                header[4..6].copy_from_slice(&(total.saturating_sub(40) as u16).to_be_bytes());
                header[6..8].copy_from_slice(&[self.proto, self.hops]);
                header[8..24].copy_from_slice(&src.octets());
                header[24..40].copy_from_slice(&dst.octets());
                true
            }
            _ => false,
        }
    }
}

/// The header length of a tunnel to `dst`.
pub(crate) const fn outer_len(dst: IpAddr) -> usize {
    if dst.is_ipv6() { 40 } else { 20 }
}

/// The protocol number of a packet in a tunnel.
pub(crate) const fn inner_proto(is_v6: bool) -> u8 {
    if is_v6 { proto::IPV6 } else { proto::IPIP }
}
