//! Which backend a packet goes to: the connection that it is of, on this core or another, or else the
//! choice of its service.
//!
//! Invariants: a core holds one table's lock at a time; a connection that is kept is counted for its
//! backend, and for one at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{Conn, ConnKey, Conns, Mode, Plan, State, Target};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos, proto};

use super::leases::Leases;
use super::rewrite::Packet;
use super::{BUDGET, Balance};
use flowyard_yard::DropReason;

/// Where a packet of a connection goes.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// The backend's number.
    pub(super) backend: u32,
    /// The table and slot of the connection; `None` if it is not kept.
    pub(super) home: Option<(u16, u32)>,
}

/// What is known of the lanes of a batch.
pub(super) struct Seen {
    pub(super) keys: [ConnKey; LANES],
    pub(super) hashes: [u64; LANES],
    pub(super) slots: [u32; LANES],
    pub(super) ways: [Option<Way>; LANES],
}

/// What becomes of a packet whose connection was not known.
pub(super) enum Missed {
    Way(Way),
    NoService,
    Drop(DropReason),
}

impl Balance {
    /// Finds the connections of `lanes` in this core's table. Returns those that missed.
    pub(super) fn hits(&self, batch: &Batch, lanes: Lanes, now: Nanos, seen: &mut Seen) -> Lanes {
        let seed = self.plan.seed();
        for lane in lanes {
            seen.keys[lane] = ConnKey::of(&batch.keys[lane]);
            seen.hashes[lane] = seen.keys[lane].hash(seed);
        }
        let Some(mut conns) = self.table(self.core) else { return lanes };
        let plan = &*self.plan;
        let mut gone = |conn: &Conn| {
            if let Some(target) = plan.target(conn.backend) {
                count(target, false);
            }
        };
        conns.advance(now, BUDGET, seed, &mut gone);
        let mut missed = conns.find_batch(&seen.keys, &seen.hashes, lanes, now, &mut seen.slots);
        for lane in lanes.without(missed) {
            let (slot, flags) = (seen.slots[lane], batch.keys[lane].tcp_flags);
            match conns.seen(slot, flags, now) {
                Some((backend, state)) if stays(plan, backend, state, flags) => {
                    seen.ways[lane] = Some(Way { backend, home: Some((self.core as u16, slot)) });
                }
                _ => missed = missed.with(lane), // it is there, but needs another backend
            }
        }
        missed
    }

    /// The way of a packet whose connection this core does not know, or that cannot stay.
    pub(super) fn miss(&mut self, key: &FlowKey, conn: &ConnKey, hash: u64, now: Nanos) -> Missed {
        let (flags, moves) = (key.tcp_flags, self.moves.load(Acquire));
        if Leases::<Way>::covers(flags)
            && let Some(way) = self.leases.get(conn, hash, now, moves)
        {
            return Missed::Way(way);
        }
        let Some(service) =
            key.dst_ip().and_then(|dst| self.plan.service(dst, key.proto, key.dport))
        else {
            return Missed::NoService;
        };
        let plan = Arc::clone(&self.plan);
        // The batch may have had one of its packets already.
        let found = |conns: &mut Conns, core: usize| {
            let slot = conns.find(conn, hash, now)?;
            let (backend, state) = conns.seen(slot, flags, now)?;
            let home = Some((core as u16, slot));
            stays(&plan, backend, state, flags).then_some((Way { backend, home }, state))
        };
        let own = self.table(self.core).and_then(|mut conns| found(&mut conns, self.core));
        if let Some((way, _)) = own {
            return Missed::Way(way);
        }
        for core in (0..self.conns.len()).filter(|&core| core != self.core) {
            let Some((way, state)) = self.table(core).and_then(|mut c| found(&mut c, core)) else {
                continue;
            };
            let local = plan.target(way.backend).is_some_and(|t| t.mode == Mode::FullNat);
            if local {
                // It stays there: its local port is its slot.
                if Leases::<Way>::covers(flags) && matches!(state, State::Open | State::Datagrams) {
                    self.leases.put(conn, hash, now, moves, way);
                }
                return Missed::Way(way);
            }
            let kept = self.keep(conn, hash, way.backend, state, now);
            return Missed::Way(kept.unwrap_or(way));
        }
        let state = State::first(key.proto, flags);
        let fresh = state != State::Open && state != State::Closing || key.proto != proto::TCP;
        let flood = state == State::Opening
            && self.table(self.core).is_some_and(|c| c.opening() >= self.settings.opening_most);
        let chosen = match fresh && !flood {
            true => plan.choose(service, conn, hash, &mut self.turns),
            false => plan.fall_back(service, conn, hash),
        };
        let Some(target) = chosen else { return self.no(service, DropReason::NoBackend) };
        if !flood && let Some(way) = self.keep(conn, hash, target.id, state, now) {
            self.connected(target.id);
            return Missed::Way(way);
        }
        // There is no room: what every core and machine would say of each of its packets.
        if target.mode == Mode::FullNat || self.settings.full_drops && !flood {
            return self.no(service, DropReason::NoConnection);
        }
        match plan.fall_back(service, conn, hash) {
            Some(target) => Missed::Way(Way { backend: target.id, home: None }),
            None => self.no(service, DropReason::NoBackend),
        }
    }

