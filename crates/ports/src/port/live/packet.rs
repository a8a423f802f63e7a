//! One core's part of an AF_PACKET port: a ring for receiving, a socket for transmitting.

use std::sync::Arc;

use crate::af_packet;
use crate::live::{Carries, is_down, is_full, is_too_long};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment};

use super::calls::{Ring, Sender, System};
use super::device::{Device, HEADER, Monitor, News, refuse_all};
use super::parts::Parts;
use flowyard_pool::{Meta, NoBuffer, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Descriptors, Received, refuse};

/// The parameters for opening the sockets.
pub(super) struct Settings<S: System> {
    pub(super) system: S,
    pub(super) number: u16,
    pub(super) settings: af_packet::Settings,
    /// The number of this ring among those that share the interface.
    pub(super) at: usize,
    /// How many rings share the interface.
    pub(super) rings: usize,
    pub(super) bypass: bool,
    pub(super) carries: Carries,
    /// The rings of a port that is opened again.
    pub(super) parts: Arc<Parts<S::Ring>>,
}

pub(super) struct Packet<S: System> {
    ring: S::Ring,
    sender: S::Sender,
    settings: Settings<S>,
    monitor: Monitor<S::Link>,
    /// The life of the port that the ring belongs to, see [`Parts`].
    life: u64,
    /// Number of segments of the ring's first frame that were already received.
    segment: usize,
    /// Frames for which older rings had no room, not yet reported.
    lost: u32,
    /// The next time to read the kernel's counters.
    count_at: Nanos,
    /// Only the frame that was begun is received.
    is_paused: bool,
    /// The life of the port whose descriptors another process has.
    handed: Option<u64>,
}

/// Time between two readings of the kernel's counters.
const COUNT_EVERY: Nanos = 1_000_000;

impl<S: System> Packet<S> {
    pub(super) const fn new(
        ring: S::Ring,
        sender: S::Sender,
        settings: Settings<S>,
        monitor: Monitor<S::Link>,
    ) -> Self {
        Self {
            ring,
            sender,
            settings,
            monitor,
            life: 0,
            segment: 0,
            lost: 0,
            count_at: 0,
            is_paused: false,
            handed: None,
        }
    }

    #[inline]
    fn attend(&mut self, now: Nanos) {
        let Self { ring, sender, monitor, settings, life, .. } = self;
        let is_bound = |index| {
            settings.parts.receives(*life) && ring.is_bound(index) && sender.is_bound(index)
        };
        if monitor.look(now, is_bound) == Some(News::Up) {
            ring.clear();
            sender.clear();
        }
        // The frames in the old ring come first.
        if monitor.fresh().is_some() && ring.peek_start().is_none() {
            self.reopen();
        }
    }

    /// Opens the sockets again.
    #[cold]
    fn reopen(&mut self) {
        let Settings { ref system, settings, at, rings, bypass, carries, ref parts, .. } =
            self.settings;
        let Some(interface) = self.monitor.fresh() else { return };
        let opened = system.sender(interface, bypass, carries).and_then(|sender| {
            let open = |_none| system.rings(interface, rings, settings);
            let holds = |ring: &mut S::Ring| ring.peek_start().is_some();
            let taken = parts.take((at, self.life), interface, open, Ring::silencer, holds)?;
            Ok((sender, taken))
        });
        let opened = opened.map(|(sender, (ring, life))| {
            self.lost += self.ring.drops().unwrap_or(0);
            (self.ring, self.sender, self.life, self.segment) = (ring, sender, life, 0);
        });
        self.monitor.opened(opened);
    }

    /// Takes frames out of the ring until the batch is full or the ring is empty; returns whether
    /// the ring is empty.
    #[inline]
    fn take(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos, got: &mut Received) -> bool {
        while into.len() < LANES {
            if self.is_paused && self.segment == 0 && self.ring.position().is_some() {
                return true;
            }
            let Some(seen) = self.ring.peek_start() else { return true };
            if seen.is_empty() || seen.is_cut {
                got.empty += u32::from(seen.is_empty());
                got.overrun += u32::from(!seen.is_empty());
                self.ring.advance();
                continue;
            }
            let is_waiting = seen.is_waiting();
            let Some(offload) = seen.offload() else {
                if is_waiting {
                    self.ring.gather(); // the description may fit all of it
                    continue;
                }
                got.too_long += 1;
                self.ring.advance();
                continue;
            };
            if self.segment == 0 && !offload.is_none() && self.settings.carries.takes(offload) {
                let (len, wire_len) = (seen.len(None, 0), seen.wire_len);
                let meta = Meta {
                    time: now,
                    wire_len,
                    in_port: self.settings.number,
                    offload,
                    ..Meta::default()
                };
                match pool.take(len, meta) {
                    Ok(mut frame) => {
                        if !self.ring.write_whole(pool.bytes_mut(&mut frame)) {
                            pool.put(frame);
                            continue; // the kernel lost the rest: the frame is an overrun
                        }
                        self.ring.advance();
                        if let Err(frame) = into.push(frame, FlowKey::ZERO) {
                            pool.put(frame); // not reached: a lane is free
                        }
                        continue;
                    }
                    Err(NoBuffer::Empty) if len <= pool.longest() => return false,
                    // There is no buffer for all of it, but there may be some for its segments.
                    Err(_) => {}
                }
            }
            if is_waiting {
                self.ring.gather();
                continue;
            }
            if !self.take_segments(into, pool, now, got) {
                return false;
            }
        }
        false
    }

