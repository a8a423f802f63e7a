//! A yard as device under test under virtual time: the real engine, with modelled costs for its
//! cores and modelled lines at its ports.
//!
//! ```text
//!  offer ─> receive ring (full: lost) ─> rx ─ the engine's stages ─ work, with its cost ─ tx ─> line
//!           every core ticks at each event: a frame arrived, work is done, a line is free
//! ```
//!
//! Every frame passes through the real engine: parse, steer, settle, queues, work. Only time is
//! modelled: a core needs `batch_ns` per batch, `frame_ns` per frame and `byte_ps` per byte; all
//! else takes no time.
//!
//! The state exported for cycle detection: the frames in rings and inside the engine, by flow; the
//! times at which work and lines are done; the time of the last tick. There are no learners here,
//! and tables and homes are constant once every flow was seen. State is not exported after the
//! engine dropped a frame, nor for a bridge, whose table entries age.
//!
//! Thread-safety: used by one thread; the locks are only needed because the engine's traits require
//! `Send`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_flow::table::Rule;
use flowyard_flow::toeplitz::random_key;
use flowyard_frame::{Action, FlowKey, Nanos, To};
use flowyard_queue::Order;
use flowyard_report::num;
use flowyard_works::{Bridge, Forward, floods};
use flowyard_yard::blueprint::{PortPlan, QueuePlan, SteerPlan};
use flowyard_yard::work::{Around, Work};
use flowyard_yard::{Blueprint, Parts, Tick, Yard};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::device::{Dut, State};
use crate::line::Line;
use crate::measure::MeasureError;
use crate::tag;

mod wires;

use wires::{In, Out, Wires};

/// The work of the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Forwards from port 2n to port 2n + 1 and back.
    Forward,
    /// An L2 switch with an address table of this many entries.
    Bridge(u32),
}

/// The configuration of a simulated yard, and the modelled costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct YardSpec {
    /// Number of ports; port p belongs to core p modulo `cores`.
    pub ports: u8,
    /// Number of cores.
    pub cores: u8,
    /// True: one ordered queue spreads each flow over all cores. False: a direct queue per core.
    pub ordered: bool,
    /// The work of the cores.
    pub job: Job,
    /// Cost per frame.
    pub frame_ns: Nanos,
    /// Cost per batch, in addition.
    pub batch_ns: Nanos,
    /// Cost per byte (with FCS) in picoseconds.
    pub byte_ps: u64,
    /// Capacity of a receive ring in frames.
    pub ring_frames: u32,
    /// Number of filters (RFC 2544 section 11.4.1): 0, 1 or 25. With filters, all other traffic is
    /// dropped.
    pub filters: u8,
    /// Duration of a restart.
    pub restart_ns: Nanos,
    /// The medium of all ports.
    pub line: Line,
}

impl YardSpec {
    /// Two ports, one core, 500 ns per frame, on `line`.
    #[must_use]
    pub const fn new(line: Line) -> Self {
        Self {
            ports: 2,
            cores: 1,
            ordered: false,
            job: Job::Forward,
            frame_ns: 500,
            batch_ns: 200,
            byte_ps: 100,
            ring_frames: 512,
            filters: 0,
            restart_ns: 50_000_000,
            line,
        }
    }

    /// The filters as rules: a rule that accepts the tester's traffic, in the middle of 24 rules
    /// that drop traffic the tester does not send, and a final rule that drops everything else.
    fn rules(&self) -> Vec<Rule> {
        if self.filters == 0 {
            return Vec::new();
        }
        let ipv4 = |src: Option<[u8; 4]>, dst: Option<([u8; 4], u8)>| {
            let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
            (key.eth_type, mask.eth_type) = (0x0800, 0xffff);
            if let Some(src) = src {
                key.src[..4].copy_from_slice(&src);
                mask.src[..4].fill(0xff);
            }
            if let Some((dst, octets)) = dst {
                key.dst[..4].copy_from_slice(&dst);
                mask.dst[..usize::from(octets)].fill(0xff);
            }
            (key, mask)
        };
        let drop = Action { to: To::DROP, counter: 0, mark: 0 };
        let mut rules = Vec::new();
        for port in 0..self.ports {
            let queue = if self.ordered { 0 } else { port % self.cores.max(1) };
            let (from, to) = (port + 1, (port ^ 1) + 65);
            let (mut key, mut mask) = ipv4(Some([198, 18, from, 2]), Some(([198, 19, to, 0], 3)));
            (key.in_port, mask.in_port) = (port.into(), 0xffff);
            rules.push(Rule { key, mask, priority: 100, action: Action::queue(queue.into()) });
        }
        if self.filters > 1 {
            for n in 0..24_u8 {
                // 12 before the accepting rule and 12 after it.
                let priority = if n < 12 { 200 - n } else { 100 - n };
                let (key, mask) =
                    ipv4(Some([198, 18, n + 101, 2]), Some(([198, 19, n + 201, 2], 4)));
                rules.push(Rule { key, mask, priority: priority.into(), action: drop });
            }
        }
        rules.push(Rule { key: FlowKey::ZERO, mask: FlowKey::ZERO, priority: 0, action: drop });
        rules
    }

