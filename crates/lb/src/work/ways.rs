//! The backend of a packet: that of its connection in this or another core's table, or else the choice of its
//! service.
//!
//! Invariants: a core holds at most one table's lock at a time; every entry of a table is counted as a
//! connection of exactly one backend.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::{Conn, ConnKey, Conns, Mode, Numbers, Plan, Progress, Sender, State, Target};
use flowyard_frame::{Batch, FlowKey, Lanes, Nanos, proto};
use flowyard_pool::Pool;

use super::balance::Balance;
use super::ends::End;
use super::leases::Leases;
use super::rewrite::Packet;
use super::way::{Missed, Seen, Way};

/// The most connections that are checked for expiry with each batch.
const BUDGET: usize = 64;
/// How often connections expire on a core that receives no frames: once in a tick of the wheel.
const TICK: Nanos = 1 << 27;

impl Balance {
    /// Lets connections expire although no frames come to this core.
    #[inline]
    pub(super) fn expire(&mut self, now: Nanos) {
        if now >= self.expires {
            self.expire_some(now);
        }
    }

    #[cold]
    fn expire_some(&mut self, now: Nanos) {
        self.renew_plan();
        let Some(mut conns) = self.table(self.core) else { return };
        conns.advance(now, BUDGET, self.plan.seed(), &mut |conn| uncount(&self.plan, conn));
        let is_done = !conns.is_behind(now);
        drop(conns);
        if is_done {
            self.expires = now.saturating_add(TICK);
        }
    }

    /// Finds the connections of `lanes` in this core's table. Returns the lanes that missed.
    pub(super) fn hits(
        &self,
        (batch, pool): (&Batch, &Pool),
        lanes: Lanes,
        now: Nanos,
        seen: &mut Seen,
    ) -> Lanes {
        let seed = self.plan.seed();
        for lane in lanes {
            seen.keys[lane] = ConnKey::of(&batch.keys[lane]);
            seen.hashes[lane] = seen.keys[lane].hash(seed);
        }
        let Some(mut conns) = self.table(self.core) else { return lanes };
        let plan = &*self.plan;
        conns.begin();
        conns.advance(now, BUDGET, seed, &mut |conn| uncount(plan, conn));
        let marked = conns.find_marked(batch, &seen.keys, lanes, now, &mut seen.slots);
        let rest = lanes.without(marked);
        let mut missed = conns.find_batch(&seen.keys, &seen.hashes, rest, now, &mut seen.slots);
        for lane in lanes.without(missed) {
            let (slot, flags) = (seen.slots[lane], batch.keys[lane].tcp_flags);
            let frame = || pool.bytes(&batch.frames[lane]);
            match conns.seen(slot, flags, now) {
                Some((backend, before))
                    if stays(plan, backend)
                        && self.continues(
                            &mut conns,
                            (slot, seen.hashes[lane]),
                            (before, flags),
                            (frame, now),
                        ) =>
                {
                    let home = Some((self.core as u16, slot));
                    if self.settings.returns {
                        conns.set_mac(slot, batch.keys[lane].eth_src);
                    }
                    seen.ways[lane] = Some(Way { backend, home, local: conns.local(slot) });
                }
                _ => missed = missed.with(lane), // there is an entry, but it needs another backend
            }
        }
        if conns.is_marking() {
            for lane in lanes.without(missed) {
                conns.offer(seen.slots[lane], Sender::Client, &batch.keys[lane], now);
            }
        }
        missed
    }

    /// Finds the services of the lanes that missed, and fetches what the directory says about their connections, so that
    /// the cache misses of all lanes overlap.
    pub(super) fn services(&self, batch: &Batch, missed: Lanes, seen: &mut Seen) {
        let mut found = Lanes::NONE;
        for lane in missed {
            let key = &batch.keys[lane];
            let of = |dst| self.plan.service(dst, key.proto, key.dport);
            seen.services[lane] = key.dst_ip().and_then(of);
            if seen.services[lane].is_some() {
                found = found.with(lane);
            }
        }
        if let Some(directory) = &self.directory {
            // A loop of its own, so short that the processor sees many of the lanes at once.
            let mut warm = 0;
            for lane in found {
                warm ^= directory.fetch(seen.hashes[lane]);
            }
            std::hint::black_box(warm);
        }
    }

