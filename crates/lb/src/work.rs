//! The balancer's work: forwards the packets of a connection to one backend of its service.
//!
//! ```text
//!  5-tuple, hash ──> connections of this core ──hit──> backend ──> rewrite, output port
//!                          │ miss
//!                          ├─ the directory names another core: use the entry of its table (the flow was moved, or is split)
//!                          ├─ to a service: choose a backend, enter; table full: Maglev alone (or drop)
//!                          ├─ reply of a backend (DNAT, FullNAT) in a known connection: its source becomes the VIP
//!                          └─ no service: forward as configured by 'pass', or drop
//! ```
//!
//! A plan (services, backends, tables) is one generation; a core looks for a new one before each batch. The
//! connection table of a core is locked for the duration of a batch's lookup. A core holds one of these
//! locks at a time: its own, or after a miss that of another core (`docs/decisions/0030-connections-have-a-lock.md`).
//!
//! Invariants: checksums that were correct stay correct; a frame is transmitted once or dropped with a
//! reason; nothing is allocated after the start.
//! Thread-safety: used by one core, except for the connection tables and the hub.

use flowyard_frame::{Batch, Frag, Lanes, Nanos, proto};
use flowyard_pool::Pool;
use flowyard_wire::LinkType;
pub use flowyard_works::neighbour::Place;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;
use flowyard_yard::work::{ControlMessage, Work, todo};

mod ahead;
mod allowance;
mod answers;
mod back;
mod balance;
mod count;
mod encap;
mod ends;
mod errors;
mod exit;
mod explain;
mod finish;
mod forward;
mod fragments;
mod fronted;
mod handed;
mod hops;
mod hub;
mod keep;
mod leases;
mod limits;
mod listing;
mod locals;
mod neighbours;
mod others;
mod placing;
mod proxy;
mod replicate;
mod rewrite;
mod strays;
mod toa;
mod way;
mod ways;

pub use balance::{Balance, BalanceSettings};
pub use ends::End;
pub use explain::{Because, Explained, Kept, Occupancy};
pub use hub::{Hub, Report};
pub use limits::BalanceLimits;
pub use listing::{Connection, Filter, Network, StateFilter};
pub use locals::{LOCALS, PORTS, ports_for_unestablished};
pub use replicate::{Scan, SyncReport};
use way::{Missed, Seen};

impl Work for Balance {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        self.renew_plan();
        self.now = now;
        let (mut flows, mut others) = (Lanes::NONE, Lanes::NONE);
        for lane in todo(batch) {
            if pool.meta(&batch.frames[lane]).link != LinkType::Ethernet {
                refuse(batch, lane, DropReason::LinkType);
                continue;
            }
            let key = &batch.keys[lane];
            let is_flow =
                proto::has_ports(key.proto) && key.fragment() != Frag::Later && key.is_ip();
            let of = if is_flow { &mut flows } else { &mut others };
            *of = of.with(lane);
        }
        let mut seen = Seen::default();
        let missed = self.hits((batch, pool), flows, now, &mut seen);
        self.services(batch, missed, &mut seen);
        for lane in flows {
            let hash = seen.hashes[lane];
            let way = match (missed.has(lane), seen.ways[lane]) {
                (false, Some(way)) => Missed::Way(way),
                _ => {
                    let found = (seen.services[lane], &seen.keys[lane], hash);
                    let packet = (&batch.keys[lane], pool.bytes(&batch.frames[lane]));
                    let way = self.miss(packet, found, now);
                    if let Missed::Way(way) = &way {
                        self.note_mac(way, &seen.keys[lane], batch.keys[lane].eth_src);
                    }
                    way
                }
            };
            let bytes = batch.frames[lane].len() as u64;
            match way {
                Missed::Way(way) => {
                    self.whose.set(Some(way.backend));
                    self.forward(batch, lane, pool, way, hash);
                    self.went_in(batch, lane, bytes);
                    self.offer(batch.actions[lane].to, &way, &batch.keys[lane], hash);
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
            let (key, bytes) = (batch.keys[lane], batch.frames[lane].len() as u64);
            if !finish::message(batch, lane, pool) {
                continue;
            }
            if self.speaks && self.is_neighbours(batch, lane, pool, now) {
                continue;
            }
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
                match self.fragments.get(pool.bytes(&batch.frames[lane]), &key, now) {
                    Some((way, hash)) => self.forward(batch, lane, pool, way, hash),
                    None => refuse(batch, lane, DropReason::Fragment),
                }
            } else {
                self.error(batch, lane, pool, now);
            }
            self.went_in(batch, lane, bytes);
        }
        self.leave_front();
        now
    }

    /// Its connections; `None` if it has connections that are answered in front of the yard.
    fn hand_over(&self, now: Nanos) -> Option<Vec<u8>> {
        self.ahead.is_none().then(|| self.write_state(now))
    }

    fn go_on(&mut self, state: &[u8], now: Nanos) -> Result<(), String> {
        self.read_state(state, now)
    }

    fn control(
        &mut self,
        message: &ControlMessage,
        _now: Nanos,
        _send: &mut dyn FnMut(u16, &[u8]),
    ) {
        if let Some(limits) = message.downcast_ref() {
            self.limit(limits);
        }
    }

    fn speak(&mut self, now: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        self.expire(now);
        self.look_ahead(now);
        if !self.speaks {
            return 0;
        }
        let announced = if self.core == 0 { self.announce(now, send) } else { 0 };
        announced + self.neighbours.ask(now, send)
    }
}

#[cfg(test)]
mod tests;
