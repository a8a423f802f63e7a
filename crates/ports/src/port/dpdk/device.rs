//! One core's part of a DPDK port.
//!
//! Invariants: a frame counts as transmitted when the driver has taken it. Frames that the adapter dropped for lack of
//! space are counted as `overrun`.
//! Thread-safety: both halves of a core's part belong to one core, so the lock between them is never contended.
#![allow(unsafe_code, reason = "frames are transmitted from memory that DPDK shares")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_dpdk::{Outgoing, Queue, Received as Arrived};
use flowyard_frame::{Batch, FlowKey, Frame, LANES, Lanes, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::LinkType;
use flowyard_yard::DropReason;
use flowyard_yard::port::{Received, Rx, Tx, refuse};

use super::DpdkPort;
use super::lending::Lending;
use crate::port::{Log, STUCK_LIMIT};

/// The time between two looks at the link and the counters.
const LOOK_EVERY: Nanos = 100_000_000;
/// Bytes of a frame besides its payload: the header and two tags.
const HEADER: usize = 22;
/// Frames begin behind the metadata of their buffer.
const LEAST_OFFSET: u16 = 64;

/// What the cores of a port share.
pub(super) struct Home {
    number: u16,
    name: String,
    log: Log,
    remarks: Mutex<Vec<String>>,
    /// Frames that the adapter reported as missed, and that were counted.
    missed: AtomicU64,
}

impl Home {
    pub(super) fn new(port: &DpdkPort, log: &Log) -> Self {
        Self {
            number: port.number,
            name: port.name.clone(),
            log: Arc::clone(log),
            remarks: Mutex::default(),
            missed: AtomicU64::new(0),
        }
    }

    fn report(&self, what: String) {
        (self.log)(&self.name, &what);
        let mut remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        if remarks.len() < 16 && !remarks.contains(&what) {
            remarks.push(what);
        }
    }
}

/// A core's queue, and how frames get in and out of it.
pub(super) struct Device {
    /// Dropped when the port is closed.
    queue: Option<Queue>,
    /// The yard's memory, if the port uses it.
    lending: Option<Arc<Lending>>,
    /// A handle for buffers that leave the yard and return to it.
    pool: Pool,
    /// Buffers for the next frames that are transmitted.
    spares: Vec<Frame>,
    home: Arc<Home>,
    is_up: bool,
    is_removed: bool,
    longest: usize,
    look_at: Nanos,
    /// Frames that the adapter has missed, found while transmitting and not yet reported.
    lost: u32,
    /// The time since which the driver has taken no frames.
    stuck: Option<Nanos>,
    /// Whether that was reported.
    is_stuck: bool,
}

impl Device {
    pub(super) fn new(
        queue: Queue,
        lending: Option<Arc<Lending>>,
        pool: Pool,
        home: Arc<Home>,
    ) -> Self {
        let is_up = queue.port().link().is_none_or(|link| link.is_up);
        let longest = queue.port().mtu() + HEADER;
        let spares = Vec::with_capacity(LANES);
        Self {
            queue: Some(queue),
            lending,
            pool,
            spares,
            home,
            is_up,
            is_removed: false,
            longest,
            look_at: 0,
            lost: 0,
            stuck: None,
            is_stuck: false,
        }
    }

    /// Looks at the link, at the counters, and whether the device is still there.
    #[cold]
    fn look(&mut self, got: &mut Received) {
        let Some(queue) = &self.queue else { return };
        let (port, is_first) = (queue.port(), queue.number() == 0);
        if port.is_removed() {
            if is_first && !self.is_removed {
                self.home.report("the device was removed; restart flowyard when it is back".into());
            }
            (self.is_removed, self.is_up) = (true, false);
            return;
        }
        let is_up = port.link().is_none_or(|link| link.is_up);
        if is_up != self.is_up && is_first {
            self.home.report(format!("the link is {}", if is_up { "up" } else { "down" }));
        }
        self.is_up = is_up;
        if let Some(stats) = port.stats().filter(|_| is_first) {
            let before = self.home.missed.swap(stats.missed, Ordering::Relaxed);
            let missed = u32::try_from(stats.missed.saturating_sub(before)).unwrap_or(u32::MAX);
            got.overrun = got.overrun.saturating_add(missed);
        }
    }

    #[inline]
    fn attend(&mut self, now: Nanos, got: &mut Received) {
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.look(got);
        }
    }

    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut got = Received { overrun: std::mem::take(&mut self.lost), ..Received::default() };
        self.attend(now, &mut got);
        let Self { queue: Some(queue), lending, home, is_removed: false, .. } = self else {
            return got;
        };
        let meta = Meta {
            time: now,
            wire_len: 0,
            in_port: home.number,
            link: LinkType::Ethernet,
            ..Meta::default()
        };
        if let Some(lending) = lending {
            lending.refill(pool);
            queue.rx(LANES, |frame| receive(frame, Some(lending), (into, pool), meta, &mut got));
        } else {
            // Without buffers, frames wait in the driver.
            let most = if pool.has(LANES) { LANES } else { usize::from(pool.has(1)) };
            queue.rx(most, |frame| receive(frame, None, (into, pool), meta, &mut got));
        }
        got
    }

    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        let mut got = Received::default();
        self.attend(now, &mut got);
        self.lost = self.lost.saturating_add(got.overrun);
        if !self.is_up || self.queue.is_none() {
            return refuse_all(from, lanes, DropReason::PortDown);
        }
        let (mut order, mut count, mut left) = ([0; LANES], 0, lanes);
        // A frame that cannot be lent is copied into a buffer that can.
        let room = if self.lending.is_some() { self.pool.longest() } else { usize::MAX };
        let longest = self.longest.min(room);
        for lane in lanes {
            let bytes = from.frames[lane].len();
            if (14..=longest).contains(&bytes) {
                order[count] = lane;
                count += 1;
            } else {
                let odd = if bytes < 14 { DropReason::PortFailed } else { DropReason::TooLong };
                refuse(from, lane, odd);
                left = left.without(Lanes(1 << lane));
            }
        }
        let order = &order[..count];
        let sent = match self.lending.clone() {
            Some(lending) => self.tx_lent(&lending, from, order),
            None => self.tx_copied(from, order, pool),
        };
        for lane in &order[..sent] {
            left = left.without(Lanes(1 << lane));
        }
        if sent > 0 || left.is_empty() {
            (self.stuck, self.is_stuck) = (None, false);
            return left;
        }
        self.waits(from, left, now)
    }

    /// The driver took nothing.
    #[cold]
    fn waits(&mut self, from: &mut Batch, left: Lanes, now: Nanos) -> Lanes {
        let since = *self.stuck.get_or_insert(now);
        if now.saturating_sub(since) < STUCK_LIMIT {
            return left;
        }
        if !std::mem::replace(&mut self.is_stuck, true) {
            self.home.report("the driver takes no frames; frames for it are dropped".into());
        }
        refuse_all(from, left, DropReason::PortFailed)
    }

    /// Transmits the lanes of `order` from their buffers, and leaves others in their place. Returns how many.
    fn tx_lent(&mut self, lending: &Lending, from: &mut Batch, order: &[usize]) -> usize {
        let Self { queue: Some(queue), spares, pool, .. } = self else { return 0 };
        lending.spares(pool, spares, order.len());
        let order = &order[..order.len().min(spares.len())];
        let (mut out, mut frames) = (Outgoing::default(), [(); LANES].map(|()| Frame::default()));
        let (mut metas, mut copies) = ([Meta::default(); LANES], Lanes::NONE);
        for (at, lane) in order.iter().enumerate() {
            let frame = &mut from.frames[*lane];
            if lending.lent(pool, frame).is_none() {
                // Its buffer is of the second size, which is not lent: a copy leaves in its place.
                let Some(mut copy) = spares.pop() else { break }; // not reached: there is one for each
                pool.set_len(&mut copy, frame.len());
                pool.bytes_mut(&mut copy).copy_from_slice(pool.bytes(frame));
                copies = copies.with(at);
                frames[at] = copy;
            } else {
                metas[at] = pool.meta(frame);
                frames[at] = std::mem::take(frame);
            }
            let Some(lent) = lending.lent(pool, &frames[at]) else { break };
            out.push(lent);
        }
        // SAFETY: the frames that own the buffers are in `frames`; those that the driver takes are given up below.
        let sent = unsafe { queue.tx_lent(&lending.memory, &out) };
        for (at, (lane, frame)) in order.iter().zip(frames).enumerate() {
            if frame.buf() == 0 {
                break;
            }
            if copies.has(at) {
                if at < sent {
                    pool.lend(frame);
                } else {
                    spares.push(frame);
                }
                continue;
            }
            if at >= sent {
                from.frames[*lane] = frame;
                continue;
            }
            let Some(mut spare) = spares.pop() else { break }; // not reached: there is one for each
            pool.set_len(&mut spare, frame.len());
            pool.set_meta(&mut spare, metas[at]);
            (spare.hash, spare.mark) = (frame.hash, frame.mark);
            pool.lend(frame);
            from.frames[*lane] = spare;
        }
        sent
    }

    fn tx_copied(&mut self, from: &Batch, order: &[usize], pool: &Pool) -> usize {
        let Some(queue) = &mut self.queue else { return 0 };
        let mut slices: [&[u8]; LANES] = [&[]; LANES];
        for (to, lane) in slices.iter_mut().zip(order) {
            *to = pool.bytes(&from.frames[*lane]);
        }
        queue.tx_copy(&slices[..order.len()])
    }

    /// Closes the queue. The last one of the port removes the device; the last one of all ports returns the yard's
    /// buffers.
    fn close(&mut self) -> Result<(), String> {
        let Some(mut queue) = self.queue.take() else { return Ok(()) };
        self.spares.drain(..).for_each(|frame| self.pool.put(frame));
        // What waits in a driver that is a ring would not come back. Some drivers always have more.
        let _ = !self.is_removed && (0..2048).any(|_| queue.rx(LANES, drop) == 0);
        let stats = queue.port().stats().filter(|_| queue.number() == 0);
        if let Some(stats) = stats.filter(|stats| stats.errors != (0, 0)) {
            let (rx, tx) = stats.errors;
            self.home
                .report(format!("the driver counted {rx} receive errors and {tx} transmit errors"));
        }
        drop(queue);
        let kept = self.lending.take().map_or(0, |lending| lending.end(&mut self.pool, 1));
        if kept > 0 {
            return Err(format!("the driver did not give back {kept} buffers"));
        }
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn refuse_all(from: &mut Batch, lanes: Lanes, reason: DropReason) -> Lanes {
    lanes.for_each(|lane| refuse(from, lane, reason));
    Lanes::NONE
}

/// Puts a received frame into the batch.
#[inline]
fn receive(
    arrived: Arrived,
    lending: Option<&Arc<Lending>>,
    (into, pool): (&mut Batch, &mut Pool),
    meta: Meta,
    got: &mut Received,
) {
    let bytes = arrived.bytes();
    let (mark, meta) = (arrived.mark(), Meta { wire_len: bytes as u32, ..meta });
    if bytes == 0 {
        got.empty += 1;
        return;
    }
    let copied = match lending {
        Some(lending) => match arrived.into_lent(&lending.memory, LEAST_OFFSET) {
            Ok(lent) => Ok(lending.received(pool, lent, meta)),
            Err(arrived) => Err(arrived),
        },
        None => Err(arrived),
    };
    let mut frame = match copied {
        Ok(frame) => frame,
        Err(_) if bytes > pool.longest() => {
            got.too_long += 1;
            return;
        }
        Err(arrived) => {
            let Ok(mut frame) = pool.take(bytes, meta) else {
                got.no_buffer += 1;
                return;
            };
            match arrived.piece() {
                Some(piece) => pool.bytes_mut(&mut frame).copy_from_slice(piece),
                None => arrived.copy_to(pool.bytes_mut(&mut frame)),
            }
            frame
        }
    };
    if let Some(mark) = mark {
        frame.mark = mark;
    }
    if let Err(frame) = into.push(frame, FlowKey::ZERO) {
        pool.put(frame); // not reached: a lane is free
    }
}

type Shared = Arc<Mutex<Device>>;

fn lock(device: &Shared) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct DpdkRx(pub(super) Shared);

impl Rx for DpdkRx {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        lock(&self.0).rx(into, pool, now)
    }

    fn remarks(&self) -> Vec<String> {
        let device = lock(&self.0);
        let remarks = device.home.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        remarks.clone()
    }
}

pub(super) struct DpdkTx(pub(super) Shared);

impl Tx for DpdkTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        lock(&self.0).tx(from, lanes, pool, now)
    }

    fn close(&mut self) -> Result<(), String> {
        lock(&self.0).close()
    }
}
