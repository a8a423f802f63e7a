//! ARP and neighbour discovery of the balancer: announces VIPs and local addresses, answers requests for
//! them, and records the answers to its own requests.

use std::net::IpAddr;

use flowyard_frame::{Batch, Nanos, proto};

use super::balance::{Announced, Balance};
use super::exit::leave;
use flowyard_pool::Pool;
use flowyard_works::neighbour::message::{self, Heard, QUESTION};
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

/// How many times an address is announced (RFC 5227 section 1.1, ANNOUNCE_NUM).
const TIMES: u8 = 2;
/// The time between two announcements (RFC 5227 section 1.1, ANNOUNCE_INTERVAL).
const APART: Nanos = 2_000_000_000;
/// The most announcements in a tick.
const BUDGET: u32 = 32;

impl Balance {
    /// Announces new addresses on the ports that answer for them, so that neighbours replace their old
    /// entries. `send` is as for `Work::speak`. Returns the number of messages sent.
    pub(super) fn announce(&mut self, now: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        self.renew_plan();
        let (plan, local) = (&self.plan, &self.settings.local);
        let Announced { generation, addrs, done } = &mut self.announced;
        if *generation != Some(plan.generation()) {
            *generation = Some(plan.generation());
            *done = false;
            let services = plan.services().iter().map(|table| &table.service);
            let vips = services.filter(|service| service.answers).map(|service| service.vip);
            let mut old = std::mem::take(addrs);
            let all = vips.chain(local.iter().copied());
            *addrs = all.map(|addr| (addr, old.remove(&addr).unwrap_or_default())).collect();
        }
        if *done {
            return 0;
        }
        *done = true;
        let mut sent = 0;
        for (&addr, (times, next)) in addrs.iter_mut().filter(|(_, (times, _))| *times < TIMES) {
            *done = false;
            if now < *next {
                continue;
            }
            if sent >= BUDGET {
                break;
            }
            let mut frame = [0; QUESTION];
            for (port, place) in (0..).zip(self.neighbours.places()).filter(|(_, p)| p.answers) {
                let len = message::announcement(&mut frame, addr, place.mac);
                sent += u32::from(send(port, &frame[..len]));
            }
            (*times, *next) = (*times + 1, now.saturating_add(APART));
        }
        sent
    }

    /// Handles the frame of `lane` if it is an ARP or neighbour discovery message for this balancer. Returns
    /// whether it was.
    pub(super) fn is_neighbours(
        &self,
        batch: &mut Batch,
        lane: usize,
        pool: &Pool,
        now: Nanos,
    ) -> bool {
        let key = &batch.keys[lane];
        if key.eth_type != 0x0806 && key.proto != proto::ICMPV6 {
            return false;
        }
        let port = key.in_port;
        let frame = &mut batch.frames[lane];
        match message::read(pool.bytes(frame)) {
            None => false,
            Some(Heard::Says { who, replaces }) => {
                let wanted = self.neighbours.heard(port, who, replaces, now);
                if wanted {
                    refuse(batch, lane, DropReason::Taken);
                }
                wanted
            }
            Some(Heard::Asks { target, from }) => {
                if let Some(from) = from {
                    self.neighbours.heard(port, from, true, now);
                }
                let Some(mac) = self.has(port, target) else { return false };
                match message::answer(frame, pool, target, mac) {
                    true => leave(batch, lane, port),
                    false => refuse(batch, lane, DropReason::TooLong),
                }
                true
            }
        }
    }

    /// The MAC address with which the balancer answers for `addr` on a port.
    fn has(&self, port: u16, addr: IpAddr) -> Option<[u8; 6]> {
        let place = self.neighbours.place(port)?;
        let others = || self.settings.local.contains(&addr) || self.plan.answers_for(addr);
        (place.is(addr) || place.answers && others()).then_some(place.mac)
    }
}
