//! One core's queue of a TAP port.
//!
//! What the kernel could not queue for the port, the interface counts as dropped; the first core
//! reads this counter. A port that finds its queue empty while that counter grows is stalled. A queue
//! cannot be opened a second time without removing an interface that ends with its last queue, so the
//! filters are removed instead, which are what keeps frames from an attached queue.

use std::sync::Arc;

use crate::live::{Interface, OpenError, is_detached, is_down, is_full};
use crate::tap::{Got, Programs};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_wire::LinkType;

use super::calls::{Link, Queue, System};
use super::device::{Device, Monitor, refuse_all};
use super::parts::Parts;
use flowyard_pool::{Meta, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Received, refuse};

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
        let Settings { ref system, ref name, at, queues, ref programs, ref parts, .. } =
            self.settings;
        let Some(interface) = self.monitor.fresh() else { return };
        if parts.is_present(self.life) && self.queue.is_attached(name) {
            self.queue.unfilter();
            return self.monitor.opened(Ok(()));
        }
        let open = |discarded| attach(system, interface, queues, programs, discarded);
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
    count: usize,
    programs: &Programs,
    discarded: u32,
) -> Result<Vec<(S::Queue, u32)>, OpenError> {
    let (queues, lost) =
        system.queues(&interface.name, count, programs).map_err(|error| OpenError {
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

impl<S: System> Device for Tun<S> {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        self.attend(now);
        let overrun = std::mem::take(&mut self.lost);
        let mut got = Received { overrun, ..Received::default() };
        self.is_drained = false;
        while into.len() < LANES {
            let meta = Meta {
                time: now,
                wire_len: 0,
                in_port: self.settings.number,
                link: LinkType::Ethernet,
                copied: 0,
            };
            let Ok(mut frame) = pool.take(pool.longest(), meta) else { break };
            match self.queue.read(pool.bytes_mut(&mut frame)) {
                Ok(Got::Frame(len)) => {
                    pool.set_len(&mut frame, len);
                    pool.set_meta(&mut frame, Meta { wire_len: len as u32, ..meta });
                    if let Err(frame) = into.push(frame, FlowKey::ZERO) {
                        pool.put(frame); // not reached: a lane is free
                        break;
                    }
                    continue;
                }
                Ok(Got::TooLong) => got.too_long += 1,
                Ok(Got::Nothing) => {
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
            }
            pool.put(frame);
        }
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
        let mut left = lanes;
        for lane in lanes {
            match self.queue.write(pool.bytes(&from.frames[lane])) {
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
}
