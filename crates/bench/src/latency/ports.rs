//! The ports of a latency measurement: frames arrive when they are due, and leave with their latency recorded.
//!
//! ```text
//!  last 8 bytes of a frame: its number      time in its metadata: when it was due
//! ```
//!
//! These bytes are behind the end of the IP packet, so that no checksum covers them.
//!
//! Thread-safety: each port belongs to a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::ensure;
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_ports::mem::Frames;
use flowyard_rfc2544::latency::Recorder;
use flowyard_wire::LinkType;
use flowyard_yard::port::Received;
use flowyard_yard::{Clock, Rx, Tx};

use super::schedule::Schedule;

/// Durations from the first call of the receiving port on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Frames that are due before are not measured.
    warm: Nanos,
    /// Frames that were due after this do not arrive.
    end: Nanos,
}

impl Times {
    /// A measurement of `time`, after a quarter of it to warm up.
    pub(super) const fn of(time: Duration) -> Self {
        let time = time.as_nanos() as Nanos;
        Self { warm: time / 4, end: time / 4 + time }
    }
}

/// Receives each frame when it is due, or later.
pub(super) struct Arrivals {
    /// All frames, `len` bytes each.
    data: Vec<u8>,
    len: usize,
    schedule: Option<Schedule>,
    times: Times,
    start: Option<Nanos>,
    /// When the next frame is due, from the start.
    due: Nanos,
    /// Number of frames so far.
    number: u64,
    count: Arc<AtomicU64>,
}

/// Set in the number of a frame that is measured: it is due when the engine has warmed up.
const MEASURED: u64 = 1 << 63;

/// Bytes of a frame's number.
const NUMBER: usize = 8;

impl Arrivals {
    /// Repeats `frames`, which all have the same length, by `schedule`; without one, they are always due. The number of
    /// frames is published in `count`.
    pub(super) fn new(
        frames: &Frames,
        mut schedule: Option<Schedule>,
        times: Times,
        count: Arc<AtomicU64>,
    ) -> Self {
        let data: Vec<u8> = frames.iter().flat_map(|(_, data)| data).copied().collect();
        let len = data.len() / frames.len().max(1);
        let due = schedule.as_mut().map_or(0, Schedule::next);
        Self { data, len, schedule, times, start: None, due, number: 0, count }
    }

    /// Receives one frame that was due at `due` from the start. Returns whether there was a buffer for it.
    fn receive(&mut self, into: &mut Batch, pool: &mut Pool, start: Nanos, due: Nanos) -> bool {
        let at = self.number as usize * self.len % self.data.len();
        let (wire_len, link) = (self.len as u32, LinkType::Ethernet);
        let meta = Meta { time: start + due, wire_len, in_port: 0, link, ..Meta::default() };
        let Ok(mut frame) = pool.copy(&self.data[at..at + self.len], meta) else { return false };
        let measured = if due >= self.times.warm { MEASURED } else { 0 };
        let number = (self.number | measured).to_be_bytes();
        pool.bytes_mut(&mut frame)[self.len - NUMBER..].copy_from_slice(&number);
        match into.push(frame, FlowKey::ZERO) {
            Ok(_) => self.number += 1,
            Err(frame) => pool.put(frame), // not reached: the batch has room
        }
        true
    }
}

impl Rx for Arrivals {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let start = *self.start.get_or_insert(now);
        let passed = now.saturating_sub(start);
        let mut got = Received::default();
        while into.len() < LANES {
            let due = if self.schedule.is_some() { self.due } else { passed };
            got.ended = due > self.times.end;
            if got.ended || due > passed || !self.receive(into, pool, start, due) {
                break; // without a buffer, the frame stays due
            }
            if let Some(schedule) = &mut self.schedule {
                self.due = schedule.next();
            }
        }
        self.count.store(self.number, Ordering::Relaxed);
        got
    }
}

/// What left.
pub(super) struct Log {
    /// Latencies of measured frames.
    pub(super) recorder: Recorder,
    /// When the first and the last measured frame left.
    first: Nanos,
    last: Nanos,
    measured: u64,
    /// All frames that left.
    left: u64,
    /// By flow: the number of its next frame is at least this.
    next: Vec<u64>,
    /// Frames that left behind a later frame of their flow, or twice.
    disordered: u64,
}

impl Log {
    /// Frames per second that left, among those measured.
    pub(super) fn pps(&self) -> f64 {
        self.measured as f64 * 1e9 / (self.last - self.first).max(1) as f64
    }

    /// Checks order and conservation of `offered` frames.
    pub(super) fn check(&self, offered: u64) -> anyhow::Result<()> {
        let Self { left, disordered, .. } = self;
        ensure!(*disordered == 0, "{disordered} frames left behind a later frame of their flow");
        ensure!(*left == offered, "{offered} frames were received, but {left} left");
        Ok(())
    }
}

/// Records the latency of each frame, and frees it.
pub(super) struct Departures {
    log: Option<Log>,
    clock: Clock,
    results: Sender<Log>,
}

impl Departures {
    /// For `flows` flows; the results are sent to `results` when the port is closed.
    pub(super) fn new(flows: u64, clock: Clock, results: Sender<Log>) -> Self {
        let log = Log {
            recorder: Recorder::new(),
            first: 0,
            last: 0,
            measured: 0,
            left: 0,
            next: vec![0; flows as usize],
            disordered: 0,
        };
        Self { log: Some(log), clock, results }
    }
}

impl Tx for Departures {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, _now: Nanos) -> Lanes {
        let Some(log) = &mut self.log else { return Lanes::NONE };
        let now = (self.clock)(); // a tick began earlier
        for lane in lanes {
            let frame = &from.frames[lane];
            let bytes = pool.bytes(frame);
            let Some((_, number)) = bytes.split_last_chunk::<NUMBER>() else { continue };
            let tagged = u64::from_be_bytes(*number);
            // The last bytes of the source address are the number of the flow.
            let flow = usize::from(u16::from_be_bytes([bytes[28], bytes[29]]));
            let number = tagged & !MEASURED;
            log.left += 1;
            log.disordered += u64::from(number < log.next[flow]);
            log.next[flow] = number + 1;
            if tagged & MEASURED != 0 {
                log.recorder.record(now.saturating_sub(pool.meta(frame).time), 1);
                log.first = if log.measured == 0 { now } else { log.first };
                (log.last, log.measured) = (now, log.measured + 1);
            }
        }
        Lanes::NONE
    }

    fn close(&mut self) -> Result<(), String> {
        if let Some(log) = self.log.take() {
            let _nobody = self.results.send(log);
        }
        Ok(())
    }
}
