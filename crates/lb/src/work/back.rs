//! Replies of backends, whose source is translated to the VIP, and packets that belong to no service.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use crate::plan::Front;
use crate::{Conn, ConnKey, LocalPort, Plan, Proxied, Sender, Stage, State, Target};
use flowyard_frame::{Batch, FlowKey, Frag, Nanos, proto};

use super::answers::Wrong;
use super::balance::Balance;
use super::exit::{leave, out};
use super::leases::Leases;
use super::proxy;
use super::rewrite::{Packet, Side};
use super::way::Reply;
use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

impl Balance {
    /// Handles a packet that is not to a VIP: a reply of a backend, or a packet that belongs to no service.
    pub(super) fn other(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, now: Nanos) {
        let key = batch.keys[lane];
        let found = match key.fragment() {
            Frag::Later => self.answers.get(pool.bytes(&batch.frames[lane]), &key, now),
            _ => self.reply(&key, Some((key.tcp_flags, batch.frames[lane].mark)), now),
        };
        if let Some(reply) = found {
            let Reply { vip, port, dst, home, proxied, mac } = reply;
            let frame = &mut batch.frames[lane];
            let offload = pool.meta(frame).offload;
            let Some(packet) = Packet::new(pool.bytes_mut(frame), &key) else {
                return refuse(batch, lane, DropReason::Malformed);
            };
            let mut packet = packet.with_offload(offload);
            if packet.is_routed() {
                return refuse(batch, lane, DropReason::Malformed);
            }
            if packet.is_expired() {
                let why = (vip, DropReason::TtlExpired);
                return self.answer_with((batch, lane), pool, Wrong::Expired, why);
            }
            if key.fragment() == Frag::First {
                // Later fragments have no TCP header.
                let reply = Reply { proxied: Proxied::default(), ..reply };
                self.answers.put(&packet, &key, reply, now);
            }
            packet.one_hop();
            if key.tcp_flags & FlowKey::SYN != 0 {
                self.leave_room(&mut packet);
            }
            if proxied.stage != Stage::None {
                let after = proxy::from_proxied(&mut packet, &key, proxied);
                let client = dst.map(|(addr, from)| {
                    ConnKey::of(&FlowKey::five_tuple(key.proto, addr, from, vip, port))
                });
                if let (true, Some((core, slot)), Some(client)) = (after != proxied, home, client)
                    && let Some(mut conns) = self.table(core.into())
                    && conns.has(slot, &client)
                {
                    conns.set_proxied(slot, after);
                }
            }
            let back = dst.is_none_or(|(addr, port)| packet.translate(Side::Dst, addr, Some(port)));
            return match back && packet.translate(Side::Src, vip, Some(port)) {
                true => self.to_client(batch, lane, pool, mac),
                false => refuse(batch, lane, DropReason::Fragment),
            };
        }
        match self.settings.pass.get(usize::from(key.in_port)).copied().flatten() {
            Some(port) => leave(batch, lane, port),
            None if key.is_ip() => refuse(batch, lane, DropReason::NoService),
            None => refuse(batch, lane, DropReason::NotIp),
        }
    }

    /// Sends the frame of `lane` to a client, whose packets came from `mac`.
    pub(super) fn to_client(
        &self,
        batch: &mut Batch,
        lane: usize,
        pool: &Pool,
        mac: Option<[u8; 6]>,
    ) {
        let mut exit = self.settings.clients;
        if self.settings.returns {
            let Some(mac) = mac else { return refuse(batch, lane, DropReason::Unresolved) };
            exit.dst = mac;
        }
        out(batch, lane, pool, exit, self.clients.as_deref());
    }

