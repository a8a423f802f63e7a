//! What the balancer says and hears as a neighbour of others: it answers for VIPs and its own
//! addresses, and takes note of what it has asked for.

use std::net::IpAddr;

use flowyard_frame::{Batch, Nanos, proto};

use super::{Balance, leave};
use crate::counters::DropReason;
use crate::neighbour::message::{self, Heard};
use crate::pool::Pool;
use crate::port::refuse;

impl Balance {
    /// Whether the frame of `lane` was a message of neighbours for the yard, and is dealt with.
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

    /// The MAC address under which the yard has `addr` at a port.
    fn has(&self, port: u16, addr: IpAddr) -> Option<[u8; 6]> {
        let place = self.neighbours.place(port)?;
        let others = || self.settings.local.contains(&addr) || self.plan.answers_for(addr);
        (place.is(addr) || place.answers && others()).then_some(place.mac)
    }
}
