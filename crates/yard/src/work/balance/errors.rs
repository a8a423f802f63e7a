//! ICMP: errors that clients' networks send go to the backend whose packet they quote; and "packet
//! too big", which a tunnel makes necessary.

use std::net::IpAddr;

use flowyard_frame::{Batch, FlowKey, Nanos, proto};
use flowyard_lb::icmp::{HEADER, quoted};
use flowyard_lb::{ConnKey, Mode};
use flowyard_wire::checksum::{self, Sum};

use super::rewrite::{Packet, Side};
use super::{Balance, Handle, Way};
use crate::counters::DropReason;
use crate::pool::Pool;
use crate::port::refuse;

/// The most bytes of a packet that an ICMPv4 error quotes: 576 in all (RFC 1812 section 4.3.2.3).
const QUOTE_V4: usize = 548;
/// Of an ICMPv6 one: 1280 in all (RFC 4443 section 2.4).
const QUOTE_V6: usize = 1232;

impl Balance {
    /// What is for a VIP and has no ports: an error about a packet from it, or nothing for us.
    pub(super) fn error(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, now: Nanos) {
        let key = batch.keys[lane];
        let v6 = key.is_ipv6();
        let is_icmp = key.proto == if v6 { proto::ICMPV6 } else { proto::ICMP };
        let Some(packet) = Packet::new(pool.bytes_mut(&mut batch.frames[lane]), &key) else {
            return refuse(batch, lane, DropReason::Malformed);
        };
        let message = packet.bytes.get(packet.l4..).unwrap_or_default();
        let Some(about) = is_icmp.then(|| quoted(message, v6)).flatten() else {
            return self.other(batch, lane, pool, now);
        };
        // The quoted packet went from the VIP to the client.
        let flow = about.flow.reversed();
        let conn = ConnKey::of(&flow);
        let hash = conn.hash(self.plan.seed());
        let stateless = || {
            let service = self.plan.service(flow.dst_ip()?, flow.proto, flow.dport)?;
            let target = self.plan.fall_back(service, &conn, hash)?;
            Some(Way { backend: target.id, home: None })
        };
        let Some(way) = self.way_of(&conn, hash, now).or_else(stateless) else {
            return self.other(batch, lane, pool, now);
        };
        let Some(target) = self.plan.target(way.backend) else {
            return refuse(batch, lane, DropReason::NoBackend);
        };
        if target.mode.translates() {
            let local = way.home.and_then(|home| self.locals.of(home, v6));
            let client = match (target.mode, local) {
                (Mode::FullNat, None) => return refuse(batch, lane, DropReason::NoConnection),
                (Mode::FullNat, Some(local)) => Some((local.addr, local.port)),
                _ => None,
            };
            let frame = pool.bytes_mut(&mut batch.frames[lane]);
            if !translate(frame, &key, about.flow, (target.addr, target.port), client) {
                return refuse(batch, lane, DropReason::Malformed);
            }
            let exit = target.exit;
            self.whose.set(Some(way.backend));
            return super::out(batch, lane, pool, exit);
        }
        self.forward(batch, lane, pool, way, hash);
    }
}

/// Has an error of which `key` is the key, about a packet of `flow`, look as the backend sees it:
/// from its own address, to `client` if that is another than it was.
fn translate(
    frame: &mut [u8],
    key: &FlowKey,
    flow: FlowKey,
    (addr, port): (IpAddr, Option<u16>),
    client: Option<(IpAddr, u16)>,
) -> bool {
    let Some(mut outer) = Packet::new(frame, key) else { return false };
    let l4 = outer.l4;
    let sum = |outer: &Packet<'_>| !checksum::checksum(outer.bytes.get(l4..).unwrap_or_default());
    let before = sum(&outer);
    let Some(inner) = outer.bytes.get_mut(l4 + HEADER..) else { return false };
    if !inside(inner, &flow, (addr, port), client) {
        return false;
    }
    let after = sum(&outer);
    let Some(check) = outer.bytes.get_mut(l4 + 2..l4 + 4) else { return false };
    let old = u16::from_be_bytes([check[0], check[1]]);
    check.copy_from_slice(&checksum::update(old, before, after).to_be_bytes());
    // The destination is under the checksum of ICMPv6, too.
    outer.translate(Side::Dst, addr, None)
}

