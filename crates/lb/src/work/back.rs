//! Replies of backends, whose source is translated to the VIP, and packets that belong to no service.

use std::sync::atomic::Ordering::Acquire;

use crate::{ConnKey, Proxied, Stage, State};
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
            Frag::Later => self.answers.get(pool.bytes(&batch.frames[lane]), &key),
            _ => self.reply(&key, Some(key.tcp_flags), now),
        };
        if let Some(reply) = found {
            let Reply { vip, port, dst, home, proxied } = reply;
            let Some(mut packet) = Packet::new(pool.bytes_mut(&mut batch.frames[lane]), &key)
            else {
                return refuse(batch, lane, DropReason::Malformed);
            };
            if packet.is_routed() {
                return refuse(batch, lane, DropReason::Malformed);
            }
            if packet.is_expired() {
                let why = (vip, DropReason::TtlExpired);
                return self.answer_with((batch, lane), pool, Wrong::Expired, why);
            }
            if key.fragment() == Frag::First {
                // Later fragments have no TCP header.
                self.answers.put(&packet, &key, Reply { proxied: Proxied::default(), ..reply });
            }
            packet.one_hop();
            if proxied.stage != Stage::None {
                let after = proxy::from_proxied(&mut packet, &key, proxied);
                if let (true, Some((core, slot))) = (after != proxied, home)
                    && let Some(mut conns) = self.table(core.into())
                {
                    conns.set_proxied(slot, after);
                }
            }
            let back = dst.is_none_or(|(addr, port)| packet.translate(Side::Dst, addr, Some(port)));
            return match back && packet.translate(Side::Src, vip, Some(port)) {
                true => out(batch, lane, pool, self.settings.clients, self.clients.as_deref()),
                false => refuse(batch, lane, DropReason::Fragment),
            };
        }
        match self.settings.pass.get(usize::from(key.in_port)).copied().flatten() {
            Some(port) => leave(batch, lane, port),
            None if key.is_ip() => refuse(batch, lane, DropReason::NoService),
            None => refuse(batch, lane, DropReason::NotIp),
        }
    }

    /// The translation of a reply of a backend; `None` if the packet is not one. `flags` are its TCP flags;
    /// `None` for a packet that is only quoted and must not change the state of its connection.
    pub(super) fn reply(&mut self, key: &FlowKey, flags: Option<u8>, now: Nanos) -> Option<Reply> {
        if !proto::has_ports(key.proto) || key.fragment() == Frag::Later {
            return None;
        }
        let (src, dst) = (key.src_ip()?, key.dst_ip()?);
        if let Some((core, slot)) = self.locals.home(dst, key.dport) {
            // A connection in another core's table, and a packet that does not change its state.
            let lease = flags
                .filter(|&flags| usize::from(core) != self.core && Leases::<Reply>::covers(flags))
                .map(|_| {
                    let conn = ConnKey::of(key);
                    (conn, conn.hash(self.plan.seed()), self.moves.load(Acquire))
                });
            if let Some((conn, hash, moves)) = &lease
                && let Some((reply, whose)) = self.answer_leases.get(conn, *hash, now, *moves)
            {
                self.whose.set(Some(whose));
                return Some(reply);
            }
            let mut conns = self.table(core.into())?;
            let conn = *conns.get(slot, now)?;
            let flow = conn.key().flow();
            let target = self.plan.target(conn.backend)?;
            let from = target.port.unwrap_or(flow.dport);
            if (target.addr, from, key.proto) != (src, key.sport, flow.proto) {
                return None; // not from the backend of this connection
            }
            if let Some(flags) = flags {
                conns.seen(slot, flags, now);
            }
            drop(conns);
            let whose = target.id;
            self.whose.set(Some(whose));
            let reply = Reply {
                vip: flow.dst_ip()?,
                port: flow.dport,
                dst: Some((flow.src_ip()?, flow.sport)),
                home: Some((core, slot)),
                proxied: conn.proxied(),
            };
            if let Some((key, hash, moves)) = lease
                && matches!(conn.state(), State::Open | State::Datagrams)
                && reply.proxied.stage == Stage::None
            {
                self.answer_leases.put(&key, hash, now, moves, (reply, whose));
            }
            return Some(reply);
        }
        let service = &self.plan.returning(src, key.proto, key.sport)?.service;
        self.whose.set(self.plan.returned_by(src, key.proto, key.sport).map(|target| target.id));
        let moved = service.backends.iter().any(|b| b.addr == src && b.port == Some(key.sport));
        let port = if moved { *service.ports.start() } else { key.sport };
        let proxied = Proxied::default();
        Some(Reply { vip: service.vip, port, dst: None, home: None, proxied })
    }
}
