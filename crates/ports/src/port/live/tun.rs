//! One core's queue of a TAP port.
//!
//! What the kernel could not queue for the port, the interface counts as dropped; the first core
//! reads this counter. A port that finds its queue empty while that counter grows is stalled. A queue
//! cannot be opened a second time without removing an interface that ends with its last queue, so the
//! filters are removed instead, which are what keeps frames from an attached queue.

use std::sync::Arc;

use crate::live::{Carries, Interface, OpenError, is_detached, is_down, is_full};
use crate::tap::{Got, Programs};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_wire::{Offload, Refused, offload};

use super::calls::{Link, Queue, System};
use super::device::{Device, Monitor, refuse_all};
use super::long::Long;
use super::parts::Parts;
use flowyard_pool::{LONGEST, Meta, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Descriptors, Received, refuse};

/// The parameters for attaching the queue.
pub(super) struct Settings<S: System> {
    pub(super) system: S,
    pub(super) number: u16,
    pub(super) name: String,
    /// The number of this queue among the port's queues.
    pub(super) at: usize,
    /// How many queues the port has.
    pub(super) queues: usize,
    pub(super) programs: Programs,
    pub(super) carries: Carries,
    /// The queues of a recreated interface, with the number of frames lost for each.
    pub(super) parts: Arc<Parts<(S::Queue, u32)>>,
}

pub(super) struct Tun<S: System> {
    queue: S::Queue,
    /// Queues of older lives, of the interface that has the name of the port now.
    older: Vec<S::Queue>,
    settings: Settings<S>,
    monitor: Monitor<S::Link>,
    /// The life of the port that the queue belongs to, see [`Parts`].
    life: u64,
    /// Whether the last read found nothing that waited.
    is_drained: bool,
    /// When it was found that the port must be opened again.
    unbound_at: Nanos,
    /// Frames lost while queues were opened that are not yet reported.
    lost: u32,
    /// The interface's count of dropped frames; only the first core reads it.
    dropped: u64,
    count_at: Nanos,
    long: Long,
    /// Only the frame that was begun is received.
    is_paused: bool,
    /// The life of the port whose descriptors another process has.
    handed: Option<u64>,
}

/// How long the frames of the old queue are waited for when the port is opened again.
const PATIENCE: Nanos = 200_000_000;

/// Time between two readings of the kernel's counters.
const COUNT_EVERY: Nanos = 50_000_000;

impl<S: System> Tun<S> {
    pub(super) fn new(
        (queue, lost): (S::Queue, u32),
        settings: Settings<S>,
        mut monitor: Monitor<S::Link>,
    ) -> Self {
        let dropped = monitor.watch.link.counts().map_or(0, |counts| counts.unsent);
        Self {
            queue,
            older: Vec::new(),
            settings,
            monitor,
            life: 0,
            is_drained: false,
            unbound_at: 0,
            lost,
            dropped,
            count_at: 0,
            long: Long::default(),
            is_paused: false,
            handed: None,
        }
    }

    #[inline]
    fn attend(&mut self, now: Nanos) {
        let was_fresh = self.monitor.fresh().is_some();
        let (queue, Settings { name, parts, .. }) = (&self.queue, &self.settings);
        let is_bound = |_| parts.is_present(self.life) && queue.is_attached(name);
        let _nothing_to_do = self.monitor.look(now, is_bound);
        if self.monitor.fresh().is_none() {
            return;
        }
        if !was_fresh {
            // Frames may have come since the last read.
            (self.is_drained, self.unbound_at) = (false, now);
        }
        // The frames in the old queue come first, unless it cannot be read.
        if self.is_drained || now.saturating_sub(self.unbound_at) > PATIENCE {
            self.reopen();
        }
    }

