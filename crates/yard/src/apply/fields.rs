//! Operations that change header fields in place, and the checksums over them.
//!
//! ```text
//!  changed             IPv4 header   TCP, UDP          ICMPv6    SCTP
//!  TTL, DSCP           follows       -                 -         -
//!  address             follows       pseudo header     as TCP    -
//!  port                -             follows           -         CRC-32C: linear
//! ```
//!
//! The positions come from `wire`, which parsed the same bytes; each is checked against the length again.

use std::net::IpAddr;

use flowyard_frame::proto;
use flowyard_wire::checksum::{crc32c, update_bytes};
use flowyard_wire::{Headers, Net};

use super::{Op, tags};
use crate::counters::DropReason;

/// UDP-Lite (RFC 3828) and DCCP (RFC 4340) use the pseudo header of UDP and have their checksum in the
/// same place. `wire` does not read their ports, so these stay.
const UDP_LIKE: [u8; 3] = [proto::UDP, 136, 33];

/// Applies `op` to `bytes`, whose headers are `headers`.
pub(super) fn set(op: Op, h: &Headers, bytes: &mut [u8]) -> Result<(), DropReason> {
    match op {
        Op::SetEthDst(mac) => ethernet(h, bytes, 0, mac),
        Op::SetEthSrc(mac) => ethernet(h, bytes, 6, mac),
        Op::SetVlan(vid) if h.eth.is_some() => tags::change(bytes, 0x0fff, vid),
        Op::SetPcp(pcp) if h.eth.is_some() => tags::change(bytes, 0xe000, u16::from(pcp) << 13),
        Op::DecTtl => return dec_ttl(h, bytes),
        Op::SetSrc(ip) => address(h, bytes, Side::Src, ip),
        Op::SetDst(ip) => address(h, bytes, Side::Dst, ip),
        Op::SetSport(port) => return self::port(h, bytes, 0, port),
        Op::SetDport(port) => return self::port(h, bytes, 2, port),
        Op::SetDscp(dscp) => set_dscp(h, bytes, dscp),
        // Links without Ethernet have no addresses; other operations are not handled here.
        Op::SetVlan(_) | Op::SetPcp(_) | Op::PushVlan { .. } | Op::PopVlan | Op::SetMark(_) => {}
    }
    Ok(())
}

fn ethernet(h: &Headers, bytes: &mut [u8], at: usize, mac: [u8; 6]) {
    if let Some(eth) = h.eth
        && let Some(field) = chunk_mut(bytes, eth as usize + at)
    {
        *field = mac;
    }
}

fn dec_ttl(h: &Headers, bytes: &mut [u8]) -> Result<(), DropReason> {
    let l3 = h.l3 as usize;
    let ttl = match h.ttl(bytes) {
        None => return Ok(()),
        Some(0 | 1) => return Err(DropReason::TtlExpired),
        Some(ttl) => ttl - 1,
    };
    match h.net {
        Net::Ipv4 => ipv4_word(h, bytes, 8, |[_, proto]| [ttl, proto]),
        _ => {
            if let Some([limit]) = chunk_mut(bytes, l3 + 7) {
                *limit = ttl;
            }
        }
    }
    Ok(())
}

fn set_dscp(h: &Headers, bytes: &mut [u8], dscp: u8) {
    let Some(tos) = h.tos(bytes) else { return };
    let tos = dscp << 2 | tos & 0b11;
    match h.net {
        Net::Ipv4 => ipv4_word(h, bytes, 0, |[version, _]| [version, tos]),
        _ => {
            if let Some([first, second]) = chunk_mut(bytes, h.l3 as usize) {
                *first = *first & 0xf0 | tos >> 4;
                *second = *second & 0x0f | tos << 4;
            }
        }
    }
}

/// Changes the 16-bit word at `at` of the IPv4 header, and the header checksum.
fn ipv4_word(h: &Headers, bytes: &mut [u8], at: usize, new: impl Fn([u8; 2]) -> [u8; 2]) {
    let l3 = h.l3 as usize;
    let Some(word) = chunk_mut(bytes, l3 + at) else { return };
    let old = std::mem::replace(word, new(*word));
    follow(bytes, l3 + 10, &old, &new(old));
}

/// Source or destination address.
#[derive(Clone, Copy)]
enum Side {
    Src,
    Dst,
}