    /// The way of a packet to a service, without an entry in this core's table, or whose entry needs another backend.
    pub(super) fn miss(
        &mut self,
        (key, frame): (&FlowKey, &[u8]),
        (service, conn, hash): (Option<u16>, &ConnKey, u64),
        now: Nanos,
    ) -> Missed {
        let (flags, moves) = (key.tcp_flags, self.moves.load(Acquire));
        if Leases::<Way>::covers(flags)
            && let Some(way) = self.leases.get(conn, hash, now, moves)
        {
            return Missed::Way(way);
        }
        let Some(service) = service else { return Missed::NoService };
        let plan = Arc::clone(&self.plan);
        if plan.services().get(usize::from(service)).is_some_and(|table| table.service.one_packet) {
            return self.one_packet(&plan, service, (conn, hash), now);
        }
        // Whether a table has an entry of a connection that the client has ended before this one.
        let mut is_new = false;
        // An earlier lane of the batch may have entered the connection.
        let mut found = |conns: &mut Conns, core: usize| {
            let slot = conns.find(conn, hash, now)?;
            if is_new && conns.get(slot, now).is_some_and(|conn| !conn.is_counted()) {
                // A copy of the one before, on a core that has not seen its end.
                conns.remove(slot, plan.seed());
                return None;
            }
            let (backend, before) = conns.seen(slot, flags, now)?;
            let way = Way { backend, home: Some((core as u16, slot)), local: conns.local(slot) };
            if !stays(&plan, backend) {
                return None;
            }
            if !self.continues(conns, (slot, hash), (before, flags), (|| frame, now)) {
                is_new = true;
                return None;
            }
            let conn = conns.get(slot, now)?;
            Some((way, (conn.state(), conn.progress())))
        };
        let own = self.table(self.core).and_then(|mut conns| found(&mut conns, self.core));
        if let Some((way, _)) = own {
            return Missed::Way(way);
        }
        for core in self.others(hash) {
            let Some((way, seen)) = self.table(core).and_then(|mut c| found(&mut c, core)) else {
                continue;
            };
            let Some(target) = plan.target(way.backend) else { continue };
            if target.mode == Mode::FullNat {
                // The entry stays there, because that core has the local address.
                if Leases::<Way>::covers(flags) && is_leased(seen) {
                    self.leases.put(conn, hash, now, moves, way);
                }
                return Missed::Way(way);
            }
            let kept = self.keep(conn, hash, (target, false), seen, now);
            if let Ok(Way { home: Some((_, slot)), .. }) = kept {
                self.take_count((conn, hash), target, slot, now);
            }
            return Missed::Way(kept.unwrap_or(way));
        }
        let way = self.new_connection(&plan, service, (key, conn, hash), now);
        if let Missed::Way(Way { home: Some((core, slot)), .. }) = way
            && State::Open.may_end(flags)
            && let Some(mut conns) = self.table(core.into())
            && conns.has(slot, conn)
        {
            // The entry begins with the end.
            self.may_end(&mut conns, (slot, hash), (State::Open, flags), (frame, now));
        }
        way
    }

    /// The connection has an entry of this core now, in `slot`, which was copied from that of another one. From now on it is
    /// counted by this one, and by no other.
    #[cold]
    fn take_count(&self, (conn, hash): (&ConnKey, u64), target: &Target, slot: u32, now: Nanos) {
        let mut was_counted = false;
        for core in self.others(hash) {
            let Some(mut conns) = self.table(core) else { continue };
            let Some(at) = conns.find(conn, hash, now) else { continue };
            if conns.get(at, now).is_some_and(|other| other.backend == target.id) {
                was_counted |= conns.set_counted(at, false);
            }
        }
        if let Some(mut conns) = self.table(self.core) {
            conns.set_counted(slot, true);
        }
        if !was_counted {
            count(target, true); // the other entry has ended meanwhile
        }
    }

