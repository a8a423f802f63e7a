//! The ICMP error that tells a sender the MTU of a tunnel (RFC 1191, RFC 4443, RFC 4301 section 8.2).
//!
//! The packet is rewritten into the error: Ethernet header and tags stay, and the router sends it back. There is no error
//! about an ICMP error, or about a packet from or to a group address (RFC 1122 section 3.2.2, RFC 4443 section 2.4). A
//! core sends at most a thousand a second.

use std::net::IpAddr;

use flowyard_frame::{Frame, Nanos, proto};
use flowyard_pool::Pool;
use flowyard_wire::checksum;

use crate::ip::{Ip, Outer};

/// The most bytes of a packet that an error quotes: 576 in total for IPv4 (RFC 1812 section 4.3.2.3), 1280 for IPv6 (RFC
/// 4443 section 2.4).
const QUOTES: [usize; 2] = [548, 1232];

/// The header of the message.
const HEADER: usize = 8;

/// The hop limit, of which the router that follows takes one.
const HOPS: u8 = 65;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: u32,
    since: Nanos,
}

impl Allowance {
    const MOST: u32 = 1000;
    const EVERY: Nanos = 1_000_000_000 / Self::MOST as Nanos;

    pub(crate) const fn new() -> Self {
        Self { left: Self::MOST, since: 0 }
    }

    /// Takes a token. Returns false if there is none.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        let added = now.saturating_sub(self.since) / Self::EVERY;
        self.since += added * Self::EVERY;
        self.left = Self::MOST.min(self.left.saturating_add(added.min(Self::MOST.into()) as u32));
        let has = self.left > 0;
        self.left -= u32::from(has);
        has
    }
}

/// Whether an error about this packet is permitted.
fn may_be_answered(packet: &[u8], ip: &Ip) -> bool {
    let kind = packet.get(ip.upper).copied().unwrap_or_default();
    let is_error = match ip.proto {
        proto::ICMP => !ip.is_v6 && matches!(kind, 3 | 4 | 5 | 11 | 12),
        proto::ICMPV6 => ip.is_v6 && (kind < 128 || kind == 137),
        _ => false,
    };
    let is_one = |address: IpAddr| {
        let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        !address.is_multicast()
            && !address.is_unspecified()
            && !address.is_loopback()
            && !is_broadcast
    };
    !is_error && ip.addresses(packet).is_some_and(|(src, dst)| is_one(src) && is_one(dst))
}

/// Rewrites the frame, whose packet starts at `l3`, into an error to its sender: at most `mtu` bytes fit. `from` is the
/// source of the error. Returns false, without a change, if there must be no error.
pub(crate) fn too_big(frame: &mut Frame, pool: &Pool, l3: usize, from: IpAddr, mtu: usize) -> bool {
    let packet = pool.bytes(frame).get(l3..).unwrap_or_default();
    let Some(ip) = Ip::parse(packet).filter(|ip| may_be_answered(packet, ip)) else { return false };
    let Some((to, _)) = ip.addresses(packet) else { return false };
    if from.is_ipv6() != ip.is_v6 {
        return false;
    }
    let (header, mtu) = if ip.is_v6 { (40, mtu.max(1280)) } else { (20, mtu) };
    let quoted = ip.total.min(QUOTES[usize::from(ip.is_v6)]);
    if !pool.insert(frame, l3, header + HEADER) {
        return false;
    }
    pool.truncate(frame, l3 + header + HEADER + quoted);
    let packet = &mut pool.bytes_mut(frame)[l3..];
    let upper = if ip.is_v6 { proto::ICMPV6 } else { proto::ICMP };
    let outer =
        Outer { src: from, dst: to, tos: 0, proto: upper, id: 0, is_whole: true, hops: HOPS };
    let is_written = outer.write(packet);
    let message = &mut packet[header..];
    if ip.is_v6 {
        message[..4].copy_from_slice(&[2, 0, 0, 0]);
        message[4..8].copy_from_slice(&(mtu as u32).to_be_bytes());
        let sum = checksum::transport_checksum(from, to, proto::ICMPV6, message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    } else {
        message[..6].copy_from_slice(&[3, 4, 0, 0, 0, 0]);
        message[6..8].copy_from_slice(&(mtu.min(usize::from(u16::MAX)) as u16).to_be_bytes());
        let sum = checksum::checksum(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    is_written
}
