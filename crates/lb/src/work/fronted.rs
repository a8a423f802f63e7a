//! Connections in front of the balancer: established ones are put there, and what was answered there is counted.
//!
//! ```text
//!  packet of a client forwarded ──> established, plain mode ──put──> front
//!  each tick: some of its flows ──> packets and bytes into the counters, deadlines, still the same answer?
//!  FIN, RST, SYN, expired, evicted, other backend ──> removed before the batch leaves; counted once more, freed
//! ```
//!
//! Only the core whose table has the entry puts it. The front sends packets on that need nothing but what its entry
//! says; all others come here.

use std::sync::Arc;

use flowyard_frame::{FlowKey, Nanos, To};
use flowyard_works::neighbour::Neighbour;
use flowyard_yard::front::{AFTER, Change, Entry, Front};

use super::ahead::One;
use super::balance::Balance;
use super::way::Way;
use crate::{ConnKey, Exit, Mode, State};

/// Flows that are looked at in a tick.
const BUDGET: usize = 64;

impl Balance {
    /// Offers the connection of a packet that was forwarded to the front.
    #[inline]
    pub(super) fn offer(&mut self, to: To, way: &Way, key: &FlowKey, hash: u64) {
        if self.ahead.is_some() && matches!(to, To::Port(_)) {
            self.offer_to_front(way, key, hash);
        }
    }

    #[cold]
    fn offer_to_front(&mut self, way: &Way, key: &FlowKey, hash: u64) {
        let Some((core, slot)) = way.home else { return };
        if usize::from(core) != self.core {
            return;
        }
        let is_ready = self.table(self.core).is_some_and(|conns| {
            let conn = conns.get(slot, self.now);
            conns.may_go_ahead(slot)
                && conn.is_some_and(|conn| {
                    conn.is_established() && matches!(conn.state(), State::Open | State::Datagrams)
                })
        });
        if !is_ready {
            return;
        }
        let conn = ConnKey::of(key);
        let Some(entries) = self.entries(&conn, way.backend, hash) else { return };
        let now = self.now;
        let Some(ahead) = &mut self.ahead else { return };
        let flow = match entries {
            [Some(first), Some(second)] => ahead.front.put(&[first, second], now),
            [Some(first), None] => ahead.front.put(&[first], now),
            _ => None,
        };
        if let Some(flow) = flow {
            let (key, backend) = (conn, way.backend);
            let one = One { slot, key, backend, entries, counted: Default::default() };
            ahead.flows.insert(flow, one);
        }
        if let Some(mut conns) = self.table(self.core) {
            conns.set_flow(slot, flow);
        }
    }

    /// What is done with packets of a connection, and with the replies; `None` if the front cannot do it.
    pub(super) fn entries(
        &self,
        conn: &ConnKey,
        backend: u32,
        hash: u64,
    ) -> Option<[Option<Entry>; 2]> {
        let flow = conn.flow();
        let target = self.plan.target(backend).filter(|target| target.keeps)?;
        let service = &self.plan.services().get(usize::from(target.service))?.service;
        let neighbour = self.hops.get(target).and_then(|hop| hop.neighbour.as_deref());
        let (overhead, v6) = (target.mode.overhead(target.addr.is_ipv6()), flow.is_ipv6());
        let mtu = match self.mtu(target, service.mtu) {
            None => 0,
            Some(mtu) => u16::try_from(mtu.checked_sub(overhead).filter(|mtu| *mtu > 0)?).ok()?,
        };
        if !service.quic.is_empty() || service.tells() {
            return None;
        }
        let change = match target.mode {
            Mode::Dsr => Change::None,
            Mode::Dnat if target.addr.is_ipv6() == v6 => {
                Change::Destination(target.addr, target.port)
            }
            Mode::Ipip => {
                let source = self.locals.source(target.addr.is_ipv6())?;
                Change::Tunnel(source, target.addr, (hash >> 40) as u32 & 0xf_ffff)
            }
            Mode::Dnat | Mode::Gue | Mode::FullNat => return None,
        };
        let (port, macs) = (target.exit.port, Some(macs_of(target.exit, neighbour)?));
        let first = Entry { key: flow, port, macs, hop: true, change, mtu };
        if target.mode != Mode::Dnat {
            return Some([Some(first), None]);
        }
        let (client, vip) = (flow.src_ip()?, flow.dst_ip()?);
        let from = target.port.unwrap_or(flow.dport);
        let reply = FlowKey::five_tuple(flow.proto, target.addr, from, client, flow.sport);
        let (answering, seen) = self.plan.answered(&reply)?;
        let is_plain = answering.id == target.id && ConnKey::of(&seen) == *conn;
        if !is_plain || self.settings.returns || self.locals.owner(client).is_some() {
            return None;
        }
        let change = Change::Source(vip, Some(flow.dport));
        let macs = Some(macs_of(self.settings.clients, self.clients.as_deref())?);
        let port = self.settings.clients.port;
        let second = Entry { key: reply, port, macs, hop: true, change, mtu: 0 };
        Some([Some(first), Some(second)])
    }

