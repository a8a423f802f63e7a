//! Entering connections into the table of this core: limits, room in the table, and local ports for FullNAT.
//!
//! ```text
//!  new connection ──> limit of unestablished connections reached? ──> evict the least recently used of them
//!                 ──> table or its service's limit full? ──> evict an entry that is not needed, or none is kept
//!                 ──> FullNAT: a local port that no connection has towards this backend
//! ```
//!
//! Every entry begins as an unestablished one, and no entry is needed when it becomes established. So a flood of
//! packets with forged source addresses replaces its own entries only, and those of clients that take longer for
//! their second packet than the flood takes to use up the limit.
//!
//! Services share a table. If one service has used it up, each other service can still have an equal part:
//! its new connections evict unestablished and idle entries of services that have more than their part. A
//! service that has its part evicts only its own entries, and those of services that have more. The same holds
//! for the limit of unestablished connections.
//!
//! A local port is free towards a backend if no connection of the table has it towards the same address and
//! port. The first port that is tried is the next one in turn, so that a port is used again as late as
//! possible; the others are chosen by the hash of the connection.
//!
//! Invariants: an entry that is removed is counted; a FullNAT entry that is used for packets has a local
//! port; a fixed number of ports and entries is inspected for a connection.

use std::sync::atomic::Ordering::Release;

use crate::{Conn, ConnKey, Conns, Limit, LocalPort, Mode, Owner, Progress, State, Table, Target};
use flowyard_frame::{FlowKey, Nanos};

use super::balance::Balance;
use super::locals::{Locals, ports_for_unestablished};
use super::way::Way;
use super::ways::count;

/// The most local ports that are tried for a connection.
const TRIES: u64 = 64;

/// Whether a new connection may have an entry, as far as unestablished connections are limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// It may.
    Free,
    /// It may, because another one was evicted. The same can happen to this one.
    Pressed,
    /// It may not.
    No,
}

impl Balance {
    /// Enters the connection into this core's table, replacing an existing entry. With `counts`, it is counted as one of
    /// `target`; otherwise another core's entry is. An error is the limit because
    /// of which there is no room or no local port.
    pub(super) fn keep(
        &self,
        conn: &ConnKey,
        hash: u64,
        (target, counts): (&Target, bool),
        (state, seen): (State, Progress),
        now: Nanos,
    ) -> Result<Way, Limit> {
        let mut conns = self.table(self.core).ok_or(Limit::Table)?;
        let table = self.plan.services().get(usize::from(target.service)).ok_or(Limit::Table)?;
        let old = conns.replaced(conn, hash).copied();
        if old.is_none() {
            self.make_room(&mut conns, table, now)?;
        }
        let sees_answers = target.mode.translates();
        let owner = Owner { backend: target.id, service: table.number, sees_answers };
        let slot = conns.insert(conn, hash, owner, state, now).map_err(|_| Limit::Table)?;
        conns.adopt(slot, seen, now);
        let mut local = LocalPort::default();
        if let Some(old) = old {
            local = old.local();
            self.moves.fetch_add(1, Release);
            if let Some(old) = self.plan.target(old.backend).filter(|_| old.is_counted()) {
                count(old, false);
            }
        }
        if target.mode == Mode::FullNat {
            let home = (self.core, slot);
            local = self.bind(&mut conns, home, target, (hash, &conn.flow()), local);
            if local.port == 0 {
                conns.remove(slot, self.plan.seed());
                return Err(Limit::LocalPorts);
            }
        }
        match counts {
            true => count(target, true),
            false => _ = conns.set_counted(slot, false),
        }
        Ok(Way { backend: target.id, home: Some((self.core as u16, slot)), local })
    }

    /// Whether a new connection of a service may be entered, after an eviction if that is needed.
    pub(super) fn admit(&self, service: u16) -> Admission {
        let Some(mut conns) = self.table(self.core) else { return Admission::No };
        let services = self.plan.services();
        let Some(table) = services.get(usize::from(service)) else { return Admission::No };
        let (number, most) = (table.number, self.settings.opening_most);
        let held = conns.held(number).unestablished;
        let from = if held >= self.unestablished_most(table) {
            number
        } else if conns.unestablished() < most {
            return Admission::Free;
        } else {
            match conns.crowding(number, most / services.len().max(1)) {
                Some(from) => from,
                None => return Admission::Free, // the service has less than its part
            }
        };
        let gone = conns.evict_unestablished(from, self.plan.seed());
        match self.evicted(gone, Limit::Unestablished) {
            true => Admission::Pressed,
            false => Admission::No,
        }
    }