    /// The translation of a reply of a backend; `None` if the packet is not one. `came` are its TCP flags and the mark of
    /// its frame; `None` for a packet that is only quoted and must not change the state of its connection.
    pub(super) fn reply(&mut self, key: &FlowKey, came: Came, now: Nanos) -> Option<Reply> {
        if !proto::has_ports(key.proto) || key.fragment() == Frag::Later {
            return None;
        }
        match self.locals.owner(key.dst_ip()?) {
            Some(owner) => self.fullnat_reply(key, owner, came, now),
            None => self.dnat_reply(key, came, now),
        }
    }

    /// The translation of a packet to the local address with this core and index.
    fn fullnat_reply(
        &mut self,
        key: &FlowKey,
        (core, address): (u16, u8),
        came: Came,
        now: Nanos,
    ) -> Option<Reply> {
        let own = ConnKey::of(key);
        let hash = own.hash(self.plan.seed());
        // A connection in another core's table, and a packet that does not change its state.
        let lease = came
            .filter(|(flags, _)| usize::from(core) != self.core && Leases::<Reply>::covers(*flags))
            .map(|_| self.moves.load(Acquire));
        if let Some(moves) = lease
            && let Some((reply, whose)) = self.answer_leases.get(&own, hash, now, moves)
        {
            self.whose.set(Some(whose));
            return Some(reply);
        }
        let mut conns = self.table(core.into())?;
        let local = LocalPort { port: key.dport, address };
        let is_own = usize::from(core) == self.core;
        let mark = came.filter(|_| is_own).map_or(0, |(_, mark)| mark);
        let slot =
            conns.bound_by_mark(mark, hash, local, now).or_else(|| conns.bound(hash, local))?;
        let conn = *conns.get(slot, now)?;
        let flow = conn.key().flow();
        let target = self.plan.target(conn.backend)?;
        let from = target.port.unwrap_or(flow.dport);
        if (target.addr, from, flow.proto) != (key.src_ip()?, key.sport, key.proto) {
            return None; // not from the backend of this connection
        }
        if let Some((flags, _)) = came {
            conns.answered(slot, flags, now);
            if is_own {
                conns.offer(slot, Sender::Backend, key, now);
            }
        }
        let mac = conns.mac(slot);
        drop(conns);
        let whose = target.id;
        self.whose.set(Some(whose));
        let reply = Reply {
            vip: flow.dst_ip()?,
            port: flow.dport,
            dst: Some((flow.src_ip()?, flow.sport)),
            home: Some((core, slot)),
            proxied: conn.proxied(),
            mac,
        };
        if let Some(moves) = lease
            && is_leased(&conn)
            && reply.proxied.stage == Stage::None
        {
            self.answer_leases.put(&own, hash, now, moves, (reply, whose));
        }
        Some(reply)
    }

    /// The translation of a packet from the address and port of a DNAT backend, if it belongs to a connection
    /// that came through the balancer. Other packets from there are not replies: the backend answers a health
    /// check of this machine, or a client that uses its address.
    fn dnat_reply(&mut self, key: &FlowKey, came: Came, now: Nanos) -> Option<Reply> {
        let plan = Arc::clone(&self.plan);
        match plan.answering(key) {
            [] => None,
            [front] => {
                let (target, flow) = plan.asked(front, key)?;
                let own = ConnKey::of(&flow);
                let hash = own.hash(plan.seed());
                let entered = self.entered(key, (target, &flow, &own, hash), came, now);
                entered.or_else(|| self.stray(&plan, (target, &flow, &own, hash), now))
            }
            fronts => self.shared_reply(&plan, fronts, key, came, now),
        }
    }