    /// Removes flows whose connections have ended or changed.
    #[inline]
    pub(super) fn leave_front(&mut self) {
        if self.ahead.is_some() {
            self.remove_gone();
        }
    }

    #[cold]
    fn remove_gone(&mut self) {
        loop {
            let flow = self.table(self.core).and_then(|mut conns| conns.gone_flow());
            let (Some(flow), Some(ahead)) = (flow, &mut self.ahead) else { return };
            ahead.remove(flow, self.now);
        }
    }

    /// Looks at some of the flows in front.
    pub(super) fn look_ahead(&mut self, now: Nanos) {
        if self.ahead.is_some() {
            self.now = now;
            self.renew_plan();
            self.remove_gone();
            self.sweep(now);
            self.free_left(now);
        }
    }

    fn sweep(&mut self, now: Nanos) {
        let Some(mut ahead) = self.ahead.take() else { return };
        let mut stale = Vec::new();
        let next = ahead.next;
        ahead.next = 0;
        for (looked, (flow, one)) in ahead.flows.range_mut(next..).enumerate() {
            if looked == BUDGET {
                ahead.next = *flow;
                break;
            }
            let came = self.count_ahead(&*ahead.front, *flow, one);
            if came && let Some(mut conns) = self.table(self.core) {
                conns.renew(one.slot, now);
            }
            let hash = one.key.hash(self.plan.seed());
            if self.entries(&one.key, one.backend, hash) != Some(one.entries) {
                stale.push(*flow);
            }
        }
        for flow in stale {
            if let (Some(slot), Some(mut conns)) = (ahead.remove(flow, now), self.table(self.core))
            {
                conns.forget_flow(slot, flow);
            }
        }
        self.ahead = Some(ahead);
    }

    /// Counts what was answered since the last time. Returns whether anything was.
    fn count_ahead(&self, front: &dyn Front, flow: u32, one: &mut One) -> bool {
        let cell = self.plan.target(one.backend).and_then(|target| target.counts.of(self.core));
        let mut came = false;
        for entry in 0..2 {
            let seen = front.seen(flow, entry);
            let packets = seen.packets.wrapping_sub(one.counted[entry].packets);
            if packets == 0 {
                continue;
            }
            let bytes = seen.bytes.wrapping_sub(one.counted[entry].bytes);
            one.counted[entry] = seen;
            came = true;
            if let Some(cell) = cell {
                cell.answered_ahead(entry == 0, packets, bytes);
            }
        }
        came
    }

    /// Counts flows that were removed for the last time, and frees their numbers.
    fn free_left(&mut self, now: Nanos) {
        while let Some(ahead) = &mut self.ahead
            && let Some((since, ..)) = ahead.leaving.front()
            && now.saturating_sub(*since) > AFTER
            && let Some((_, flow, mut one)) = ahead.leaving.pop_front()
        {
            let front = Arc::clone(&ahead.front);
            self.count_ahead(&*front, flow, &mut one);
            front.free(flow);
        }
    }
}

impl Drop for Balance {
    /// Counts what was answered last.
    fn drop(&mut self) {
        let Some(mut ahead) = self.ahead.take() else { return };
        let front = Arc::clone(&ahead.front);
        let flows = ahead.flows.iter_mut().map(|(flow, one)| (*flow, one));
        for (flow, one) in flows.chain(ahead.leaving.iter_mut().map(|(_, flow, one)| (*flow, one)))
        {
            front.remove(flow);
            self.count_ahead(&*front, flow, one);
        }
    }
}

/// The MAC addresses of frames that leave by `exit`: destination, source; `None` while they are unknown.
fn macs_of(exit: Exit, next: Option<&Neighbour>) -> Option<([u8; 6], [u8; 6])> {
    let dst = match exit.via {
        None => exit.dst,
        Some(_) => next.and_then(Neighbour::mac)?,
    };
    Some((dst, exit.src))
}