    /// A packet for `service` gets no backend.
    fn no(&self, service: u16, reason: DropReason) -> Missed {
        self.unserved(service, reason);
        Missed::Drop(reason)
    }

    /// Keeps the connection in this core's table, if there is room; in place of what it was.
    fn keep(
        &self,
        conn: &ConnKey,
        hash: u64,
        backend: u32,
        state: State,
        now: Nanos,
    ) -> Option<Way> {
        let mut conns = self.table(self.core)?;
        let old = conns.find(conn, hash, now).and_then(|slot| conns.get(slot, now));
        let old = old.map(|conn| conn.backend);
        let slot = conns.insert(conn, hash, backend, state, now).ok()?;
        drop(conns);
        if let Some(old) = old {
            self.moves.fetch_add(1, Release);
            if let Some(old) = self.plan.target(old) {
                count(old, false);
            }
        }
        if let Some(target) = self.plan.target(backend) {
            count(target, true);
        }
        Some(Way { backend, home: Some((self.core as u16, slot)) })
    }

    /// The way of a connection by a packet that is quoted: it does not begin one.
    pub(super) fn way_of(&self, conn: &ConnKey, hash: u64, now: Nanos) -> Option<Way> {
        let cores =
            std::iter::once(self.core).chain((0..self.conns.len()).filter(|&c| c != self.core));
        let mut ways = cores.filter_map(|core| {
            let conns = self.table(core)?;
            let slot = conns.find(conn, hash, now)?;
            let backend = conns.get(slot, now)?.backend;
            Some(Way { backend, home: Some((core as u16, slot)) })
        });
        // What another core kept after the backend went is nearer to the truth than what was before.
        let stays = |way: &Way| self.plan.target(way.backend).is_some_and(|target| target.keeps);
        let first = ways.next()?;
        if stays(&first) { Some(first) } else { ways.find(stays).or(Some(first)) }
    }

    /// To the backend that the connection ID names, if the service routes QUIC and it is another.
    pub(super) fn by_connection_id(&self, packet: &Packet<'_>, key: &FlowKey, way: Way) -> Way {
        if key.proto != proto::UDP {
            return way;
        }
        let Some(service) = self.plan.target(way.backend).map(|target| target.service) else {
            return way;
        };
        let payload = packet.bytes.get(packet.l4 + 8..).unwrap_or_default();
        match self.plan.by_connection_id(service, payload) {
            Some(target) if target.id != way.backend && (target.keeps || target.weight > 0) => {
                if let Some((core, slot)) = way.home
                    && let Some(mut conns) = self.table(core.into())
                {
                    conns.send_to(slot, target.id);
                    self.moves.fetch_add(1, Release);
                    if let Some(old) = self.plan.target(way.backend) {
                        count(old, false);
                    }
                    count(target, true);
                }
                Way { backend: target.id, ..way }
            }
            _ => way,
        }
    }
}

/// Whether a packet with these flags goes on to the backend that its connection has.
#[inline]
fn stays(plan: &Plan, backend: u32, state: State, flags: u8) -> bool {
    // A SYN on a closing connection: the client uses its port again.
    let again = state == State::Closing && flags & (FlowKey::SYN | FlowKey::ACK) == FlowKey::SYN;
    !again && plan.target(backend).is_some_and(|target| target.keeps)
}

/// Counts a connection that came or went.
fn count(target: &Target, came: bool) {
    // What was counted for a backend of the same number, before it went and came, is not undone.
    let change = |n: u32| Some(if came { n.saturating_add(1) } else { n.saturating_sub(1) });
    let _ = target.active.fetch_update(Relaxed, Relaxed, change);
}