/// The quoted packet: its addresses and ports, and those of its checksums that are there.
fn inside(
    packet: &mut [u8],
    flow: &FlowKey,
    (addr, port): (IpAddr, Option<u16>),
    client: Option<(IpAddr, u16)>,
) -> bool {
    let Some(about) = l4_of(packet) else { return false };
    let check = match flow.proto {
        proto::TCP => about + 16,
        _ => about + 6,
    };
    let mut change = |at: usize, new: &[u8], checks: [Option<usize>; 2]| {
        let mut old = [0; 16];
        let Some(was) = packet.get_mut(at..at + new.len()) else { return false };
        old[..new.len()].copy_from_slice(was);
        was.copy_from_slice(new);
        for at in checks.into_iter().flatten() {
            let Some(field) = packet.get_mut(at..at + 2) else { continue };
            let sum = u16::from_be_bytes([field[0], field[1]]);
            let absent = sum == 0 && flow.proto == proto::UDP && at != 10;
            if let (false, Some(sum)) =
                (absent, checksum::update_bytes(sum, &old[..new.len()], new))
            {
                field.copy_from_slice(&sum.to_be_bytes());
            }
        }
        true
    };
    let check = (flow.proto != proto::SCTP).then_some(check);
    let mut end = |side: Side, addr: IpAddr, port: Option<u16>| {
        let src = side == Side::Src;
        let moved = match addr {
            IpAddr::V4(addr) => {
                change(if src { 12 } else { 16 }, &addr.octets(), [Some(10), check])
            }
            IpAddr::V6(addr) => change(if src { 8 } else { 24 }, &addr.octets(), [None, check]),
        };
        let at = about + if src { 0 } else { 2 };
        moved && port.is_none_or(|port| change(at, &port.to_be_bytes(), [None, check]))
    };
    end(Side::Src, addr, port) && client.is_none_or(|(addr, port)| end(Side::Dst, addr, Some(port)))
}

/// Where the transport header of a quoted packet is.
fn l4_of(packet: &[u8]) -> Option<usize> {
    let v6 = packet.first()? >> 4 == 6;
    let headers = flowyard_wire::Headers::parse(flowyard_wire::LinkType::RawIp, packet);
    let least = if v6 { 40 } else { 20 };
    (headers.l4 as usize >= least).then_some(headers.l4 as usize)
}

/// Makes of a frame the answer to whoever sent it: its packet, of more than `room` bytes, is too
/// big (RFC 1191, RFC 8201). `false` if that cannot be, or would answer an error.
pub(super) fn too_big(frame: Handle<'_>, pool: &Pool, l3: usize, v6: bool, room: usize) -> bool {
    let packet = pool.bytes(frame).get(l3..).unwrap_or_default();
    let (head, quote, ip) = if v6 { (48, QUOTE_V6, 40) } else { (28, QUOTE_V4, 20) };
    let Some(start) = packet.get(..ip) else { return false };
    let mut addrs = [0; 32];
    let n = if v6 { 16 } else { 4 };
    let at = if v6 { 8 } else { 12 };
    addrs[..2 * n].copy_from_slice(&start[at..at + 2 * n]);
    pool.truncate(frame, l3 + quote);
    if !pool.insert(frame, l3, head) {
        return false;
    }
    let bytes = pool.bytes_mut(frame);
    let len = bytes.len() - l3;
    let (link, outer) = bytes.split_at_mut(l3);
    // Back to who sent it.
    let (dst, rest) = link.split_at_mut(6);
    dst.swap_with_slice(&mut rest[..6]);
    let (src, dst) = addrs[..2 * n].split_at(n);
    let from = if v6 { 8 } else { 12 };
    outer[from..from + n].copy_from_slice(dst);
    outer[from + n..from + 2 * n].copy_from_slice(src);
    let mtu = room.min(usize::from(u16::MAX)) as u32;
    if v6 {
        outer[0] = 0x60;
        outer[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        outer[6..8].copy_from_slice(&[proto::ICMPV6, 64]);
        outer[40] = 2;
        outer[44..48].copy_from_slice(&mtu.to_be_bytes());
        let pseudo = Sum::ZERO.bytes(&outer[8..40]).word((len - 40) as u64);
        let sum = pseudo.word(proto::ICMPV6.into()).bytes(&outer[40..]).finish();
        outer[42..44].copy_from_slice(&sum.to_be_bytes());
    } else {
        outer[..2].copy_from_slice(&[0x45, 0]);
        outer[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        outer[8..10].copy_from_slice(&[64, proto::ICMP]);
        let sum = checksum::checksum(&outer[..20]);
        outer[10..12].copy_from_slice(&sum.to_be_bytes());
        outer[20..22].copy_from_slice(&[3, 4]);
        outer[26..28].copy_from_slice(&(mtu as u16).to_be_bytes());
        let sum = checksum::checksum(&outer[20..]);
        outer[22..24].copy_from_slice(&sum.to_be_bytes());
    }
    true
}
