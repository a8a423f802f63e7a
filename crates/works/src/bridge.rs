//! Bridge: an L2 learning switch (IEEE 802.1Q, 8.6 to 8.8; the filtering of 802.1D).
//!
//! ```text
//!  source, VLAN ──> this port         learn, and notify the other cores
//!  destination, VLAN ──> known: that port, but never back      group or unknown: all other ports
//! ```
//!
//! Each core has a table of its own. Two cores may work on the two directions of a flow, and then
//! neither would see the other direction's source address. Therefore a core that learns a station,
//! or sees it move, sends this to all other cores. It repeats the message from time to time, so
//! that the entry does not age there. Each core has bounded mailboxes, which it reads before the
//! next batch. If a mailbox is full, the message is dropped, and a later frame of the station
//! causes another one.
//!
//! Invariants: a frame never leaves by the port at which it came in. Of two messages about a
//! station, the later one is used on every core. Nothing is allocated or locked after start.
//! Thread-safety: everything but the mailboxes belongs to one core.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use flowyard_flow::Table;
use flowyard_flow::table::l2::{Announced, L2};
use flowyard_frame::{Batch, FlowKey, Lanes, Nanos, To};
use flowyard_wire::LinkType;

use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;
use flowyard_yard::work::{ControlMessage, Work, todo};

/// The length of an Ethernet header.
const HEADER: usize = 14;
/// The capacity of a mailbox.
const MAILBOX: usize = 1024;

/// A new ageing time for [`Bridge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Age(pub Nanos);

/// A bridge, as one core sees it.
pub struct Bridge {
    table: L2,
    /// The number of ports. They are numbered from 0.
    ports: u16,
    news: Option<News>,
}

/// A message that a station was seen.
#[derive(Clone, Copy)]
struct Seen {
    mac: [u8; 6],
    vlan: u16,
    port: u16,
    at: Nanos,
}

/// The state that a core needs to exchange messages with the others.
struct News {
    inbox: Receiver<Seen>,
    others: Vec<SyncSender<Seen>>,
    announced: Announced,
}

/// For each port: all other ports.
pub fn floods(ports: u16) -> Vec<Vec<u16>> {
    let others = |port: u16| (0..ports).filter(|&other| other != port).collect();
    (0..ports).map(others).collect()
}

impl Bridge {
    /// A bridge with `ports` ports, one for each core. `working` has an element for each core:
    /// whether the core is given frames at all. Each core knows about `stations` stations, and
    /// forgets those that were silent for `age`. `seed` determines the hash functions of the
    /// tables; it must be kept from those who choose addresses.
    ///
    /// A frame that is to leave by all ports but `n` gets `To::Ports(n)`.
    #[must_use]
    pub fn group(
        working: &[bool],
        ports: u16,
        stations: usize,
        age: Nanos,
        seed: u64,
    ) -> Vec<Self> {
        let mut mailboxes: Vec<_> = working.iter().map(|_| None).collect();
        let mut senders = Vec::new();
        let all = (0..working.len()).filter(|&core| working[core]);
        for core in all.filter(|_| working.iter().filter(|works| **works).count() > 1) {
            let (to, inbox) = sync_channel(MAILBOX);
            mailboxes[core] = Some(inbox);
            senders.push((core, to));
        }
        let bridge = |(core, inbox): (usize, Option<Receiver<Seen>>)| {
            let seed = seed.wrapping_add(core as u64);
            let others = || senders.iter().filter(|(other, _)| *other != core);
            let news = inbox.map(|inbox| News {
                inbox,
                others: others().map(|(_, to)| to.clone()).collect(),
                announced: Announced::new(stations, age, seed),
            });
            Self { table: L2::new(stations, age, seed), ports, news }
        };
        mailboxes.into_iter().enumerate().map(bridge).collect()
    }

    /// A bridge for one core.
    #[must_use]
    pub fn new(ports: u16, stations: usize, age: Nanos, seed: u64) -> Self {
        let news = None;
        Self { table: L2::new(stations, age, seed), ports, news }
    }

    /// Learns the source address of the frame with this key.
    #[inline]
    fn learn(&mut self, key: &FlowKey, now: Nanos) {
        let &FlowKey { eth_src: mac, vlan_tci, in_port: port, .. } = key;
        let vlan = vlan_tci & 0xfff;
        let learnt = self.table.learn(&mac, vlan, port, now);
        if let Some(news) = &mut self.news
            && news.announced.is_due(&mac, vlan, learnt, now)
        {
            news.tell(Seen { mac, vlan, port, at: now });
        }
    }
}

impl News {
    /// Sends a message to the other cores.
    fn tell(&mut self, seen: Seen) {
        let full = |to: &SyncSender<Seen>| matches!(to.try_send(seen), Err(TrySendError::Full(_)));
        // Not `any`: the message is sent to all.
        let lost = self.others.iter().filter(|to| full(to)).count();
        self.announced.sent(&seen.mac, seen.vlan, lost == 0, seen.at);
    }
}

impl Work for Bridge {
    fn hand_over(&self, _now: Nanos) -> Option<Vec<u8>> {
        Some(Vec::new()) // its stations are learnt again, and frames to them are flooded until then
    }

    fn go_on(&mut self, _state: &[u8], _now: Nanos) -> Result<(), String> {
        Ok(())
    }

    fn control(
        &mut self,
        message: &ControlMessage,
        _now: Nanos,
        _send: &mut dyn FnMut(u16, &[u8]),
    ) {
        if let Some(Age(age)) = message.downcast_ref() {
            self.table.set_age(*age);
            if let Some(news) = &mut self.news {
                news.announced.set_age(*age);
            }
        }
    }

    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        self.table.advance(now);
        if let Some(news) = &self.news {
            // Reads only the messages that were there at first, because other cores may write as
            // fast as this one reads.
            for Seen { mac, vlan, port, at } in news.inbox.try_iter().take(MAILBOX) {
                self.table.hear(&mac, vlan, port, at);
            }
        }
        let (wanted, mut known) = (todo(batch), Lanes::NONE);
        for lane in wanted {
            let frame = &batch.frames[lane];
            if pool.meta(frame).link != LinkType::Ethernet {
                refuse(batch, lane, DropReason::LinkType);
            } else if frame.len() < HEADER {
                refuse(batch, lane, DropReason::Malformed);
            } else {
                self.learn(&batch.keys[lane], now);
                if is_reserved(&batch.keys[lane].eth_dst) {
                    refuse(batch, lane, DropReason::Reserved);
                } else {
                    known = known.with(lane);
                }
            }
        }
        let missed = self.table.lookup(batch, known);
        for lane in known {
            let in_port = batch.keys[lane].in_port;
            if missed.has(lane) {
                batch.actions[lane].to = To::Ports(in_port);
            }
            if batch.actions[lane].to == To::Port(in_port) || self.ports < 2 {
                refuse(batch, lane, DropReason::Filtered);
            }
        }
        now
    }
}

/// Whether this is one of the addresses 01:80:C2:00:00:00 to :0F, which no bridge forwards: they
/// address the station at the other end of the link (IEEE 802.1Q, table 8-1).
const fn is_reserved(mac: &[u8; 6]) -> bool {
    matches!(mac, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
}

#[cfg(test)]
mod tests;
