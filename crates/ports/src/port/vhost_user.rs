//! The network adapter of a virtual machine: vhost-user.
//!
//! The queues of the guest are shared out among the cores. While the guest's driver is not ready, frames for
//! the port are dropped with the reason `port_down`; the port continues when it is ready again.
//! Invariants: frames are copied once, between the guest's memory and the pool. A guest that breaks the rules
//! has its port taken down until it resets its device, which is counted as `port_violations`.
//! Thread-safety: each half belongs to one core.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Batch, LANES, Lanes, Nanos};
use flowyard_pool::{Filled, Meta, Pool};
use flowyard_vhost::{Got, Receiver, RxQueue, Sent, Settings, TxQueue, Violation};
use flowyard_wire::LinkType;
use flowyard_yard::DropReason;
use flowyard_yard::port::{Halves, Received, Rx, Tx, refuse};

use super::{Log, STUCK_LIMIT};
use crate::live::OpenError;

/// The parameters of a vhost-user port.
#[derive(Clone, Debug)]
pub struct VhostPort {
    /// The port number in the metadata of its frames.
    pub number: u16,
    /// The name of the port in messages.
    pub name: String,
    /// Number of cores that own the port.
    pub cores: usize,
    /// The socket.
    pub settings: Settings,
}

/// Maximum number of messages kept for the end of a run.
const REMARKS: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens both halves of `port` for each of its cores.
///
/// # Errors
/// What failed, and how to fix it.
pub fn open(port: &VhostPort, log: &Log) -> Result<Vec<Halves>, OpenError> {
    let remarks = Arc::new(Mutex::new(Vec::new()));
    let (name, tell, kept) = (port.name.clone(), Arc::clone(log), Arc::clone(&remarks));
    let report = Arc::new(move |what: &str| {
        tell(&name, what);
        let mut kept = lock(&kept);
        if kept.len() < REMARKS && !kept.iter().any(|one| one == what) {
            kept.push(what.to_owned());
        }
    });
    let opened = flowyard_vhost::open(&port.settings, port.cores, report)
        .map_err(|error| OpenError { what: error.what, fix: error.fix })?;
    let halves = |queue: flowyard_vhost::Queue| {
        let rx = VhostRx {
            queue: queue.rx,
            number: port.number,
            first: 0,
            is_up: false,
            has_been_up: false,
            remarks: Arc::clone(&remarks),
        };
        let tx = VhostTx {
            queue: queue.tx,
            stuck: None,
            has_reported: false,
            log: Arc::clone(log),
            name: port.name.clone(),
        };
        (Box::new(rx) as Box<dyn Rx>, Box::new(tx) as Box<dyn Tx>)
    };
    Ok(opened.queues.into_iter().map(halves).collect())
}

struct VhostRx {
    queue: RxQueue,
    number: u16,
    /// The ring that is read first, in turn.
    first: usize,
    is_up: bool,
    has_been_up: bool,
    remarks: Arc<Mutex<Vec<String>>>,
}

impl VhostRx {
    /// Counts a driver that has become ready again in `got`.
    #[inline]
    fn attend(&mut self, got: &mut Received) {
        let is_up = self.queue.attend();
        if is_up != self.is_up {
            self.is_up = is_up;
            got.reopens += u32::from(is_up && self.has_been_up);
            self.has_been_up |= is_up;
        }
        got.violations += self.queue.violations();
    }
}

impl Rx for VhostRx {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut got = Received::default();
        self.attend(&mut got);
        let count = self.queue.receivers();
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        let meta = Meta {
            time: now,
            wire_len: 0,
            in_port: self.number,
            link: LinkType::Ethernet,
            ..Meta::default()
        };
        for turn in 0..count {
            let at = self.first + turn;
            let at = if at < count { at } else { at - count };
            let read = |receiver: &mut Receiver| read(receiver, into, pool, meta, &mut got);
            if !matches!(self.queue.receive(at, read), Some(Ok(()))) || into.len() == LANES {
                break;
            }
        }
        got
    }

    fn attend(&mut self) {
        self.queue.call_waiting();
    }

    fn remarks(&self) -> Vec<String> {
        lock(&self.remarks).clone()
    }
}

/// Receives from a ring, as long as there are frames, lanes and buffers.
#[inline]
fn read(
    receiver: &mut Receiver,
    into: &mut Batch,
    pool: &mut Pool,
    meta: Meta,
    got: &mut Received,
) -> Result<(), Violation> {
    if receiver.begin()? == 0 {
        return Ok(());
    }
    // Without a buffer frames stay in the ring, and the guest notices.
    pool.fill_batch(into, meta, |room| {
        Ok(match receiver.read(room)? {
            Some(Got::Frame(len)) => Filled::Frame(len),
            Some(Got::TooLong) => {
                got.too_long += 1;
                Filled::Nothing
            }
            Some(Got::Empty) => {
                got.empty += 1;
                Filled::Nothing
            }
            None => Filled::End,
        })
    })
}

struct VhostTx {
    queue: TxQueue,
    /// The time since which the guest has taken no frames.
    stuck: Option<Nanos>,
    /// The log has a line about that.
    has_reported: bool,
    log: Log,
    name: String,
}

impl VhostTx {
    fn refuse_all(&mut self, from: &mut Batch, lanes: Lanes, reason: DropReason) -> Lanes {
        self.stuck = self.stuck.filter(|_| reason == DropReason::PortFailed);
        lanes.for_each(|lane| refuse(from, lane, reason));
        Lanes::NONE
    }

    /// What happens to lanes that the guest has no buffers for.
    #[cold]
    fn wait(&mut self, from: &mut Batch, left: Lanes, now: Nanos) -> Lanes {
        let since = *self.stuck.get_or_insert(now);
        if now.saturating_sub(since) < STUCK_LIMIT {
            return left;
        }
        if !std::mem::replace(&mut self.has_reported, true) {
            (self.log)(&self.name, "the guest takes no frames; frames for it are dropped");
        }
        self.refuse_all(from, left, DropReason::PortFailed)
    }
}

impl Tx for VhostTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        let mut left = lanes;
        let result = self.queue.send(|sender| {
            sender.begin(lanes.count() as u16)?;
            for lane in lanes {
                match sender.write(pool.bytes(&from.frames[lane]))? {
                    Sent::Done => {}
                    Sent::Full => break,
                    Sent::TooLong => refuse(from, lane, DropReason::TooLong),
                }
                left = left.without(Lanes(1 << lane));
            }
            Ok(())
        });
        match result {
            Some(Ok(())) => {}
            None => return self.refuse_all(from, left, DropReason::PortDown),
            Some(Err(_)) => return self.refuse_all(from, left, DropReason::PortFailed),
        }
        if left == lanes && left != Lanes::NONE {
            return self.wait(from, left, now);
        }
        self.stuck = None;
        self.has_reported = false;
        left
    }

    fn attend(&mut self) {
        self.queue.attend();
    }
}
