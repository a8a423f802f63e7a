//! ICMP errors about packets of connections: forwarded to the sender of the quoted packet.
//!
//! ```text
//!  from the client's side   quotes VIP > client       to the backend, translated to the packet it sent
//!  from the backend's side  quotes client > backend   to the client, translated to the packet it sent
//!                           quotes a tunnel           the path MTU is recorded, the client is notified
//! ```

use std::net::IpAddr;

use crate::icmp::{HEADER, quoted};
use crate::{ConnKey, Exit, Mode, Proxied};
use flowyard_frame::{Batch, FlowKey, Frag, Nanos, proto};
use flowyard_wire::checksum::Sum;
use flowyard_wire::{Headers, LinkType, Net, edit};

use super::answers::{Wrong, answer};
use super::balance::Balance;
use super::encap::inside_of;
use super::exit::out;
use super::proxy;
use super::rewrite::{Packet, Side, l3_of};
use super::way::{Reply, Way};
use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

impl Balance {
    /// Handles a packet to a VIP that has no ports: an ICMP error about a packet from the VIP, or a packet
    /// that belongs to no service.
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
            let target = self.plan.without_entry(service, &conn, hash, now)?;
            Some(Way::without_entry(target.id))
        };
        let Some(way) = self.way_of(&conn, hash, now).or_else(stateless) else {
            return self.other(batch, lane, pool, now);
        };
        let Some(target) = self.plan.target(way.backend) else {
            return refuse(batch, lane, DropReason::NoBackend);
        };
        if target.mode.translates() {
            let client = match (target.mode, self.local_of(&way, v6)) {
                (Mode::FullNat, None) => return refuse(batch, lane, DropReason::NoConnection),
                (Mode::FullNat, Some(addr)) => Some((addr, Some(way.local.port))),
                _ => None,
            };
            if packet.is_expired() {
                return refuse(batch, lane, DropReason::TtlExpired);
            }
            packet.one_hop();
            // The backend sent the packet from its own address to the client's address as it sees it.
            let view = View {
                src: Some((target.addr, target.port)),
                dst: client,
                outer_src: None,
                outer_dst: Some(target.addr),
            };
            if !translate(&mut packet, &about.flow, view, Proxied::default()) {
                return refuse(batch, lane, DropReason::Malformed);
            }
            self.whose.set(Some(way.backend));
            return self.send(batch, lane, pool, target);
        }
        self.forward(batch, lane, pool, way, hash);
    }

    /// Handles the packet of `lane`, which is not to a VIP, if it is an ICMP error about a packet to a backend.
    /// Returns whether it was.
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
            self.notify_client(batch, lane, pool, (room, at));
            return true;
        }
        let Some(about) = quoted(message, v6) else { return false };
        // The translation of a reply to the quoted packet is the reverse of the one that is needed.
        let Some(Reply { vip, port, dst, proxied, mac, .. }) =
            self.reply(&about.flow.reversed(), None, now)
        else {
            return false;
        };
        if about.flow.src_ip() != key.dst_ip() {
            return false; // not addressed to the sender of the quoted packet
        }
        if packet.is_expired() {
            refuse(batch, lane, DropReason::TtlExpired);
            return true;
        }
        packet.one_hop();
        // The client sent the packet to the VIP, and does not know routers behind it.
        let client = dst.map(|(addr, port)| (addr, Some(port)));
        let view = View {
            src: client,
            dst: Some((vip, Some(port))),
            outer_src: Some(vip),
            outer_dst: client.map(|(addr, _)| addr),
        };
        match translate(&mut packet, &about.flow, view, proxied) {
            true => self.to_client(batch, lane, pool, mac),
            false => refuse(batch, lane, DropReason::Malformed),
        }
        true
    }

    /// Records the path MTU of the tunnels to `backend` that a router reported, if it reported one (RFC 2003
    /// section 5.1). Returns `None` if there is no such tunnel, or else the MTU that is left for a client's
    /// packet.
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

    /// Rewrites an error about a tunnel into one for the client whose packet is quoted at offset `at` of the
    /// frame, with `room` as the MTU. Drops it if the packet is not quoted or there is no MTU.
    fn notify_client(
        &self,
        batch: &mut Batch,
        lane: usize,
        pool: &Pool,
        (room, at): (Option<usize>, usize),
    ) {
        let frame = &mut batch.frames[lane];
        let l3 = l3_of(pool.bytes(frame)).unwrap_or_default();
        let inner = pool.bytes(frame).get(at..).unwrap_or_default();
        let v6 = inner.first().is_some_and(|first| first >> 4 == 6);
        let vip = match (inner.get(16..20), inner.get(24..40)) {
            (_, Some(dst)) if v6 => dst.first_chunk::<16>().map(|dst| IpAddr::from(*dst)),
            (Some(dst), _) if !v6 => dst.first_chunk::<4>().map(|dst| IpAddr::from(*dst)),
            _ => None,
        };
        // Only a sender that forbids fragmentation needs to be notified.
        let may_not_be_cut = v6 || inner.get(6).is_some_and(|flags| flags & 0x40 != 0);
        let vip = vip.filter(|vip| self.plan.is_vip(*vip) && may_not_be_cut);
        let (Some(vip), Some(room)) = (vip, room) else {
            return refuse(batch, lane, DropReason::Taken);
        };
        let has_way = self.settings.clients != Exit::default() && !self.settings.returns;
        if !has_way || !pool.remove(frame, l3, at - l3) {
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

/// The path MTU in an ICMP error; `None` for other errors.
fn path_mtu(message: &[u8], v6: bool) -> Option<usize> {
    let word = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
    let mtu = match (message.first_chunk()?, v6) {
        ([3, 4], false) => usize::from(word(6)?),
        ([2, 0], true) => usize::from(word(6)?).max(usize::from(word(4)?) << 16),
        _ => return None,
    };
    // Smaller values are ignored, as forged (RFC 8201 section 4). Routers older than RFC 1191 report 0.
    Some(mtu).filter(|mtu| *mtu >= if v6 { 1280 } else { 576 })
}

/// An address, and a port if it must be translated.
type End = (IpAddr, Option<u16>);

/// The addresses of an ICMP error as its receiver must see them; `None` is not translated.
#[derive(Clone, Copy)]
struct View {
    /// Source of the quoted packet.
    src: Option<End>,
    /// Destination of the quoted packet.
    dst: Option<End>,
    /// Source of the error.
    outer_src: Option<IpAddr>,
    /// Destination of the error.
    outer_dst: Option<IpAddr>,
}

/// Translates an error about a packet of `flow`. Returns false if that is not possible.
fn translate(outer: &mut Packet<'_>, flow: &FlowKey, view: View, proxied: Proxied) -> bool {
    let View { outer_src: src, outer_dst: dst, .. } = view;
    let l4 = outer.l4;
    let sum = |outer: &Packet<'_>| Sum::ZERO.bytes(outer.bytes.get(l4..).unwrap_or_default());
    let before = sum(outer);
    let Some(inner) = outer.bytes.get_mut(l4 + HEADER..) else { return false };
    if !inside(inner, flow, view, proxied) {
        return false;
    }
    let after = sum(outer);
    outer.sum_changed(before, after);
    // The checksum of ICMPv6 also covers the addresses; `Packet::translate` updates it.
    src.is_none_or(|src| outer.translate(Side::Src, src, None))
        && dst.is_none_or(|dst| outer.translate(Side::Dst, dst, None))
}

/// Translates addresses and ports of the quoted packet, and the checksums that are in the quoted bytes.
fn inside(packet: &mut [u8], flow: &FlowKey, view: View, proxied: Proxied) -> bool {
    let headers = Headers::parse(LinkType::RawIp, packet);
    let v6 = flow.is_ipv6();
    let (net, least) = if v6 { (Net::Ipv6, 40) } else { (Net::Ipv4, 20) };
    if headers.net != net || headers.l4 < least {
        return false;
    }
    let edit = edit::Packet {
        net,
        l3: 0,
        l4: headers.l4 as usize,
        end: packet.len(),
        proto: flow.proto,
        is_whole: false,
        covers: [true; 2],
        is_partial: false,
    };
    let mut set = |side: Side, (addr, port): End| {
        let Some(port) = port else { return edit.set_address(packet, side, addr) };
        if edit.set_port(packet, side, port).is_err() {
            // The CRC of SCTP covers bytes that are not quoted, so it cannot be updated.
            let at = edit.l4 + if side == Side::Src { 0 } else { 2 };
            let Some(field) = packet.get_mut(at..at + 2) else { return false };
            field.copy_from_slice(&port.to_be_bytes());
        }
        edit.set_address(packet, side, addr)
    };
    let moved = view.src.is_none_or(|src| set(Side::Src, src))
        && view.dst.is_none_or(|dst| set(Side::Dst, dst));
    if flow.proto == proto::TCP {
        proxy::quoted(packet, &edit, proxied);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::path_mtu;

    #[test]
    fn path_mtus_below_the_minimum_are_ignored() {
        for (v6, head, least) in [(false, [3, 4], 576), (true, [2, 0], 1280)] {
            let reported = |mtu: usize| {
                let [a, b, c, d] = (mtu as u32).to_be_bytes();
                path_mtu(&[head[0], head[1], 0, 0, a, b, c, d], v6)
            };
            for mtu in [0, 1, 68, least - 1] {
                assert_eq!(reported(mtu), None, "{mtu}");
            }
            for mtu in [least, least + 1, 1500, 65_535] {
                assert_eq!(reported(mtu), Some(mtu));
            }
        }
        assert_eq!(path_mtu(&[2, 0, 0, 0, 0, 1, 0, 0], true), Some(1 << 16));
        assert_eq!(path_mtu(&[3, 3, 0, 0, 0, 0, 5, 0], false), None, "another error");
    }
}