    /// The most unestablished connections of a service: its limit, and of its local ports a part, so that a port
    /// is found soon.
    fn unestablished_most(&self, table: &Table) -> usize {
        let service = &table.service;
        let limit = if service.opening == 0 { usize::MAX } else { service.opening };
        if service.mode != Mode::FullNat {
            return limit;
        }
        let ports = self.locals.ports(self.core, service.vip.is_ipv6()) as usize;
        limit.min(ports_for_unestablished(ports.saturating_mul(service.backends.len())))
    }

    /// Makes room for another connection of a service by an eviction, if that is needed.
    fn make_room(&self, conns: &mut Conns, table: &Table, now: Nanos) -> Result<(), Limit> {
        let (number, limit) = (table.number, table.service.connections);
        let part = conns.capacity() / self.plan.services().len().max(1);
        let (seed, must) = (self.plan.seed(), table.service.mode == Mode::FullNat);
        let (why, gone) = if limit > 0 && conns.held(number).all >= limit {
            (Limit::Service, conns.evict(now, seed, must, number, |_, of| of == number))
        } else if conns.is_full() {
            let may = |conns: &Conns, of: u16| of == number || conns.held(of).all > part;
            (Limit::Table, conns.evict(now, seed, must, number, may))
        } else {
            return Ok(());
        };
        if self.evicted(gone, why) { Ok(()) } else { Err(why) }
    }

    /// Counts a connection that was evicted because of `limit`. Returns whether there was one.
    fn evicted(&self, gone: Option<Conn>, limit: Limit) -> bool {
        let Some(gone) = gone else { return false };
        if let Some(target) = self.plan.target(gone.backend) {
            if gone.is_counted() {
                count(target, false);
            }
            if let Some(cell) = target.counts.of(self.core) {
                cell.evicted(limit);
            }
            if target.mode == Mode::Dnat {
                // The Maglev table still sends its packets to this backend, if it chose it.
                self.strays.note(gone.key().hash(self.plan.seed()), self.now);
            }
        }
        if gone.is_established() {
            self.moves.fetch_add(1, Release); // other cores must not use their leases of it
        }
        true
    }

    /// Gives the FullNAT connection in `slot` of a core's table a local port towards `target`. `hash` is that
    /// of the connection; `before` is the port that the connection had. Returns the port, or the default if
    /// there is none.
    pub(super) fn bind(
        &self,
        conns: &mut Conns,
        (core, slot): (usize, u32),
        target: &Target,
        (hash, flow): (u64, &FlowKey),
        before: LocalPort,
    ) -> LocalPort {
        let (v6, seed) = (flow.is_ipv6(), self.plan.seed());
        let ports = self.locals.ports(core, v6);
        if ports == 0 {
            return LocalPort::default();
        }
        let from = target.port.unwrap_or(flow.dport);
        let mut best: Option<(u64, u32, u64, LocalPort)> = None;
        for number in 0..TRIES {
            let local = match number {
                // The SYN may be a late one of this connection, so its port stays if it can.
                0 if before.port != 0 => before,
                0 => Locals::port(
                    self.next_port.replace(self.next_port.get().wrapping_add(1)) % ports,
                ),
                _ => Locals::port(pick(hash, number, ports)),
            };
            let Some(addr) = self.locals.addr(core, local, v6) else { continue };
            let reply = FlowKey::five_tuple(flow.proto, target.addr, from, addr, local.port);
            let reply = ConnKey::of(&reply).hash(seed);
            let Some(other) = conns.bound(reply, local) else {
                if conns.bind(slot, reply, local) {
                    return local;
                }
                continue; // the index has no place for it
            };
            let rank = if other == slot { None } else { conns.rank(other, self.now) };
            if rank > best.map(|(rank, ..)| rank) {
                best = rank.map(|rank| (rank, other, reply, local));
            }
        }
        let Some((_, other, reply, local)) = best else { return LocalPort::default() };
        let gone = conns.remove(other, seed);
        let is_bound = self.evicted(gone, Limit::LocalPorts) && conns.bind(slot, reply, local);
        if is_bound { local } else { LocalPort::default() }
    }
}

/// The number of the port that is tried in turn `turn` for a connection with this hash.
const fn pick(hash: u64, turn: u64, ports: u32) -> u32 {
    let mixed = hash.wrapping_add(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (mixed ^ mixed >> 32) as u32;
    ((word as u64 * ports as u64) >> 32) as u32
}
