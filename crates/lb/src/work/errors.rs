//! ICMP errors, to those whom they concern.
//!
//! ```text
//!  from the client's side   quotes VIP > client          to the backend, as about its own packet
//!  from the backend's side  quotes client > backend      to the client, as about its own packet
//!                           quotes a tunnel              its path's MTU is noted, and the client told
//! ```

use std::net::IpAddr;

use crate::icmp::{HEADER, quoted};
use crate::{ConnKey, Exit, Mode, Proxied};
use flowyard_frame::{Batch, FlowKey, Frag, Nanos, proto};
use flowyard_wire::checksum;

use super::answers::{Wrong, answer};
use super::encap::inside_of;
use super::rewrite::{Packet, Side};
use super::{Answer, Balance, Way, out, proxy};
use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

impl Balance {
    /// What is for a VIP and has no ports: an error about a packet from it, or nothing for us.
    pub(super) fn error(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, now: Nanos) {
        let key = batch.keys[lane];
        let v6 = key.is_ipv6();
        let is_icmp = key.proto == if v6 { proto::ICMPV6 } else { proto::ICMP };
        let Some(mut packet) = Packet::new(pool.bytes_mut(&mut batch.frames[lane]), &key) else {
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
                (Mode::FullNat, Some(local)) => Some((local.addr, Some(local.port))),
                _ => None,
            };
            if packet.is_expired() {
                return refuse(batch, lane, DropReason::TtlExpired);
            }
            packet.one_hop();
            // The backend knows the packet as from its own address, to the client as it knows it.
            let ends = [Some((target.addr, target.port)), client];
            let outer = [None, Some(target.addr)];
            if !translate(&mut packet, &about.flow, (ends, outer), Proxied::default()) {
                return refuse(batch, lane, DropReason::Malformed);
            }
            self.whose.set(Some(way.backend));
            return self.send(batch, lane, pool, target);
        }
        self.forward(batch, lane, pool, way, hash);
    }

    /// Whether what is for no VIP and has no ports was an error from the way to a backend, and is
    /// dealt with.
    pub(super) fn is_error_behind(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        pool: &Pool,
        now: Nanos,
    ) -> bool {
        let key = batch.keys[lane];
        let v6 = key.is_ipv6();
        let is_icmp = key.proto == if v6 { proto::ICMPV6 } else { proto::ICMP };
        if !is_icmp || key.fragment() != Frag::No {
            return false;
        }
        let Some(mut packet) = Packet::new(pool.bytes_mut(&mut batch.frames[lane]), &key) else {
            return false;
        };
        let message = packet.bytes.get(packet.l4..).unwrap_or_default();
        if key.dst_ip().is_some_and(|dst| self.locals.is_source(dst))
            && let Some((backend, inner)) = inside_of(message, v6, key.dst_ip())
            && self.allowance.take(now)
            && let Some(room) = self.note_path(backend, path_mtu(message, v6))
        {
            let at = packet.l3 + packet.l4 + inner;
            self.tell_who_is_in_it(batch, lane, pool, (room, at));
            return true;
        }
        let Some(about) = quoted(message, v6) else { return false };
        // An answer to the quoted packet is what would come from there.
        let Some(Answer { vip, port, dst, proxied, .. }) =
            self.answer(&about.flow.reversed(), None, now)
        else {
            return false;
        };
        if about.flow.src_ip() != key.dst_ip() {
            return false; // not to who sent it
        }
        if packet.is_expired() {
            refuse(batch, lane, DropReason::TtlExpired);
            return true;
        }
        packet.one_hop();
        // The client knows the packet as its own, to the VIP; and no router behind that.
        let client = dst.map(|(addr, port)| (addr, Some(port)));
        let ends = [client, Some((vip, Some(port)))];
        let outer = [Some(vip), client.map(|(addr, _)| addr)];
        match translate(&mut packet, &about.flow, (ends, outer), proxied) {
            true => out(batch, lane, pool, self.settings.clients, self.clients.as_deref()),
            false => refuse(batch, lane, DropReason::Malformed),
        }
        true
    }

    /// A router says what fits through a tunnel to `backend`, if anything (RFC 2003 section 5.1). `None` if
    /// there is no such tunnel; else what is left of that for a client's packet.
    fn note_path(&self, backend: IpAddr, mtu: Option<usize>) -> Option<Option<usize>> {
        let tunnels = |mode| matches!(mode, Mode::Ipip | Mode::Gue);
        let mut room = None;
        for target in self.plan.targets().filter(|t| t.addr == backend && tunnels(t.mode)) {
            room = Some(mtu.map(|mtu| mtu - target.mode.overhead(backend.is_ipv6())));
            if let (Some(mtu), Some(hop)) = (mtu, self.hops.get(target)) {
                hop.note_mtu(mtu, self.now);
            }
        }
        room
    }

    /// Makes of an error about a tunnel one for the client whose packet stands at `at`, if it is
    /// there and no more than `room` bytes of it fit.
    fn tell_who_is_in_it(
        &self,
        batch: &mut Batch,
        lane: usize,
        pool: &Pool,
        (room, at): (Option<usize>, usize),
    ) {
        let frame = &mut batch.frames[lane];
        let l3 = super::l3_of(pool.bytes(frame)).unwrap_or_default();
        let inner = pool.bytes(frame).get(at..).unwrap_or_default();
        let v6 = inner.first().is_some_and(|first| first >> 4 == 6);
        let vip = match (inner.get(16..20), inner.get(24..40)) {
            (_, Some(dst)) if v6 => dst.first_chunk::<16>().map(|dst| IpAddr::from(*dst)),
            (Some(dst), _) if !v6 => dst.first_chunk::<4>().map(|dst| IpAddr::from(*dst)),
            _ => None,
        };
        // What was cut may be cut again: only who may not cut is to be told.
        let may_not_be_cut = v6 || inner.get(6).is_some_and(|flags| flags & 0x40 != 0);
        let vip = vip.filter(|vip| self.plan.is_vip(*vip) && may_not_be_cut);
        let (Some(vip), Some(room)) = (vip, room) else {
            return refuse(batch, lane, DropReason::Taken);
        };
        if self.settings.clients == Exit::default() || !pool.remove(frame, l3, at - l3) {
            return refuse(batch, lane, DropReason::Taken);
        }
        let kind: u16 = if v6 { 0x86dd } else { 0x0800 };
        pool.bytes_mut(frame)[l3 - 2..l3].copy_from_slice(&kind.to_be_bytes());
        match answer(frame, pool, l3, v6, vip, Wrong::TooBig(room)) {
            true => out(batch, lane, pool, self.settings.clients, self.clients.as_deref()),
            false => refuse(batch, lane, DropReason::Taken),
        }
    }
}