impl Side {
    /// The address that the transport checksum covers. It differs from that of the IP header if the packet has a
    /// home address option or a routing header.
    fn covered(self, h: &Headers, bytes: &[u8]) -> Option<IpAddr> {
        match self {
            Self::Src => h.checksum_src(bytes),
            Self::Dst => h.checksum_dst(bytes),
        }
    }
}

fn address(h: &Headers, bytes: &mut [u8], side: Side, ip: IpAddr) {
    let l3 = h.l3 as usize;
    let before = side.covered(h, bytes);
    match (h.net, ip, side) {
        (Net::Ipv4, IpAddr::V4(ip), _) => {
            let at = l3 + if matches!(side, Side::Src) { 12 } else { 16 };
            let Some(field) = chunk_mut(bytes, at) else { return };
            let old: [u8; 4] = std::mem::replace(field, ip.octets());
            follow(bytes, l3 + 10, &old, &ip.octets());
        }
        (Net::Ipv6, IpAddr::V6(ip), _) => {
            let at = l3 + if matches!(side, Side::Src) { 8 } else { 24 };
            let Some(field) = chunk_mut(bytes, at) else { return };
            *field = ip.octets();
        }
        _ => return,
    }
    if let (Some(old), Some(new)) = (before, side.covered(h, bytes)) {
        match (old, new) {
            (IpAddr::V4(old), IpAddr::V4(new)) => {
                transport_follows(h, bytes, &old.octets(), &new.octets());
            }
            (IpAddr::V6(old), IpAddr::V6(new)) => {
                transport_follows(h, bytes, &old.octets(), &new.octets());
            }
            _ => {}
        }
    }
}

fn port(h: &Headers, bytes: &mut [u8], at: usize, port: u16) -> Result<(), DropReason> {
    if h.ports.is_none() {
        return Ok(());
    }
    let (l4, new) = (h.l4 as usize, port.to_be_bytes());
    if h.proto == proto::SCTP {
        return sctp_port(h, bytes, at, new);
    }
    if let Some(field) = chunk_mut(bytes, l4 + at) {
        let old = std::mem::replace(field, new);
        transport_follows(h, bytes, &old, &new);
    }
    Ok(())
}

/// CRC is linear: the CRC of a sum is the sum of the CRCs of equal lengths. The change of the packet
/// changes the CRC by the CRC of the change.
fn sctp_port(h: &Headers, bytes: &mut [u8], at: usize, new: [u8; 2]) -> Result<(), DropReason> {
    let crc = |bytes: &[u8]| h.segment(bytes).filter(|s| s.len() >= 12).map(|s| crc32c(&[s]));
    let (before, l4) = (crc(bytes).ok_or(DropReason::Incomplete)?, h.l4 as usize);
    if let Some(field) = chunk_mut(bytes, l4 + at) {
        *field = new;
    }
    let change = before ^ crc(bytes).unwrap_or(before);
    if let Some(field) = chunk_mut(bytes, l4 + 8) {
        *field = (u32::from_le_bytes(*field) ^ change).to_le_bytes();
    }
    Ok(())
}

/// Updates the transport checksum, if present, after a change of covered bytes or of the pseudo header.
fn transport_follows(h: &Headers, bytes: &mut [u8], old: &[u8], new: &[u8]) {
    if h.l4 == 0 || h.fragment.is_later() {
        return;
    }
    let l4 = h.l4 as usize;
    let udp = UDP_LIKE.contains(&h.proto);
    let at = match (h.proto, h.net) {
        (proto::TCP, _) => l4 + 16,
        (proto::ICMPV6, Net::Ipv6) => l4 + 2,
        _ if udp => l4 + 6,
        _ => return,
    };
    if at + 2 > h.end as usize || old == new {
        return;
    }
    if h.proto == proto::UDP && bytes.get(at..at + 2) == Some(&[0, 0]) {
        return; // the sender left it out (RFC 768; in tunnels over IPv6: RFC 6935)
    }
    follow(bytes, at, old, new);
    if udp && bytes.get(at..at + 2) == Some(&[0, 0]) {
        bytes[at..at + 2].fill(0xff); // zero would mean that there is no checksum
    }
}

/// Updates the checksum at `at` after a change from `old` to `new` (RFC 1624).
fn follow(bytes: &mut [u8], at: usize, old: &[u8], new: &[u8]) {
    if let Some(field) = chunk_mut(bytes, at)
        && let Some(check) = update_bytes(u16::from_be_bytes(*field), old, new)
    {
        *field = check.to_be_bytes();
    }
}

/// `N` bytes at `at`.
fn chunk_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}