    #[cold]
    fn reopen(&mut self) {
        let Settings { ref system, ref name, at, queues, ref programs, carries, ref parts, .. } =
            self.settings;
        let Some(interface) = self.monitor.fresh() else { return };
        if parts.is_present(self.life) && self.queue.is_attached(name) {
            self.queue.unfilter();
            return self.monitor.opened(Ok(()));
        }
        let how = (queues, programs, carries);
        let open = |discarded| attach(system, interface, how, discarded);
        let silencer = |(queue, _): &(S::Queue, u32)| queue.silencer();
        // Nothing waits in a queue that was silenced; but the frames lost for it are counted.
        let holds = |(_, lost): &mut (S::Queue, u32)| *lost > 0;
        let attached = parts.take((at, self.life), interface, open, silencer, holds);
        let attached = attached.map(|((queue, lost), life)| {
            let older = std::mem::replace(&mut self.queue, queue);
            self.life = life;
            self.lost += lost;
            // An interface that flowyard created ends with its last queue. If it has its name again, it
            // stays until this core has another queue of it.
            self.older.push(older);
            let is_attached = self.queue.is_attached(name);
            // A TAP with one queue cannot have another one beside it.
            let is_needed = queues > 1 && !is_attached;
            self.older.retain(|queue| is_needed && queue.is_of(name));
        });
        self.monitor.opened(attached);
    }

    /// Frames that the interface dropped since the last call.
    #[cold]
    fn count_dropped(&mut self, now: Nanos) -> u32 {
        self.count_at = now + COUNT_EVERY;
        let all = self.monitor.watch.link.counts().map_or(self.dropped, |counts| counts.unsent);
        // The counters of a recreated interface start at 0.
        let before = std::mem::replace(&mut self.dropped, all);
        u32::try_from(if all < before { all } else { all - before }).unwrap_or(u32::MAX)
    }
}

/// Attaches all queues to a recreated interface. `discarded` frames were lost in older queues.
fn attach<S: System>(
    system: &S,
    interface: &Interface,
    (count, programs, carries): (usize, &Programs, Carries),
    discarded: u32,
) -> Result<Vec<(S::Queue, u32)>, OpenError> {
    let (queues, lost) =
        system.queues(&interface.name, count, programs, carries).map_err(|error| OpenError {
            what: format!("the recreated interface cannot be opened: {error}"),
            fix: "create it as a TAP interface with the same number of queues".into(),
        })?;
    // The queues are attached by name, and the interface may have been replaced meanwhile; the next
    // check detects the new one.
    if system.find(&interface.name)?.index != interface.index {
        return Err(OpenError {
            what: "the interface was replaced again while it was opened".into(),
            fix: "no action is needed: the newest one is opened next".into(),
        });
    }
    Ok(by_core((queues, lost + discarded)))
}

/// The queues with the number of lost frames, which are all counted for the first queue.
pub(super) fn by_core<Q>((queues, lost): (Vec<Q>, u32)) -> Vec<(Q, u32)> {
    (0..).zip(queues).map(|(at, queue)| (queue, if at == 0 { lost } else { 0 })).collect()
}

impl<S: System> Tun<S> {
    /// Reads frames until the batch is full or nothing waits.
    #[inline]
    fn take(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos, got: &mut Received) {
        let in_port = self.settings.number;
        let meta = Meta { time: now, in_port, ..Meta::default() };
        let is_long = self.queue.carries().segments();
        // A frame that continues where a buffer of the first size ends; it is given back below.
        let mut large = if is_long { pool.take_large(LONGEST, meta).ok() } else { None };
        while into.len() < LANES {
            if !self.long.rest(into, pool, meta, got) {
                break;
            }
            if into.len() == LANES || self.is_paused {
                break;
            }
            let Ok(mut frame) = pool.take(pool.longest(), meta) else { break };
            let read = self.long.read(&mut self.queue, &mut frame, large.as_mut(), pool);
            let (len, header) = match read {
                Ok((Got::Frame(len), header)) => (len, header),
                Ok((Got::TooLong, _)) => {
                    got.too_long += 1;
                    pool.put(frame);
                    continue;
                }
                Ok((Got::Nothing, _)) => {
                    pool.put(frame);
                    self.is_drained = true;
                    break;
                }
                Err(error) => {
                    pool.put(frame);
                    // A deleted interface has taken the frames of its queues with it.
                    self.is_drained = is_detached(&error);
                    if self.monitor.watch.is_up() && is_down(&error) {
                        self.monitor.watch.hurry();
                    }
                    break;
                }
            };
            let meta = Meta { wire_len: len as u32, ..meta };
            if len > pool.longest() {
                let first = pool.longest();
                match large.take() {
                    Some(mut whole) if len <= LONGEST => {
                        // The rest is there already.
                        let bytes = pool.bytes_mut(&mut whole);
                        bytes[..first].copy_from_slice(pool.bytes(&frame));
                        pool.set_len(&mut whole, len);
                        pool.put(std::mem::replace(&mut frame, whole));
                        large = pool.take_large(LONGEST, meta).ok();
                    }
                    other => {
                        let behind = other.as_ref().map_or(&[][..], |large| pool.bytes(large));
                        let behind = behind.get(first..).unwrap_or_default();
                        self.long.gather([pool.bytes(&frame), behind], len, header);
                        large = other;
                        pool.put(frame);
                        continue;
                    }
                }
            } else {
                pool.set_len(&mut frame, len);
            }
            let Ok(offload) = described(header, pool.bytes_mut(&mut frame)) else {
                got.too_long += 1;
                pool.put(frame);
                continue;
            };
            pool.set_meta(&mut frame, Meta { offload, ..meta });
            if let Err(frame) = into.push(frame, FlowKey::ZERO) {
                pool.put(frame); // not reached: a lane is free
                break;
            }
        }
        if let Some(large) = large {
            pool.put(large);
        }
    }
}

