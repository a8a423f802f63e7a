//! One core's queue of a TAP port.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;

use crate::live::{Change, Interface, OpenError, is_down, is_full};
use crate::tap::{Got, Programs, Queue};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_wire::LinkType;

use super::device::{Device, Monitor, refuse_all};
use super::parts::Parts;
use flowyard_pool::{Meta, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Received, refuse};

/// The parameters for attaching the queue.
pub(super) struct Settings {
    pub(super) number: u16,
    pub(super) name: String,
    /// The number of this queue among the port's queues.
    pub(super) at: usize,
    /// How many queues the port has.
    pub(super) queues: usize,
    pub(super) programs: Programs,
    /// The queues of a recreated interface, with the number of frames lost for each.
    pub(super) parts: Arc<Parts<(Queue, u32)>>,
}

pub(super) struct Tun {
    queue: Queue,
    settings: Settings,
    monitor: Monitor,
    /// The kernel's counters of the interface; only the first core reads them.
    counters: Option<Counters>,
    /// Frames lost while queues were opened that are not yet reported.
    lost: u32,
}

impl Tun {
    pub(super) fn new((queue, lost): (Queue, u32), settings: Settings, monitor: Monitor) -> Self {
        let counters = (settings.at == 0).then(|| Counters::open(&settings.name)).flatten();
        Self { queue, settings, monitor, counters, lost }
    }

    fn attend(&mut self, now: Nanos) {
        let Some(Change::New(interface)) = self.monitor.look(now) else { return };
        let Settings { at, queues, ref programs, ref parts, .. } = self.settings;
        let attached = parts.take(at, &interface, || attach(&interface, queues, programs));
        self.monitor.opened(attached.map(|(queue, lost)| {
            self.queue = queue;
            self.lost += lost;
        }));
    }
}

/// Attaches all queues to a recreated interface.
fn attach(
    interface: &Interface,
    count: usize,
    programs: &Programs,
) -> Result<Vec<(Queue, u32)>, OpenError> {
    let made = Queue::attach(&interface.name, count, programs).map_err(|error| OpenError {
        what: format!("the recreated interface cannot be opened: {error}"),
        fix: "create it as a TAP interface with the same number of queues".into(),
    })?;
    // The queues are attached by name, and the interface may have been replaced meanwhile; the next
    // check detects the new one.
    if Interface::find(&interface.name)?.index != interface.index {
        return Err(OpenError {
            what: "the interface was replaced again while it was opened".into(),
            fix: "no action is needed: the newest one is opened next".into(),
        });
    }
    Ok(by_core(made))
}

/// The queues with the number of lost frames, which are all counted for the first queue.
pub(super) fn by_core((queues, lost): (Vec<Queue>, u32)) -> Vec<(Queue, u32)> {
    (0..).zip(queues).map(|(at, queue)| (queue, if at == 0 { lost } else { 0 })).collect()
}

impl Device for Tun {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        self.attend(now);
        let overrun = std::mem::take(&mut self.lost);
        let mut got = Received { overrun, ..Received::default() };
        if let Some(counters) = &mut self.counters {
            got.overrun += counters.dropped(&self.settings.name, now);
        }
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
                    break;
                }
                Err(error) => {
                    pool.put(frame);
                    if self.monitor.watch.is_up() && is_down(&error) {
                        self.monitor.watch.hurry();
                    }
                    break;
                }
            }
            pool.put(frame);
        }
        got
    }

    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        self.attend(now);
        if !self.monitor.watch.is_up() {
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

    fn monitor(&self) -> &Monitor {
        &self.monitor
    }
}

/// The kernel's counters of an interface: frames of the host that were dropped because queues were
/// full.
struct Counters {
    file: File,
    text: String,
    seen: u64,
    next: Nanos,
}

/// Time between two readings; the file contains all interfaces.
const READ_EVERY: Nanos = 50_000_000;

impl Counters {
    /// Opens the counters in the network namespace of this thread.
    fn open(name: &str) -> Option<Self> {
        let file = File::open("/proc/thread-self/net/dev").ok()?;
        let mut counters = Self { file, text: String::with_capacity(4096), seen: 0, next: 0 };
        counters.seen = counters.read(name).unwrap_or(0);
        Some(counters)
    }

    /// Number of frames dropped since the last call.
    fn dropped(&mut self, name: &str, now: Nanos) -> u32 {
        if now < self.next {
            return 0;
        }
        self.next = now + READ_EVERY;
        let all = self.read(name).unwrap_or(self.seen);
        // The counters of a recreated interface start at 0.
        let before = std::mem::replace(&mut self.seen, all);
        u32::try_from(if all < before { all } else { all - before }).unwrap_or(u32::MAX)
    }

    fn read(&mut self, name: &str) -> Option<u64> {
        self.text.clear();
        self.file.rewind().ok()?;
        self.file.read_to_string(&mut self.text).ok()?;
        dropped_in(&self.text, name)
    }
}

/// Frames that the interface `name` dropped on transmission: the twelfth number of its line.
fn dropped_in(text: &str, name: &str) -> Option<u64> {
    let of = |line: &str| {
        let (found, numbers) = line.split_once(':')?;
        (found.trim() == name).then(|| numbers.split_whitespace().nth(11)?.parse().ok())?
    };
    text.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes ...\n    \
                    lo: 1 2 3 4 5 6 7 8 9 10 11 0 13 14 15 16\n  \
                    tap0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!((dropped_in(text, "tap0"), dropped_in(text, "lo")), (Some(12), Some(0)));
        assert_eq!((dropped_in(text, "tap"), dropped_in("tap0: 1", "tap0")), (None, None));
    }
}
