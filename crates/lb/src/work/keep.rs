//! Entering connections into the table of this core: room in the table, and local ports for FullNAT.
//!
//! ```text
//!  new connection ──> table or its service's limit full? ──> evict a half-open or idle entry, or none is kept
//!                 ──> FullNAT: a local port that no connection has towards this backend
//! ```
//!
//! Services share a table. If one service has used it up, each other service can still have an equal part:
//! its new connections evict half-open and idle entries of services that have more than their part. A
//! service that has its part evicts only its own entries, and those of services that have more.
//!
//! A local port is free towards a backend if no connection of the table has it towards the same address and
//! port. The first port that is tried is the next one in turn, so that a port is used again as late as
//! possible; the others are chosen by the hash of the connection.
//!
//! Invariants: an entry that is removed is counted; a FullNAT entry that is used for packets has a local
//! port; a fixed number of ports and entries is inspected for a connection.

use std::sync::atomic::Ordering::Release;

use crate::{Conn, ConnKey, Conns, LocalPort, Mode, Owner, State, Target};
use flowyard_frame::{FlowKey, Nanos};

use super::balance::Balance;
use super::locals::Locals;
use super::way::Way;
use super::ways::count;

/// The most local ports that are tried for a connection.
const TRIES: u64 = 64;

impl Balance {
    /// Enters the connection into this core's table, replacing an existing entry. `None` if there is no room
    /// or no local port.
    pub(super) fn keep(
        &self,
        conn: &ConnKey,
        hash: u64,
        target: &Target,
        state: State,
        now: Nanos,
    ) -> Option<Way> {
        let mut conns = self.table(self.core)?;
        let service = self.plan.services().get(usize::from(target.service))?.number;
        let old = conns.find(conn, hash, now).and_then(|slot| conns.get(slot, now));
        let old = old.map(|conn| (conn.backend, conn.local()));
        if old.is_none() && !self.has_room(&mut conns, target.service, now) {
            return None;
        }
        let owner = Owner { backend: target.id, service };
        let slot = conns.insert(conn, hash, owner, state, now).ok()?;
        let mut local = LocalPort::default();
        if let Some((old, port)) = old {
            local = port;
            self.moves.fetch_add(1, Release);
            if let Some(old) = self.plan.target(old) {
                count(old, false);
            }
        }
        if target.mode == Mode::FullNat {
            let home = (self.core, slot);
            local = self.bind(&mut conns, home, target, (hash, &conn.flow()), local);
            if local.port == 0 {
                conns.remove(slot, self.plan.seed());
                return None;
            }
        }
        count(target, true);
        Some(Way { backend: target.id, home: Some((self.core as u16, slot)), local })
    }

    /// Whether a half-open connection of a service may be entered. A service that needs an entry for each
    /// connection replaces the oldest half-open one.
    pub(super) fn may_open(&self, service: u16, now: Nanos) -> bool {
        let Some(mut conns) = self.table(self.core) else { return false };
        let Some(table) = self.plan.services().get(usize::from(service)) else { return false };
        let most = self.settings.opening_most;
        let part = most / self.plan.services().len().max(1);
        if conns.opening() < most || conns.held(table.number).opening < part {
            return true;
        }
        if table.service.mode != Mode::FullNat {
            return false; // the Maglev table alone chooses
        }
        let may = |conns: &Conns, of: u16| of == table.number || conns.held(of).opening > part;
        let gone = conns.evict_opening(now, self.plan.seed(), may);
        self.evicted(gone)
    }

    /// Whether there is room for another connection of a service, after an eviction if that is needed.
    fn has_room(&self, conns: &mut Conns, service: u16, now: Nanos) -> bool {
        let services = self.plan.services();
        let Some(table) = services.get(usize::from(service)) else { return false };
        let (number, limit) = (table.number, table.service.connections);
        let part = conns.capacity() / services.len().max(1);
        let (seed, must) = (self.plan.seed(), table.service.mode == Mode::FullNat);
        if limit > 0 && conns.held(number).all >= limit {
            return self.evicted(conns.evict(now, seed, must, |_, of| of == number));
        }
        if !conns.is_full() {
            return true;
        }
        let may = |conns: &Conns, of: u16| of == number || conns.held(of).all > part;
        self.evicted(conns.evict(now, seed, must, may))
    }

    /// Counts an evicted connection. Returns whether there was one.
    fn evicted(&self, gone: Option<Conn>) -> bool {
        let Some(gone) = gone else { return false };
        if let Some(target) = self.plan.target(gone.backend) {
            count(target, false);
        }
        self.moves.fetch_add(1, Release); // other cores must not use their leases of it
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
        let is_bound = self.evicted(gone) && conns.bind(slot, reply, local);
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
