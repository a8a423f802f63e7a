//! Balance: a layer-4 load balancer. A connection goes to one backend of its service, and stays.
//!
//! ```text
//!  5-tuple, hash ──> connections of this core ──hit──> backend ──> rewrite, out of its port
//!                          │ miss
//!                          ├─ known to another core: as there (the flow was moved, or is split)
//!                          ├─ a service's: choose, keep it; no room: Maglev alone (or drop)
//!                          ├─ an answer of a backend (DNAT, FullNAT): the VIP as its source
//!                          └─ nobody's: pass it on as configured, or drop
//! ```
//!
//! The plan (services, backends, tables) is one generation, looked for before each batch. Whoever
//! is asked for a connection has a lock for as long as a batch's lookup takes; a core holds one lock at a
//! time, its own but for misses (`docs/decisions/0030-connections-have-a-lock.md`).
//!
//! Invariants: checksums that were right are right; a frame leaves once or is dropped for a
//! reason; nothing is allocated after start.
//! Thread-safety: a core's own, but for the tables of connections and the hub.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Action, Batch, FlowKey, Frag, Frame, LANES, Lanes, Nanos, To, proto};
use flowyard_lb::{
    Conn, ConnKey, Conns, Exit, Mode, Plan, Proxied, Stage, State, Target, Timeouts, Turns,
};
use flowyard_wire::LinkType;

use super::{Work, todo};
use crate::counters::DropReason;
pub use crate::neighbour::Place;
use crate::neighbour::{Neighbour, Neighbours};
use crate::pool::Pool;
use crate::port::refuse;

mod answers;
mod count;
mod encap;
mod errors;
mod explain;
mod fragments;
mod hops;
mod hub;
mod locals;
mod neighbours;
mod proxy;
mod rewrite;

use answers::{Allowance, Wrong};
pub use explain::{Because, Explained, Kept, Occupancy};
use fragments::Fragments;
use hops::Hops;
pub use hub::{Hub, Report};
use locals::{Local, Locals};
use rewrite::{Packet, Side};

/// Connections that are looked at for their end with each batch.
const BUDGET: usize = 64;
/// The most services there can be.
const SERVICES: usize = 4096;

/// What a balancer is to do besides its services.
#[derive(Clone, Debug)]
pub struct BalanceSettings {
    /// Connections that each core keeps.
    pub connections: usize,
    /// What happens to new ones when all are taken: Maglev alone decides, or they are dropped.
    pub full_drops: bool,
    /// Connections of each core that may be opening at a time; SYNs beyond are not kept.
    pub opening_most: usize,
    /// For how long a silent connection is kept.
    pub timeouts: Timeouts,
    /// Where clients are: answers that come back this way leave there.
    pub clients: Exit,
    /// Addresses of its own: sources of tunnels, and of FullNAT.
    pub local: Vec<IpAddr>,
    /// By port a frame came in by: where it leaves if it is for no service; `None` drops it.
    pub pass: Vec<Option<u16>>,
    /// By port: what the balancer is called there.
    pub places: Vec<Place>,
    /// For how long the MAC address of a next hop is believed.
    pub neighbour_fresh: Nanos,
}

/// A balancer, as one core sees it.
pub struct Balance {
    core: usize,
    hub: Arc<Hub>,
    plan: Arc<Plan>,
    hops: Arc<Hops>,
    neighbours: Arc<Neighbours>,
    /// Whether it is a neighbour of anybody.
    speaks: bool,
    /// The next hop to clients, if its MAC address is asked for.
    clients: Option<Arc<Neighbour>>,
    turns: Turns,
    /// By core.
    conns: Arc<[Mutex<Conns>]>,
    /// Of clients' fragments: their way, and the hash of their flow.
    fragments: Fragments<(Way, u64)>,
    /// Of backends'.
    answers: Fragments<Answer>,
    locals: Arc<Locals>,
    settings: BalanceSettings,
    /// When the batch in hand was begun.
    now: Nanos,
    allowance: Allowance,
    /// The number of the backend that the packet at hand is for, or from: for what is counted.
    whose: Cell<Option<u32>>,
}

/// Where a packet of a connection goes.
#[derive(Clone, Copy)]
struct Way {
    /// The backend's number.
    backend: u32,
    /// The table and slot of the connection; `None` if it is not kept.
    home: Option<(u16, u32)>,
}

/// What an answer of a backend is to look like.
#[derive(Clone, Copy)]
struct Answer {
    /// Where it comes from.
    vip: IpAddr,
    port: u16,
    /// Whom it is for, if that is not written in it.
    dst: Option<(IpAddr, u16)>,
    /// The table and slot of its connection, if that is known.
    home: Option<(u16, u32)>,
    proxied: Proxied,
}