    /// Takes the ring's first frame, all of which is here, as on the wire: in segments, if it is to be cut. Returns whether
    /// there was a buffer for each.
    fn take_segments(
        &mut self,
        into: &mut Batch,
        pool: &mut Pool,
        now: Nanos,
        got: &mut Received,
    ) -> bool {
        let Some(seen) = self.ring.peek_start() else { return true };
        // A frame that must be segmented but cannot be is too long for any wire.
        let Some(cut) = seen.cut() else {
            got.too_long += 1;
            self.ring.advance();
            return true;
        };
        let segments = cut.as_ref().map_or(1, Cut::count);
        while self.segment < segments && into.len() < LANES {
            let len = seen.len(cut.as_ref(), self.segment);
            let wire_len = if cut.is_some() { len as u32 } else { seen.wire_len };
            let in_port = self.settings.number;
            let meta = Meta { time: now, wire_len, in_port, ..Meta::default() };
            match pool.take(len, meta) {
                Ok(mut frame) => {
                    seen.write(cut.as_ref(), self.segment, pool.bytes_mut(&mut frame));
                    if let Err(frame) = into.push(frame, FlowKey::ZERO) {
                        pool.put(frame);
                        return false;
                    }
                }
                Err(NoBuffer::TooLong) => got.too_long += 1,
                Err(NoBuffer::Empty) => return false, // the frame stays in the ring
            }
            self.segment += 1;
        }
        if self.segment >= segments {
            self.segment = 0;
            self.ring.advance();
        }
        true
    }
}

impl<S: System> Packet<S> {
    /// Refuses frames whose segments are too long for the interface: the kernel does not look at these. Returns their
    /// lanes.
    fn refuse_long_segments(&self, from: &mut Batch, lanes: Lanes, pool: &Pool) -> Lanes {
        let longest = self.monitor.watch.mtu as usize + HEADER;
        let is_long = |offload: Offload| {
            offload.segment != Segment::None
                && offload.headers_len() + usize::from(offload.segment_bytes) > longest
        };
        let mut gone = Lanes::NONE;
        for lane in lanes {
            if is_long(pool.meta(&from.frames[lane]).offload) {
                refuse(from, lane, DropReason::TooLong);
                gone = gone.with(lane);
            }
        }
        gone
    }
}

impl<S: System> Device for Packet<S> {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut got = Received::default();
        if self.is_paused {
            self.take(into, pool, now, &mut got);
            return got;
        }
        self.attend(now);
        if now >= self.count_at {
            self.count_at = now + COUNT_EVERY;
            got.overrun = self.ring.drops().unwrap_or(0) + std::mem::take(&mut self.lost);
        }
        let is_idle = self.take(into, pool, now, &mut got);
        self.monitor.note(&mut got, into.len(), is_idle, now);
        got
    }

    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        self.attend(now);
        let mut left = lanes;
        if self.settings.carries.segments() {
            left = left.without(self.refuse_long_segments(from, lanes, pool));
        }
        while let Some(first) = left.into_iter().next() {
            if !self.monitor.is_ready() {
                return refuse_all(from, left, DropReason::PortDown);
            }
            let (frames, carries) = (&from.frames, self.settings.carries.csum());
            let bytes = |lane: usize| {
                let frame = &frames[lane];
                (if carries { pool.meta(frame).offload } else { Offload::NONE }, pool.bytes(frame))
            };
            let (sent, error) = self.sender.send(left.map(bytes));
            for lane in left.take(sent) {
                left = left.without(Lanes(1 << lane));
            }
            if sent > 0 {
                self.monitor.stuck = None;
            }
            let Some(error) = error else { continue };
            if is_full(&error) {
                return self.monitor.later(from, left, now);
            } else if is_down(&error) {
                return self.monitor.down(from, left);
            }
            // Any other error concerns this frame.
            let too_long = is_too_long(&error);
            let reason = if too_long { DropReason::TooLong } else { DropReason::PortFailed };
            if !too_long {
                self.monitor.report(format!("a frame could not be transmitted: {error}"));
            }
            refuse(from, first, reason);
            left = left.without(Lanes(1 << first));
        }
        Lanes::NONE
    }

    fn remarks(&self) -> Vec<String> {
        self.monitor.reported.clone()
    }

    /// Its descriptors are the ring's and the sender's; its numbers are the sizes of the ring and of a slot, and what the
    /// sender carries.
    fn descriptors(&mut self) -> Option<Descriptors> {
        let (ring, [size, slot]) = self.ring.duplicate().ok()?;
        let fds = vec![ring, self.sender.duplicate().ok()?];
        let carries = self.settings.carries.bits();
        self.handed = Some(self.life);
        Some(Descriptors { fds, numbers: vec![size as u64, slot as u64, carries] })
    }

    fn pause(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    fn position(&mut self) -> Option<Vec<u64>> {
        let is_same = self.handed == Some(self.life) && self.monitor.fresh().is_none();
        let is_between = self.segment == 0 && is_same;
        self.ring.position().filter(|_| is_between).map(|slot| vec![slot])
    }

    fn go_on(&mut self, position: &[u64], _pool: &mut Pool) -> bool {
        matches!(*position, [slot] if self.ring.go_on(slot))
    }
}
