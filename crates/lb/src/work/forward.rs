//! Forwarding of client packets to a backend, as its mode requires.

use std::net::IpAddr;

use crate::{Mode, Target};
use flowyard_frame::{Batch, FlowKey, Frag, Frame, proto};

use super::answers::Wrong;
use super::balance::Balance;
use super::encap;
use super::exit::out;
use super::finish;
use super::rewrite::{Packet, Side};
use super::way::Way;
use flowyard_pool::Pool;
use flowyard_wire::Offload;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

impl Balance {
    /// Rewrites the packet of `lane` for its backend and sends it there.
    pub(super) fn forward(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        pool: &Pool,
        mut way: Way,
        hash: u64,
    ) {
        let key = batch.keys[lane];
        let frame = &mut batch.frames[lane];
        let offload = pool.meta(frame).offload;
        let Some(packet) = Packet::new(pool.bytes_mut(frame), &key) else {
            return refuse(batch, lane, DropReason::Malformed);
        };
        let mut packet = packet.with_offload(offload);
        if key.fragment() != Frag::Later {
            way = self.by_connection_id(&packet, &key, way);
        }
        self.whose.set(Some(way.backend));
        let Some(target) = self.plan.target(way.backend) else {
            return refuse(batch, lane, DropReason::NoBackend);
        };
        let service = &self.plan.services()[usize::from(target.service)].service;
        let vip = service.vip;
        if target.mode.translates() && packet.is_routed() {
            return refuse(batch, lane, DropReason::Malformed);
        }
        if packet.is_expired() {
            let why = (vip, DropReason::TtlExpired);
            return self.answer_with((batch, lane), pool, Wrong::Expired, why);
        }
        if key.fragment() == Frag::First {
            self.fragments.put(&packet, &key, (way, hash), self.now);
        }
        if let (Some(mss), true) = (service.mss, key.tcp_flags & FlowKey::SYN != 0) {
            packet.clamp_mss(mss);
        }
        let overhead = target.mode.overhead(target.addr.is_ipv6());
        if let Some(mtu) = self.mtu(target, service.mtu)
            && packet.longest(offload) + overhead > mtu
        {
            if !packet.may_not_be_cut() {
                return refuse(batch, lane, DropReason::TooLong);
            }
            let wrong = Wrong::TooBig(mtu.saturating_sub(overhead));
            return self.answer_with((batch, lane), pool, wrong, (vip, DropReason::TooLong));
        }
        packet.one_hop();
        if let (true, proto::TCP, Some(home)) = (service.tells(), key.proto, way.home) {
            if let Err(reason) = self.tell(frame, pool, &key, home, target) {
                return refuse(batch, lane, reason);
            }
            let Some(longer) = Packet::new(pool.bytes_mut(frame), &key) else {
                return refuse(batch, lane, DropReason::Malformed);
            };
            packet = longer.with_offload(offload);
        }
        let done = match target.mode {
            Mode::Dsr => true,
            Mode::Dnat => packet.translate(Side::Dst, target.addr, target.port),
            Mode::FullNat => {
                let Some(addr) = self.local_of(&way, key.is_ipv6()) else {
                    return refuse(batch, lane, DropReason::NoConnection);
                };
                self.translate_both((&mut packet, &key), target, (addr, way.local.port))
            }
            Mode::Ipip | Mode::Gue => {
                let l3 = packet.l3;
                if let Err(reason) = self.tunnel((frame, offload), pool, l3, target, hash) {
                    return refuse(batch, lane, reason);
                }
                true
            }
        };
        if !done {
            return refuse(batch, lane, DropReason::Fragment);
        }
        self.send(batch, lane, pool, target);
    }

    /// Translates both sides of a packet. A fragment gets an identification that those of other clients behind the local
    /// address do not have. Returns false if it is not possible.
    #[inline]
    fn translate_both(
        &self,
        (packet, key): (&mut Packet<'_>, &FlowKey),
        target: &Target,
        (addr, port): (IpAddr, u16),
    ) -> bool {
        if key.fragment() != Frag::No
            && let Some(id) = self.fragments.new_id(packet, key, self.now)
        {
            packet.set_id(id);
        }
        packet.translate(Side::Dst, target.addr, target.port)
            && packet.translate(Side::Src, addr, Some(port))
    }

    /// Changes a segment of a client so that the backend learns the client's address.
    fn tell(
        &self,
        frame: &mut Frame,
        pool: &Pool,
        key: &FlowKey,
        home: (u16, u32),
        target: &Target,
    ) -> Result<(), DropReason> {
        let service = &self.plan.services()[usize::from(target.service)].service;
        if service.proxy {
            return self.to_proxied(frame, pool, key, home);
        }
        self.tell_address(frame, pool, key, home, self.mtu(target, service.mtu));
        Ok(())
    }

    /// The local address of a FullNAT connection; `None` if it has no entry or no port.
    pub(super) fn local_of(&self, way: &Way, v6: bool) -> Option<IpAddr> {
        self.locals.addr(way.home?.0.into(), way.local, v6)
    }

    /// The largest IP packet on the path to a backend: the configured `limit`, or the path MTU of a tunnel if
    /// that is smaller. `None` is no limit.
    pub(super) fn mtu(&self, target: &Target, limit: Option<u16>) -> Option<usize> {
        let limit = limit.map(usize::from);
        if !matches!(target.mode, Mode::Ipip | Mode::Gue) {
            return limit;
        }
        let path = self.hops.get(target).and_then(|hop| hop.mtu(self.now));
        limit.into_iter().chain(path).min()
    }

    /// Puts the packet at `l3` into a tunnel to a backend.
    fn tunnel(
        &self,
        (frame, offload): (&mut Frame, Offload),
        pool: &Pool,
        l3: usize,
        target: &Target,
        hash: u64,
    ) -> Result<(), DropReason> {
        let source = self.locals.source(target.addr.is_ipv6()).ok_or(DropReason::NoRoute)?;
        // Ports pass on no long frames to tunnels; the checksum is part of that of a UDP tunnel over IPv6.
        if !offload.is_none() && !finish::complete(frame, pool) {
            return Err(DropReason::TooLong);
        }
        match encap::wrap(frame, pool, l3, target.mode, (source, target.addr), hash) {
            true => Ok(()),
            false => Err(DropReason::TooLong),
        }
    }

    /// Sends the frame of `lane` to a backend.
    pub(super) fn send(&self, batch: &mut Batch, lane: usize, pool: &Pool, target: &Target) {
        let neighbour = match target.exit.via {
            None => None, // its MAC address is configured
            Some(_) => self.hops.get(target).and_then(|hop| hop.neighbour.as_deref()),
        };
        out(batch, lane, pool, target.exit, neighbour);
    }
}