    /// The blueprint of the engine.
    fn blueprint(&self) -> Blueprint {
        let cores = u16::from(self.cores.max(1));
        let ports = (0..u16::from(self.ports)).map(|port| PortPlan {
            name: format!("p{port}"),
            cores: vec![port % cores],
            window_frames: WINDOW,
            ..PortPlan::default()
        });
        let queue = |name: String, order, consumers| QueuePlan {
            name,
            order,
            consumers,
            window_frames: WINDOW,
            ..QueuePlan::default()
        };
        let queues = if self.ordered {
            vec![queue("q".into(), Order::Ordered, (0..cores).collect())]
        } else {
            (0..cores).map(|core| queue(format!("q{core}"), Order::Direct, vec![core])).collect()
        };
        let bridges = matches!(self.job, Job::Bridge(_));
        Blueprint {
            cores,
            buffer_bytes: 16_384,
            work_frames: if bridges { 32 } else { 0 }, // copies of flooded frames
            ports: ports.collect(),
            queues,
            port_lists: if bridges { floods(self.ports.into()) } else { Vec::new() },
            steer: SteerPlan {
                hash_key: random_key(1).to_vec(),
                rules: self.rules(),
                ..SteerPlan::default()
            },
            ..Blueprint::default()
        }
    }
}

/// Capacity of each queue in frames.
const WINDOW: u32 = 256;

/// The device.
pub struct YardDut {
    spec: YardSpec,
    yard: Yard,
    wires: Arc<Mutex<Wires>>,
    done: Arc<Mutex<Vec<Nanos>>>,
    /// The time of the last event.
    now: Nanos,
    /// Arrival time of the first frame that no core has seen yet.
    fresh: Option<Nanos>,
    spare: Vec<Vec<u8>>,
    offered: u64,
    ring_full: u64,
    /// The end of a restart, and the number of frames that arrived during restarts.
    down: (Nanos, u64),
}

