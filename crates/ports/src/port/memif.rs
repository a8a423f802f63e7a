//! A port in memory that another process shares: memif.
//!
//! Each core has a ring in each direction, as far as the peer has as many. While there is no connection, frames for
//! the port are dropped with the reason `port_down`; the interface connects again by itself.
//! Thread-safety: both halves of a core's part belong to one core and share nothing but the log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Batch, LANES, Lanes, Nanos};
use flowyard_memif::{Got, Queue, RxQueue, Sent, Settings, TxQueue, Violation};
use flowyard_pool::{Filled, Meta, Pool};
use flowyard_wire::LinkType;
use flowyard_yard::DropReason;
use flowyard_yard::port::{Halves, Received, Rx, Tx, refuse};

use super::{Log, STUCK_LIMIT};
use crate::live::OpenError;

/// The parameters of a memif port.
#[derive(Clone, Debug)]
pub struct MemifPort {
    /// The port number in the metadata of its frames.
    pub number: u16,
    /// The name of the port in messages.
    pub name: String,
    /// Number of cores that own the port.
    pub cores: usize,
    /// The connection.
    pub settings: Settings,
}

/// Maximum number of messages kept for the end of a run.
const REMARKS: usize = 16;

/// What both halves of a core's part report to.
#[derive(Clone)]
struct Report {
    name: String,
    log: Log,
    remarks: Arc<Mutex<Vec<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens both halves of `port` for each of its cores.
///
/// # Errors
/// What failed, and how to fix it.
pub fn open(port: &MemifPort, log: &Log) -> Result<Vec<Halves>, OpenError> {
    let remarks = Arc::new(Mutex::new(Vec::new()));
    let (name, tell, kept) = (port.name.clone(), Arc::clone(log), Arc::clone(&remarks));
    let report = Arc::new(move |what: &str| {
        tell(&name, what);
        let mut kept = lock(&kept);
        if kept.len() < REMARKS && !kept.iter().any(|one| one == what) {
            kept.push(what.to_owned());
        }
    });
    let opened = flowyard_memif::open(&port.settings, port.cores, report)
        .map_err(|error| OpenError { what: error.what, fix: error.fix })?;
    let report = Report { name: port.name.clone(), log: Arc::clone(log), remarks };
    let number = port.number;
    let halves = |Queue { rx, tx }| {
        let rx = MemifRx {
            queue: rx,
            number,
            first: 0,
            is_connected: false,
            has_connected: false,
            report: report.clone(),
        };
        let tx = MemifTx { queue: tx, stuck: None, has_reported: false, report: report.clone() };
        (Box::new(rx) as Box<dyn Rx>, Box::new(tx) as Box<dyn Tx>)
    };
    Ok(opened.queues.into_iter().map(halves).collect())
}

struct MemifRx {
    queue: RxQueue,
    number: u16,
    /// The ring that is read first, in turn.
    first: usize,
    is_connected: bool,
    has_connected: bool,
    report: Report,
}

impl Rx for MemifRx {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut got = Received::default();
        let is_connected = self.queue.attend();
        if is_connected != self.is_connected {
            self.is_connected = is_connected;
            // A connection that replaced another one is counted.
            got.reopens += u32::from(is_connected && self.has_connected);
            self.has_connected |= is_connected;
        }
        if !is_connected {
            return got;
        }
        let count = self.queue.receivers().len();
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        for turn in 0..count {
            let at = (self.first + turn) % count;
            let result = read(&mut self.queue, at, (into, pool), (self.number, now), &mut got);
            if let Err(violation) = result {
                self.queue.fail(&violation);
                return got;
            }
        }
        got
    }

    fn remarks(&self) -> Vec<String> {
        lock(&self.report.remarks).clone()
    }
}

struct MemifTx {
    queue: TxQueue,
    /// The time since which the peer has taken no frames.
    stuck: Option<Nanos>,
    /// The log has a line about that.
    has_reported: bool,
    report: Report,
}

impl Tx for MemifTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        if !self.queue.attend() {
            self.stuck = None;
            return refuse_all(from, lanes, DropReason::PortDown);
        }
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
            Ok(Some(())) => {}
            Ok(None) => return refuse_all(from, left, DropReason::PortDown),
            Err(violation) => {
                self.queue.fail(&violation);
                return refuse_all(from, left, DropReason::PortFailed);
            }
        }
        if left != lanes || left == Lanes::NONE {
            (self.stuck, self.has_reported) = (None, false);
            return left;
        }
        let since = *self.stuck.get_or_insert(now);
        if now.saturating_sub(since) < STUCK_LIMIT {
            return left;
        }
        if !std::mem::replace(&mut self.has_reported, true) {
            let Report { name, log, .. } = &self.report;
            log(name, "the peer takes no frames; frames for it are dropped");
        }
        refuse_all(from, left, DropReason::PortFailed)
    }

    fn attend(&mut self) {
        self.queue.wake();
    }
}

fn refuse_all(from: &mut Batch, lanes: Lanes, reason: DropReason) -> Lanes {
    lanes.for_each(|lane| refuse(from, lane, reason));
    Lanes::NONE
}

/// Receives from the ring at `at`, as long as there are frames, lanes and buffers.
fn read(
    queue: &mut RxQueue,
    at: usize,
    (into, pool): (&mut Batch, &mut Pool),
    (in_port, time): (u16, Nanos),
    got: &mut Received,
) -> Result<(), Violation> {
    let Some(receiver) = queue.receivers().get_mut(at) else { return Ok(()) };
    if into.len() == LANES || receiver.begin()? == 0 {
        return Ok(());
    }
    let meta = Meta { time, wire_len: 0, in_port, link: LinkType::Ethernet, ..Meta::default() };
    // Without a buffer frames stay in the ring, and the peer notices.
    let result = pool.fill_batch(into, meta, |room| {
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
    });
    receiver.finish();
    result
}
