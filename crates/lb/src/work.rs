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
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{ConnKey, Conns, Exit, Plan, Timeouts, Turns};
use flowyard_frame::{Action, Batch, Frag, Frame, LANES, Lanes, Nanos, To, proto};
use flowyard_wire::LinkType;

use flowyard_pool::Pool;
pub use flowyard_works::neighbour::Place;
use flowyard_works::neighbour::{Neighbour, Neighbours};
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;
use flowyard_yard::work::{Work, todo};

mod answers;
mod back;
mod count;
mod encap;
mod errors;
mod explain;
mod forward;
mod fragments;
mod hops;
mod hub;
mod leases;
mod locals;
mod neighbours;
mod proxy;
mod rewrite;
mod ways;

use answers::Allowance;
use back::Answer;
pub use explain::{Because, Explained, Kept, Occupancy};
use fragments::Fragments;
use hops::Hops;
pub use hub::{Hub, Report};
use leases::Leases;
use locals::Locals;
use neighbours::Announced;
use ways::{Missed, Seen, Way};

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
    /// Of FullNAT connections in other cores' tables: the ways of clients' packets.
    leases: Leases<Way>,
    /// And what backends' are to look like, with the backend.
    answer_leases: Leases<(Answer, u32)>,
    /// On the first core: which addresses others have been told of.
    announced: Announced,
    /// How often a known connection got another backend, on any core.
    moves: Arc<AtomicU64>,
    locals: Arc<Locals>,
    settings: BalanceSettings,
    /// When the batch in hand was begun.
    now: Nanos,
    allowance: Allowance,
    /// The number of the backend that the packet at hand is for, or from: for what is counted.
    whose: Cell<Option<u32>>,
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
        let moves = Arc::new(AtomicU64::new(0));
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
                leases: Leases::new(&settings.timeouts),
                answer_leases: Leases::new(&settings.timeouts),
                announced: Announced::default(),
                moves: Arc::clone(&moves),
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
            self.leases.clear();
            self.answer_leases.clear();
        }
    }
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
            if self.echoes(batch, lane, pool) {
                continue;
            }
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
        if !self.speaks {
            return 0;
        }
        let announced = if self.core == 0 { self.announce(now, send) } else { 0 };
        announced + self.neighbours.ask(now, send)
    }
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