/// Work with a modelled cost; records when it is done.
fn timed(
    spec: YardSpec,
    core: usize,
    done: Arc<Mutex<Vec<Nanos>>>,
    then: Box<dyn Work>,
) -> Box<dyn Work> {
    let YardSpec { frame_ns, batch_ns, byte_ps, .. } = spec;
    Box::new(Around::new(then, move |work, batch, pool, now| {
        let bytes: usize = batch.lanes().map(|lane| batch.frames[lane].len() + 4).sum();
        let cost = batch_ns + batch.len() as u64 * frame_ns + bytes as u64 * byte_ps / 1000;
        let end = work.work(batch, pool, now) + cost;
        lock(&done)[core] = end;
        end
    }))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl YardDut {
    /// Builds the yard.
    ///
    /// # Errors
    /// When the configuration cannot be built.
    pub fn new(spec: YardSpec) -> Result<Self, MeasureError> {
        let other =
            |error: &dyn std::fmt::Display| MeasureError::Other(format!("the yard: {error}"));
        let cores = usize::from(spec.cores.max(1));
        let wires = Arc::new(Mutex::new(Wires::new(&spec)));
        let done = Arc::new(Mutex::new(vec![0; cores]));
        let mut parts = Parts::default();
        for port in 0..u16::from(spec.ports) {
            parts.rx.insert(port, Box::new(In::new(port, &wires)));
            parts.tx.insert(port, Box::new(Out::new(port, &wires)));
        }
        let forward: Vec<u16> = (0..u16::from(spec.ports)).map(|port| port ^ 1).collect();
        let jobs: Vec<Box<dyn Work>> = match spec.job {
            Job::Forward => (0..cores).map(|_| Box::new(Forward::new(&forward)) as _).collect(),
            Job::Bridge(stations) => {
                let (ports, age) = (u16::from(spec.ports), 300_000_000_000);
                let all =
                    Bridge::group(&vec![true; cores], ports, stations.max(1) as usize, age, 1);
                all.into_iter().map(|bridge| Box::new(bridge) as _).collect()
            }
        };
        for (core, then) in jobs.into_iter().enumerate() {
            parts.work.insert(core as u16, timed(spec, core, Arc::clone(&done), then));
        }
        let yard = Yard::build(&spec.blueprint(), parts).map_err(|error| other(&error))?;
        Ok(Self {
            spec,
            yard,
            wires,
            done,
            now: 0,
            fresh: None,
            spare: Vec::new(),
            offered: 0,
            ring_full: 0,
            down: (0, 0),
        })
    }

    /// The configuration of the device.
    #[must_use]
    pub const fn spec(&self) -> &YardSpec {
        &self.spec
    }

    /// Number of frames offered so far.
    #[must_use]
    pub const fn offered(&self) -> u64 {
        self.offered
    }

    /// Ticks every core until none makes progress at `now`.
    fn tick(&mut self, now: Nanos) {
        (self.now, self.fresh) = (now, None);
        loop {
            let progress: u32 = self.yard.cores.iter_mut().map(|core| core.tick(now)).sum();
            if progress == 0 {
                return;
            }
        }
    }

    /// The time of the next event: a frame arrived, work is done, a line is free.
    fn next(&self) -> Option<Nanos> {
        let wires = lock(&self.wires);
        let done = lock(&self.done);
        let work = done.iter().copied().filter(|done| *done > self.now);
        // While all cores are busy, a frame waits in its ring.
        let fresh = self.fresh.filter(|at| done.iter().any(|done| done <= at));
        work.chain(fresh).chain(wires.retry(self.now)).min()
    }

    fn advance(&mut self, until: Nanos) {
        while let Some(at) = self.next().filter(|at| *at <= until) {
            self.tick(at);
        }
    }
}

impl Dut for YardDut {
    fn describe(&self) -> String {
        let YardSpec {
            ports, cores, ordered, job, frame_ns, batch_ns, byte_ps, ring_frames, ..
        } = self.spec;
        let order = if ordered { "ordered" } else { "direct" };
        let cores = num::count(cores.into(), "core", "cores");
        let job = match job {
            Job::Forward => "a forwarder".to_owned(),
            Job::Bridge(addresses) => {
                format!("an Ethernet switch that can learn {addresses} addresses")
            }
        };
        format!(
            "a yard under virtual time: {job}, {ports} ports, {cores}, {order} queues; \
             {frame_ns} ns per frame, {batch_ns} ns per batch, {byte_ps} ps per byte, \
             rings of {ring_frames} frames"
        )
    }

    fn ports(&self) -> u8 {
        self.spec.ports
    }

    fn offer(&mut self, at: Nanos, port: u8, frame: &[u8]) {
        self.offered += 1;
        if at < self.down.0 {
            self.down.1 += 1;
            return;
        }
        let mut wires = lock(&self.wires);
        let Some(ring) = wires.rings.get_mut(usize::from(port)) else { return };
        if ring.len() >= self.spec.ring_frames as usize {
            self.ring_full += 1;
            return;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        let (tag, flow) = names(&bytes);
        ring.push_back(Held { at, tag, flow, bytes });
        self.fresh.get_or_insert(at);
    }

    fn collect(&mut self, until: Nanos, out: &mut dyn FnMut(Nanos, u8, &[u8])) {
        self.advance(until);
        let mut wires = lock(&self.wires);
        while let Some((port, held)) = wires.leave(until) {
            out(held.at, port, &held.bytes);
            self.spare.push(held.bytes);
        }
        self.spare.append(&mut wires.spent);
        self.spare.truncate(4096);
    }

    fn state(&self, now: Nanos, into: &mut Vec<u64>) -> State {
        let total = self.yard.cores.iter().map(flowyard_yard::Core::counters);
        if self.spec.job != Job::Forward || total.map(|core| core.drops.total()).sum::<u64>() > 0 {
            return State::Unavailable;
        }
        into.push(now - self.now);
        into.extend(lock(&self.done).iter().map(|done| done.saturating_sub(now)));
        lock(&self.wires).state(now, into)
    }

    /// Like a process that is killed and started again: all frames inside are lost.
    fn reset(&mut self, at: Nanos) -> bool {
        let Ok(new) = Self::new(self.spec) else { return false };
        let down = (at + self.spec.restart_ns, self.down.1);
        let (offered, ring_full) = (self.offered, self.ring_full);
        *self = Self { now: at, offered, ring_full, down, ..new };
        true
    }

    fn drops(&self) -> Vec<(String, u64)> {
        let mut drops =
            vec![("ring_full".to_owned(), self.ring_full), ("restart".to_owned(), self.down.1)];
        for core in &self.yard.cores {
            for (reason, count) in core.counters().drops.iter() {
                drops.push((format!("core {}: {}", core.id(), reason.name()), count));
            }
        }
        drops.retain(|(_, count)| *count > 0);
        drops
    }
}

/// Two hashes that identify a frame: of its tag, and of its flow and length.
fn names(frame: &[u8]) -> (u64, u64) {
    let hash = |bytes: &[u8]| {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        })
    };
    let at = tag::place(frame);
    let tag = frame.get(at..at + 14).unwrap_or_default();
    // Without the UDP checksum, which depends on the tag.
    let flow = frame.get(26..at - 2).unwrap_or_default();
    (hash(tag), hash(flow) ^ frame.len() as u64)
}

/// A frame in a ring or on a line: time of arrival or departure, hashes, bytes.
struct Held {
    at: Nanos,
    tag: u64,
    flow: u64,
    bytes: Vec<u8>,
}

#[cfg(test)]
mod tests;