/// What is left to do to a frame with this virtio-net header. A CRC of SCTP is completed.
#[inline]
fn described(header: [u8; Offload::VIRTIO_LEN], frame: &mut [u8]) -> Result<Offload, Refused> {
    if header[..2] == [0; 2] {
        return Ok(Offload::NONE);
    }
    let offload = Offload::from_virtio(&header, frame)?;
    if offload.has_crc() {
        offload::complete(frame, offload);
        return Ok(Offload::NONE);
    }
    Ok(offload)
}

impl<S: System> Device for Tun<S> {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        if self.is_paused {
            let mut got = Received::default();
            self.take(into, pool, now, &mut got);
            return got;
        }
        self.attend(now);
        let overrun = std::mem::take(&mut self.lost);
        let mut got = Received { overrun, ..Received::default() };
        self.is_drained = false;
        self.take(into, pool, now, &mut got);
        self.monitor.note(&mut got, into.len(), self.is_drained, now);
        if self.settings.at == 0 && now >= self.count_at {
            // Not evidence of life: these frames did not come here.
            got.overrun += self.count_dropped(now);
        }
        got
    }

    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        self.attend(now);
        if !self.monitor.is_ready() {
            return refuse_all(from, lanes, DropReason::PortDown);
        }
        let (mut left, carries) = (lanes, self.queue.carries().csum());
        for lane in lanes {
            let frame = &from.frames[lane];
            let offload = if carries { pool.meta(frame).offload } else { Offload::NONE };
            match self.queue.write(offload, pool.bytes(frame)) {
                Ok(()) => self.monitor.stuck = None,
                Err(error) if is_full(&error) => return self.monitor.later(from, left, now),
                Err(error) if is_down(&error) => return self.monitor.down(from, left),
                Err(error) => {
                    self.monitor.report(format!("a frame could not be transmitted: {error}"));
                    refuse(from, lane, DropReason::PortFailed);
                }
            }
            left = left.without(Lanes(1 << lane));
        }
        left
    }

    fn remarks(&self) -> Vec<String> {
        self.monitor.reported.clone()
    }

    /// Its descriptor is the queue's; its number is what the queue carries.
    fn descriptors(&mut self) -> Option<Descriptors> {
        let carries = self.queue.carries().bits();
        self.handed = Some(self.life);
        Some(Descriptors { fds: vec![self.queue.duplicate().ok()?], numbers: vec![carries] })
    }

    fn pause(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    fn position(&mut self) -> Option<Vec<u64>> {
        let is_same = self.handed == Some(self.life) && self.monitor.fresh().is_none();
        (is_same && self.long.is_clear()).then(|| vec![self.dropped])
    }

    fn go_on(&mut self, position: &[u64], _pool: &mut Pool) -> bool {
        let [dropped] = *position else { return false };
        self.dropped = dropped; // what the interface dropped since then is counted here
        true
    }
}
