//! One core's share of an AF_PACKET port: a ring to receive from, a socket to transmit by.

use std::sync::Arc;

use crate::af_packet::{self, Ring, Sender};
use crate::live::offload::Cut;
use crate::live::{Change, Interface};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_wire::LinkType;

use super::parts::Parts;
use super::{Device, News, is_down, is_full, is_too_long, refuse_all};
use flowyard_pool::{Meta, NoBuffer, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Received, refuse};

/// How its sockets are opened.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) number: u16,
    pub(super) settings: af_packet::Settings,
    /// Which of the rings that share the interface, and of how many.
    pub(super) at: usize,
    pub(super) rings: usize,
    pub(super) bypass: bool,
    /// The rings on an interface that came back.
    pub(super) parts: Arc<Parts<Ring>>,
}

pub(super) struct Packet {
    ring: Ring,
    sender: Sender,
    settings: Settings,
    news: News,
    /// Segments of the ring's first frame that were received already.
    segment: usize,
    /// When the kernel's counters are read next.
    count_at: Nanos,
}

/// Time between two readings of the kernel's counters.
const COUNT_EVERY: Nanos = 1_000_000;

impl Packet {
    pub(super) const fn new(ring: Ring, sender: Sender, settings: Settings, news: News) -> Self {
        Self { ring, sender, settings, news, segment: 0, count_at: 0 }
    }

    fn attend(&mut self, now: Nanos) {
        match self.news.look(now) {
            Some(Change::New(interface)) => self.reopen(&interface),
            Some(Change::Up) => self.ring.clear(),
            _ => {}
        }
    }

    /// What the ring still had of the interface that is gone is lost with it.
    fn reopen(&mut self, interface: &Interface) {
        let Settings { settings, at, rings, bypass, ref parts, .. } = self.settings;
        let opened = Sender::open(interface, bypass).and_then(|sender| {
            let ring = parts.take(at, interface, || Ring::open(interface, rings, settings))?;
            Ok((ring, sender))
        });
        let opened = opened.map(|(ring, sender)| {
            (self.ring, self.sender, self.segment) = (ring, sender, 0);
        });
        self.news.opened(opened);
    }
}

impl Device for Packet {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        self.attend(now);
        let mut got = Received::default();
        if now >= self.count_at {
            self.count_at = now + COUNT_EVERY;
            got.overrun = self.ring.drops().unwrap_or(0);
        }
        while into.len() < LANES
            && let Some(seen) = self.ring.peek()
        {
            if seen.is_empty() || seen.is_cut {
                got.empty += u32::from(seen.is_empty());
                got.overrun += u32::from(!seen.is_empty());
                self.ring.advance();
                continue;
            }
            // One that is to be cut, and cannot be, is longer than any wire takes.
            let Some(cut) = seen.cut() else {
                got.too_long += 1;
                self.ring.advance();
                continue;
            };
            let segments = cut.as_ref().map_or(1, Cut::segments);
            while self.segment < segments && into.len() < LANES {
                let len = seen.len(cut.as_ref(), self.segment);
                let wire_len = if cut.is_some() { len as u32 } else { seen.wire_len };
                let in_port = self.settings.number;
                let meta =
                    Meta { time: now, wire_len, in_port, link: LinkType::Ethernet, copied: 0 };
                match pool.take(len, meta) {
                    Ok(mut frame) => {
                        seen.write(cut.as_ref(), self.segment, pool.bytes_mut(&mut frame));
                        if let Err(frame) = into.push(frame, FlowKey::ZERO) {
                            pool.put(frame);
                            return got;
                        }
                    }
                    Err(NoBuffer::TooLong) => got.too_long += 1,
                    Err(NoBuffer::Empty) => return got, // the ring can wait, and counts if it cannot
                }
                self.segment += 1;
            }
            if self.segment >= segments {
                self.segment = 0;
                self.ring.advance();
            }
        }
        got
    }

    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        self.attend(now);
        let mut left = lanes;
        while let Some(first) = left.into_iter().next() {
            if !self.news.watch.is_up() {
                return refuse_all(from, left, DropReason::PortDown);
            }
            let frames = &from.frames;
            let (sent, error) = self.sender.send(left.map(|lane| pool.bytes(&frames[lane])));
            for lane in left.take(sent) {
                left = left.without(Lanes(1 << lane));
            }
            if sent > 0 {
                self.news.stuck = None;
            }
            let Some(error) = error else { continue };
            if is_full(&error) {
                return self.news.later(from, left, now);
            } else if is_down(&error) {
                return self.news.down(from, left);
            }
            // Any other error concerns this frame.
            let too_long = is_too_long(&error);
            let reason = if too_long { DropReason::TooLong } else { DropReason::PortFailed };
            if !too_long {
                self.news.say(format!("a frame could not be transmitted: {error}"));
            }
            refuse(from, first, reason);
            left = left.without(Lanes(1 << first));
        }
        Lanes::NONE
    }

    fn news(&self) -> &News {
        &self.news
    }
}