    /// Whether a packet of the client belongs to the connection in `slot`, and not to a new one from the same port. `conns` has
    /// been told of the packet; the connection was in state `before`.
    #[inline]
    fn continues<'f>(
        &self,
        conns: &mut Conns,
        place: (u32, u64),
        (before, flags): (State, u8),
        (frame, now): (impl FnOnce() -> &'f [u8], Nanos),
    ) -> bool {
        !before.may_end(flags) || self.may_end(conns, place, (before, flags), (frame(), now))
    }

    /// As [`Self::continues`], for packets that may end a connection, or come after its end. If the end was not known before,
    /// other machines may have to learn it.
    #[cold]
    fn may_end(
        &self,
        conns: &mut Conns,
        (slot, hash): (u32, u64),
        (before, flags): (State, u8),
        (frame, now): (&[u8], Nanos),
    ) -> bool {
        let had = conns.end(slot);
        let continues = conns.continues(slot, (before, flags), Numbers::of(frame));
        if had.is_none()
            && let Some((end, began_elsewhere)) = conns.end(slot)
        {
            self.hub.client_ended(End { hash, end, at: now }, began_elsewhere);
        }
        continues
    }

    /// Stores the MAC address from which a client's packet came, if replies are sent there.
    pub(super) fn note_mac(&self, way: &Way, conn: &ConnKey, mac: [u8; 6]) {
        if self.settings.returns
            && let Some((core, slot)) = way.home
            && let Some(mut conns) = self.table(core.into())
            && conns.has(slot, conn)
        {
            conns.set_mac(slot, mac);
        }
    }

    /// The way of the connection of a quoted packet, which does not open a connection.
    pub(super) fn way_of(&self, conn: &ConnKey, hash: u64, now: Nanos) -> Option<Way> {
        let cores = self.own_and_others(hash);
        let mut ways = cores.filter_map(|core| {
            let conns = self.table(core)?;
            let slot = conns.find(conn, hash, now)?;
            let found = conns.get(slot, now)?;
            let home = Some((core as u16, slot));
            Some(Way { backend: found.backend, home, local: found.local() })
        });
        // If a backend was removed, another core may have a newer entry with an existing backend.
        let stays = |way: &Way| self.plan.target(way.backend).is_some_and(|target| target.keeps);
        let first = ways.next()?;
        if stays(&first) { Some(first) } else { ways.find(stays).or(Some(first)) }
    }

    /// The way to the backend that the QUIC connection ID names, if the service routes QUIC and that backend is
    /// not the one of `way`; otherwise `way`.
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
                let mut way = way;
                if let Some((core, slot)) = way.home
                    && let Some(mut conns) = self.table(core.into())
                    && conns.has(slot, &ConnKey::of(key))
                {
                    conns.send_to(slot, target.id);
                    let is_counted = conns.get(slot, self.now).is_none_or(Conn::is_counted);
                    if target.mode == Mode::FullNat {
                        // The port is that towards the other backend.
                        let flow = (ConnKey::of(key).hash(self.plan.seed()), key);
                        let home = (core.into(), slot);
                        way.local = self.bind(&mut conns, home, target, flow, way.local);
                    }
                    self.moves.fetch_add(1, Release);
                    if is_counted {
                        if let Some(old) = self.plan.target(way.backend) {
                            count(old, false);
                        }
                        count(target, true);
                    }
                }
                Way { backend: target.id, ..way }
            }
            _ => way,
        }
    }
}

/// Whether packets of existing connections still go to this backend.
#[inline]
fn stays(plan: &Plan, backend: u32) -> bool {
    plan.target(backend).is_some_and(|target| target.keeps)
}

/// Whether packets of another core's connection may use a lease: it stays until it expires.
fn is_leased((state, seen): (State, Progress)) -> bool {
    seen.is_established && matches!(state, State::Open | State::Datagrams)
}

/// A connection has expired. If another core has an entry of it, that one is counted.
fn uncount(plan: &Plan, conn: &Conn) {
    if let Some(target) = plan.target(conn.backend).filter(|_| conn.is_counted()) {
        count(target, false);
    }
}

/// Counts a connection that was entered or removed.
pub(super) fn count(target: &Target, came: bool) {
    target.count(came);
}