    /// As [`Self::dnat_reply`], for a packet that may be a reply of several services.
    #[inline(never)]
    fn shared_reply(
        &mut self,
        plan: &Plan,
        fronts: &[Front],
        key: &FlowKey,
        came: Came,
        now: Nanos,
    ) -> Option<Reply> {
        let seed = plan.seed();
        let all = || {
            fronts.iter().filter_map(|front| {
                let (target, flow) = plan.asked(front, key)?;
                let own = ConnKey::of(&flow);
                Some((target, flow, own, own.hash(seed)))
            })
        };
        for (target, flow, own, hash) in all() {
            if let Some(reply) = self.entered(key, (target, &flow, &own, hash), came, now) {
                return Some(reply);
            }
        }
        let mut first = None;
        for (target, flow, own, hash) in all() {
            match (first, self.stray(plan, (target, &flow, &own, hash), now)) {
                (None, Some(reply)) => first = Some((reply, target.id)),
                (Some((_, id)), Some(_)) => {
                    self.ambiguous(id);
                    break;
                }
                (_, None) => {}
            }
        }
        self.whose.set(first.map(|(_, id)| id));
        first.map(|(reply, _)| reply)
    }

    /// The translation of a reply to a connection that has an entry.
    #[inline]
    fn entered(
        &mut self,
        key: &FlowKey,
        (target, flow, own, hash): Candidate<'_>,
        came: Came,
        now: Nanos,
    ) -> Option<Reply> {
        let mut reply = reply_of(flow)?;
        let covered = came.is_some_and(|(flags, _)| Leases::<Reply>::covers(flags));
        let moves = self.moves.load(Acquire);
        if covered
            && let Some((reply, whose)) = self.answer_leases.get(own, hash, now, moves)
            && whose == target.id
        {
            self.whose.set(Some(whose));
            return Some(reply);
        }
        if target.asked.is_some() {
            return None;
        }
        for core in self.own_and_others(hash) {
            let Some(mut conns) = self.table(core) else { continue };
            let mark = came.filter(|_| core == self.core).map_or(0, |(_, mark)| mark);
            let found = conns.named(mark, own, now).or_else(|| conns.find(own, hash, now));
            let Some(slot) = found else { continue };
            let Some(conn) = conns.get(slot, now).copied() else { continue };
            if conn.backend != target.id {
                continue; // another core may have a newer entry
            }
            if let Some((flags, _)) = came {
                conns.answered(slot, flags, now);
                if core == self.core {
                    conns.offer(slot, Sender::Backend, key, now);
                }
            }
            reply.mac = conns.mac(slot);
            drop(conns);
            self.whose.set(Some(target.id));
            reply.home = Some((core as u16, slot));
            if covered && core != self.core && is_leased(&conn) {
                self.answer_leases.put(own, hash, now, moves, (reply, target.id));
            }
            return Some(reply);
        }
        None
    }

    /// The translation of a reply to a packet that was forwarded without an entry.
    fn stray(&self, plan: &Plan, candidate: Candidate<'_>, now: Nanos) -> Option<Reply> {
        let (target, flow, own, hash) = candidate;
        let is_stray = match &target.asked {
            Some(asked) => asked.has(hash, self.settings.timeouts.datagrams, now),
            None => {
                let chosen = || plan.without_entry(target.service, own, hash, now);
                self.strays.has(hash, now) && chosen().is_some_and(|other| other.id == target.id)
                    || self
                        .hub
                        .by_report(plan, target.service, hash, now)
                        .is_some_and(|other| other.id == target.id)
            }
        };
        self.whose.set(is_stray.then_some(target.id));
        if is_stray { reply_of(flow) } else { None }
    }
}

/// A backend that a packet may be a reply of, with the flow of the client's packets that it would answer, its key and its
/// hash.
type Candidate<'a> = (&'a Target, &'a FlowKey, &'a ConnKey, u64);

/// The translation of a reply to packets with this flow.
fn reply_of(flow: &FlowKey) -> Option<Reply> {
    let (vip, port) = (flow.dst_ip()?, flow.dport);
    Some(Reply { vip, port, dst: None, home: None, proxied: Proxied::default(), mac: None })
}

/// The TCP flags of a packet, and the mark of its frame.
type Came = Option<(u8, u32)>;

/// Whether replies of another core's connection may use a lease: it stays until it expires.
const fn is_leased(conn: &Conn) -> bool {
    conn.is_established() && matches!(conn.state(), State::Open | State::Datagrams)
}