/// The MTU that a router says the way has, if this is what its error says.
fn path_mtu(message: &[u8], v6: bool) -> Option<usize> {
    let word = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
    let mtu = match (message.first_chunk()?, v6) {
        ([3, 4], false) => usize::from(word(6)?),
        ([2, 0], true) => usize::from(word(6)?).max(usize::from(word(4)?) << 16),
        _ => return None,
    };
    // Below, somebody lies, or knows nothing better (RFC 1191 section 5, RFC 8201 section 4).
    Some(mtu.max(if v6 { 1280 } else { 576 }))
}

/// An address, and a port if it is another.
type End = (IpAddr, Option<u16>);

/// Has an error about a packet of `flow` look as somebody else sees it: the source and destination of
/// the quoted packet, and of its own.
fn translate(
    outer: &mut Packet<'_>,
    flow: &FlowKey,
    (ends, [src, dst]): ([Option<End>; 2], [Option<IpAddr>; 2]),
    proxied: Proxied,
) -> bool {
    let l4 = outer.l4;
    let sum = |outer: &Packet<'_>| !checksum::checksum(outer.bytes.get(l4..).unwrap_or_default());
    let before = sum(outer);
    let Some(inner) = outer.bytes.get_mut(l4 + HEADER..) else { return false };
    if !inside(inner, flow, ends, proxied) {
        return false;
    }
    let after = sum(outer);
    let Some(check) = outer.bytes.get_mut(l4 + 2..l4 + 4) else { return false };
    let old = u16::from_be_bytes([check[0], check[1]]);
    check.copy_from_slice(&checksum::update(old, before, after).to_be_bytes());
    // The addresses are under the checksum of ICMPv6, too.
    src.is_none_or(|src| outer.translate(Side::Src, src, None))
        && dst.is_none_or(|dst| outer.translate(Side::Dst, dst, None))
}

/// The quoted packet: its addresses and ports, and those of its checksums that are there.
fn inside(
    packet: &mut [u8],
    flow: &FlowKey,
    [src, dst]: [Option<End>; 2],
    proxied: Proxied,
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
    let moved = src.is_none_or(|(addr, port)| end(Side::Src, addr, port))
        && dst.is_none_or(|(addr, port)| end(Side::Dst, addr, port));
    if flow.proto == proto::TCP {
        proxy::quoted(packet, about, proxied, flow.is_ipv6());
    }
    moved
}

/// Where the transport header of a quoted packet is.
fn l4_of(packet: &[u8]) -> Option<usize> {
    let v6 = packet.first()? >> 4 == 6;
    let headers = flowyard_wire::Headers::parse(flowyard_wire::LinkType::RawIp, packet);
    let least = if v6 { 40 } else { 20 };
    (headers.l4 as usize >= least).then_some(headers.l4 as usize)
}