impl Balance {
    /// Balancers for `cores` cores, which do what the `hub` says.
    #[must_use]
    pub fn group(hub: &Arc<Hub>, cores: usize, settings: &BalanceSettings) -> Vec<Self> {
        let table = |_| Mutex::new(Conns::new(settings.connections, settings.timeouts));
        let conns: Arc<[Mutex<Conns>]> = (0..cores).map(table).collect();
        let locals = Arc::new(Locals::new(&settings.local, cores));
        hub.begin(cores, &conns);
        let (places, fresh) = (&settings.places, settings.neighbour_fresh);
        let neighbours = hub.neighbours(|| Neighbours::new(places.clone(), fresh));
        let clients = hops::neighbour(settings.clients, &neighbours);
        let one = |core| {
            let ((plan, hops), mut turns) = (hub.ways(), Plan::turns_for(SERVICES));
            plan.make_turns(core, &mut turns);
            Self {
                core,
                hub: Arc::clone(hub),
                plan,
                hops,
                neighbours: Arc::clone(&neighbours),
                speaks: neighbours.speaks(),
                clients: clients.clone(),
                turns,
                conns: Arc::clone(&conns),
                fragments: Fragments::new(),
                answers: Fragments::new(),
                locals: Arc::clone(&locals),
                settings: settings.clone(),
                now: 0,
                allowance: Allowance::default(),
                whose: Cell::new(None),
            }
        };
        (0..cores).map(one).collect()
    }

    /// The connections of a core.
    fn table(&self, core: usize) -> Option<MutexGuard<'_, Conns>> {
        Some(self.conns.get(core)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The plan of the newest generation.
    #[inline]
    fn look_for_a_plan(&mut self) {
        if self.hub.generation() != self.plan.generation() {
            (self.plan, self.hops) = self.hub.ways();
            self.plan.make_turns(self.core, &mut self.turns);
        }
    }

    /// Finds the connections of `lanes` in this core's table. Returns those that missed.
    fn hits(&self, batch: &Batch, lanes: Lanes, now: Nanos, seen: &mut Seen) -> Lanes {
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
    fn miss(&mut self, key: &FlowKey, conn: &ConnKey, hash: u64, now: Nanos) -> Missed {
        let Some(service) =
            key.dst_ip().and_then(|dst| self.plan.service(dst, key.proto, key.dport))
        else {
            return Missed::NoService;
        };
        let plan = Arc::clone(&self.plan);
        let flags = key.tcp_flags;
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
                return Missed::Way(way); // its local port is the slot's there
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
        if let Some(old) = old.and_then(|old| self.plan.target(old)) {
            count(old, false);
        }
        if let Some(target) = self.plan.target(backend) {
            count(target, true);
        }
        Some(Way { backend, home: Some((self.core as u16, slot)) })
    }

    /// The way of a connection by a packet that is quoted: it does not begin one.
    fn way_of(&self, conn: &ConnKey, hash: u64, now: Nanos) -> Option<Way> {
        let cores =
            std::iter::once(self.core).chain((0..self.conns.len()).filter(|&c| c != self.core));
        for core in cores {
            let conns = self.table(core)?;
            if let Some(slot) = conns.find(conn, hash, now) {
                let backend = conns.get(slot, now)?.backend;
                return Some(Way { backend, home: Some((core as u16, slot)) });
            }
        }
        None
    }

    /// To the backend that the connection ID names, if the service routes QUIC and it is another.
    fn by_connection_id(&self, packet: &Packet<'_>, key: &FlowKey, way: Way) -> Way {
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

    /// Rewrites the packet of `lane` for the backend at the end of its way, and sends it there.
    fn forward(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, mut way: Way, hash: u64) {
        let key = batch.keys[lane];
        let frame = &mut batch.frames[lane];
        let Some(mut packet) = Packet::new(pool.bytes_mut(frame), &key) else {
            return refuse(batch, lane, DropReason::Malformed);
        };
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
            self.fragments.put(&packet, &key, (way, hash));
        }
        if let (Some(mss), true) = (service.mss, key.tcp_flags & FlowKey::SYN != 0) {
            packet.clamp_mss(mss);
        }
        let overhead = target.mode.overhead(target.addr.is_ipv6());
        let mut mtu = service.mtu.map(usize::from);
        if overhead > 0
            && let Some(path) = self.hops.get(target).and_then(|hop| hop.mtu(self.now))
        {
            mtu = Some(mtu.map_or(path, |mtu| mtu.min(path)));
        }
        if let Some(mtu) = mtu
            && packet.ip_len() + overhead > mtu
        {
            if !packet.may_not_be_cut() {
                return refuse(batch, lane, DropReason::TooLong);
            }
            let wrong = Wrong::TooBig(mtu.saturating_sub(overhead));
            return self.answer_with((batch, lane), pool, wrong, (vip, DropReason::TooLong));
        }
        packet.one_hop();
        if let (true, proto::TCP, Some(home)) = (service.proxy, key.proto, way.home) {
            if let Err(reason) = self.to_proxied(frame, pool, &key, home) {
                return refuse(batch, lane, reason);
            }
            let Some(longer) = Packet::new(pool.bytes_mut(frame), &key) else {
                return refuse(batch, lane, DropReason::Malformed);
            };
            packet = longer;
        }
        let done = match target.mode {
            Mode::Dsr => true,
            Mode::Dnat => packet.translate(Side::Dst, target.addr, target.port),
            Mode::FullNat => {
                let local = way.home.and_then(|home| self.locals.of(home, key.is_ipv6()));
                let Some(Local { addr, port }) = local else {
                    return refuse(batch, lane, DropReason::NoConnection);
                };
                packet.translate(Side::Dst, target.addr, target.port)
                    && packet.translate(Side::Src, addr, Some(port))
            }
            Mode::Ipip | Mode::Gue => {
                let Some(source) = self.locals.source(target.addr.is_ipv6()) else {
                    return refuse(batch, lane, DropReason::NoRoute);
                };
                let l3 = packet.l3;
                if !encap::wrap(frame, pool, l3, target.mode, (source, target.addr), hash) {
                    return refuse(batch, lane, DropReason::TooLong);
                }
                true
            }
        };
        if !done {
            return refuse(batch, lane, DropReason::Fragment);
        }
        self.send(batch, lane, pool, target);
    }

    /// Sends the frame of `lane` to a backend.
    fn send(&self, batch: &mut Batch, lane: usize, pool: &Pool, target: &Target) {
        let neighbour = match target.exit.via {
            None => None, // its MAC address is written
            Some(_) => self.hops.get(target).and_then(|hop| hop.neighbour.as_deref()),
        };
        out(batch, lane, pool, target.exit, neighbour);
    }

    /// An answer of a backend, or what is nobody's.
    fn other(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, now: Nanos) {
        let key = batch.keys[lane];
        let found = match key.fragment() {
            Frag::Later => self.answers.get(pool.bytes(&batch.frames[lane]), &key),
            _ => self.answer(&key, Some(key.tcp_flags), now),
        };
        if let Some(answer) = found {
            let Answer { vip, port, dst, home, proxied } = answer;
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
                // What is later has no TCP header.
                self.answers.put(&packet, &key, Answer { proxied: Proxied::default(), ..answer });
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

    /// Of an answer of a backend: what it is to look like. Its TCP flags, if it is one and not only
    /// looks like one.
    fn answer(&self, key: &FlowKey, flags: Option<u8>, now: Nanos) -> Option<Answer> {
        if !proto::has_ports(key.proto) || key.fragment() == Frag::Later {
            return None;
        }
        let (src, dst) = (key.src_ip()?, key.dst_ip()?);
        if let Some((core, slot)) = self.locals.home(dst, key.dport) {
            let mut conns = self.table(core.into())?;
            let conn = *conns.get(slot, now)?;
            let flow = conn.key().flow();
            let target = self.plan.target(conn.backend)?;
            let from = target.port.unwrap_or(flow.dport);
            if (target.addr, from, key.proto) != (src, key.sport, flow.proto) {
                return None; // nobody that this connection knows
            }
            if let Some(flags) = flags {
                conns.seen(slot, flags, now);
            }
            self.whose.set(Some(target.id));
            return Some(Answer {
                vip: flow.dst_ip()?,
                port: flow.dport,
                dst: Some((flow.src_ip()?, flow.sport)),
                home: Some((core, slot)),
                proxied: conn.proxied(),
            });
        }
        let service = &self.plan.returning(src, key.proto, key.sport)?.service;
        self.whose.set(self.plan.returned_by(src, key.proto, key.sport).map(|target| target.id));
        let moved = service.backends.iter().any(|b| b.addr == src && b.port == Some(key.sport));
        let port = if moved { *service.ports.start() } else { key.sport };
        let proxied = Proxied::default();
        Some(Answer { vip: service.vip, port, dst: None, home: None, proxied })
    }
}

/// What is known of the lanes of a batch.
struct Seen {
    keys: [ConnKey; LANES],
    hashes: [u64; LANES],
    slots: [u32; LANES],
    ways: [Option<Way>; LANES],
}

/// What becomes of a packet whose connection was not known.
enum Missed {
    Way(Way),
    NoService,
    Drop(DropReason),
}

impl Work for Balance {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        self.look_for_a_plan();
        self.now = now;
        let (mut flows, mut others) = (Lanes::NONE, Lanes::NONE);
        for lane in todo(batch) {
            if pool.meta(&batch.frames[lane]).link != LinkType::Ethernet {
                refuse(batch, lane, DropReason::LinkType);
                continue;
            }
            let key = &batch.keys[lane];
            if proto::has_ports(key.proto) && key.fragment() != Frag::Later && key.is_ip() {
                flows = flows.with(lane);
            } else {
                others = others.with(lane);
            }
        }
        let mut seen = Seen {
            keys: [ConnKey::default(); LANES],
            hashes: [0; LANES],
            slots: [0; LANES],
            ways: [None; LANES],
        };
        let missed = self.hits(batch, flows, now, &mut seen);
        for lane in flows {
            let hash = seen.hashes[lane];
            let way = match (missed.has(lane), seen.ways[lane]) {
                (false, Some(way)) => Missed::Way(way),
                _ => self.miss(&batch.keys[lane], &seen.keys[lane], hash, now),
            };
            let bytes = batch.frames[lane].len() as u64;
            match way {
                Missed::Way(way) => {
                    self.whose.set(Some(way.backend));
                    self.forward(batch, lane, pool, way, hash);
                    self.went_in(batch, lane, bytes);
                }
                Missed::NoService => {
                    self.whose.set(None);
                    self.other(batch, lane, pool, now);
                    self.came_out(batch, lane, bytes);
                }
                Missed::Drop(reason) => refuse(batch, lane, reason),
            }
        }
        for lane in others {
            if self.speaks && self.is_neighbours(batch, lane, pool, now) {
                continue;
            }
            let (key, bytes) = (batch.keys[lane], batch.frames[lane].len() as u64);
            self.whose.set(None);
            let vip = key.dst_ip().is_some_and(|dst| self.plan.is_vip(dst));
            if !vip {
                if !self.is_error_behind(batch, lane, pool, now) {
                    self.other(batch, lane, pool, now);
                }
                self.came_out(batch, lane, bytes);
                continue;
            } else if key.fragment() == Frag::Later {
                match self.fragments.get(pool.bytes(&batch.frames[lane]), &key) {
                    Some((way, hash)) => self.forward(batch, lane, pool, way, hash),
                    None => refuse(batch, lane, DropReason::Fragment),
                }
            } else {
                self.error(batch, lane, pool, now);
            }
            self.went_in(batch, lane, bytes);
        }
        now
    }

    fn speak(&mut self, now: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        if self.speaks { self.neighbours.ask(now, send) } else { 0 }
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
    use std::sync::atomic::Ordering::Relaxed;
    // What was counted for a backend of the same number, before it went and came, is not undone.
    let change = |n: u32| Some(if came { n.saturating_add(1) } else { n.saturating_sub(1) });
    let _ = target.active.fetch_update(Relaxed, Relaxed, change);
}

/// Sends the frame of `lane` out of a port, with the addresses it has there.
#[inline]
fn out(batch: &mut Batch, lane: usize, pool: &Pool, exit: Exit, next: Option<&Neighbour>) {
    let dst = match exit.via {
        None => Some(exit.dst),
        Some(_) => next.and_then(Neighbour::mac),
    };
    let Some(dst) = dst else { return refuse(batch, lane, DropReason::Unresolved) };
    if let Some(macs) = pool.bytes_mut(&mut batch.frames[lane]).first_chunk_mut::<12>() {
        macs[..6].copy_from_slice(&dst);
        macs[6..].copy_from_slice(&exit.src);
    }
    leave(batch, lane, exit.port);
}

/// Sends the frame of `lane` out of a port as it is.
#[inline]
fn leave(batch: &mut Batch, lane: usize, port: u16) {
    let mark = batch.actions[lane].mark;
    batch.actions[lane] = Action { to: To::Port(port), counter: 0, mark };
}

/// The bytes of a frame, from where its IP packet starts.
fn l3_of(bytes: &[u8]) -> Option<usize> {
    let mut at = 12;
    loop {
        let word = bytes.get(at..)?.first_chunk::<2>()?;
        match u16::from_be_bytes(*word) {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            0x0800 | 0x86dd => return Some(at + 2),
            _ => return None,
        }
    }
}

/// A frame's handle is all that some need.
type Handle<'a> = &'a mut Frame;

#[cfg(test)]
mod tests;
