//! The ports of a simulated yard: receive rings, and lines with a transmission time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::LinkType;
use flowyard_yard::port::Received;
use flowyard_yard::{Rx, Tx};

use super::{Held, YardSpec, lock, names};
use crate::dut::device::State;
use crate::line::{Line, OVERHEAD_BYTES};

/// Maximum number of frames that a port queues ahead of its line.
const AHEAD: u64 = 256;

/// Maximum number of tracked frames inside the engine; with more, state is no longer exported.
const INSIDE: usize = 1 << 16;

/// With more frames in flight, exporting the state takes too long.
const MANY: usize = 8192;

/// A 128-bit digest of a sequence; two different sequences collide with probability 2^-128.
fn digest(values: impl Iterator<Item = u64>) -> [u64; 2] {
    values.fold([1, 2], |[a, b], value| {
        let mix = |sum: u64, by: u64| (sum.rotate_left(23) ^ value).wrapping_mul(by);
        [mix(a, 0x9e37_79b9_7f4a_7c15), mix(b, 0xd6e8_feb8_6659_fd93)]
    })
}

/// The rings and lines of all ports.
pub(super) struct Wires {
    line: Line,
    /// Received frames, by port.
    pub(super) rings: Vec<VecDeque<Held>>,
    /// Departing frames, by port, with the departure time of the first bit.
    lines: Vec<VecDeque<Held>>,
    /// The time at which each line is free, in picoseconds.
    free_ps: Vec<u128>,
    /// For a port that refused a frame, the time at which it accepts one again.
    retry: Vec<Option<Nanos>>,
    /// Frames received and not yet transmitted: hashes of tag and flow.
    inside: VecDeque<(u64, u64)>,
    lost_track: bool,
    /// Buffers for reuse.
    pub(super) spent: Vec<Vec<u8>>,
}

impl Wires {
    pub(super) fn new(spec: &YardSpec) -> Self {
        let ports = usize::from(spec.ports);
        Self {
            line: spec.line,
            rings: (0..ports).map(|_| VecDeque::new()).collect(),
            lines: (0..ports).map(|_| VecDeque::new()).collect(),
            free_ps: vec![0; ports],
            retry: vec![None; ports],
            inside: VecDeque::new(),
            lost_track: false,
            spent: Vec::new(),
        }
    }

    /// The next time after `now` at which a port that refused a frame accepts one again.
    pub(super) fn retry(&self, now: Nanos) -> Option<Nanos> {
        self.retry.iter().flatten().copied().filter(|at| *at > now).min()
    }

    /// The next frame whose first bit leaves at or before `until`, and its port.
    pub(super) fn leave(&mut self, until: Nanos) -> Option<(u8, Held)> {
        let fronts = self.lines.iter().enumerate();
        let fronts = fronts.filter_map(|(port, line)| line.front().map(|held| (held.at, port)));
        let (_, port) = fronts.min().filter(|(at, _)| *at <= until)?;
        self.lines[port].pop_front().map(|held| (port as u8, held))
    }

    /// Exports the frames in flight, with times relative to `now`.
    pub(super) fn state(&self, now: Nanos, into: &mut Vec<u64>) -> State {
        if self.lost_track {
            return State::Unavailable;
        }
        let under_way = self.rings.iter().chain(&self.lines).map(VecDeque::len).sum::<usize>();
        if under_way + self.inside.len() > MANY {
            return State::TooLarge;
        }
        for ring in &self.rings {
            into.push(ring.len() as u64);
            into.extend(digest(ring.iter().map(|held| held.flow)));
        }
        for (line, free) in self.lines.iter().zip(&self.free_ps) {
            into.push(free.saturating_sub(u128::from(now) * 1000) as u64);
            into.push(line.len() as u64);
            let held = line.iter().flat_map(|held| [held.at.saturating_sub(now), held.flow]);
            into.extend(digest(held));
        }
        into.push(self.inside.len() as u64);
        into.extend(digest(self.inside.iter().map(|(_, flow)| *flow)));
        into.extend(self.retry.iter().map(|at| at.map_or(0, |at| at.saturating_sub(now))));
        State::Complete
    }
}

/// The receiving half of a port.
pub(super) struct In {
    port: u16,
    wires: Arc<Mutex<Wires>>,
}

impl In {
    pub(super) fn new(port: u16, wires: &Arc<Mutex<Wires>>) -> Self {
        Self { port, wires: Arc::clone(wires) }
    }
}

impl Rx for In {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut wires = lock(&self.wires);
        let Wires { rings, inside, lost_track, spent, .. } = &mut *wires;
        let ring = &mut rings[usize::from(self.port)];
        let mut got = Received::default();
        while into.len() < LANES && ring.front().is_some_and(|held| held.at <= now) && pool.has(1) {
            let Some(Held { at: time, tag, flow, bytes }) = ring.pop_front() else { break };
            let wire_len = bytes.len() as u32;
            let link = LinkType::Ethernet;
            let meta = Meta { time, wire_len, in_port: self.port, link, ..Meta::default() };
            match pool.copy(&bytes, meta) {
                Ok(frame) => {
                    // A lane is free: checked by the loop condition.
                    if let Err(frame) = into.push(frame, FlowKey::ZERO) {
                        pool.put(frame);
                    }
                    if !*lost_track {
                        inside.push_back((tag, flow));
                        *lost_track = inside.len() > INSIDE;
                    }
                }
                Err(_) => got.too_long += 1,
            }
            spent.push(bytes);
        }
        got
    }
}

/// The transmitting half of a port.
pub(super) struct Out {
    port: usize,
    wires: Arc<Mutex<Wires>>,
}

impl Out {
    pub(super) fn new(port: u16, wires: &Arc<Mutex<Wires>>) -> Self {
        Self { port: port.into(), wires: Arc::clone(wires) }
    }
}

impl Tx for Out {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        let mut wires = lock(&self.wires);
        let Wires { line, lines, free_ps, retry, inside, lost_track, spent, .. } = &mut *wires;
        let free = &mut free_ps[self.port];
        retry[self.port] = None;
        let mut left = lanes;
        for lane in lanes {
            let bytes = pool.bytes(&from.frames[lane]);
            let takes = u128::from(line.ps(bytes.len() as u64 + 4 + OVERHEAD_BYTES));
            let start = (*free).max(u128::from(now) * 1000);
            let ahead = start - u128::from(now) * 1000;
            let most = takes * u128::from(AHEAD);
            if ahead > most {
                retry[self.port] = Some(now + ((ahead - most) / 1000) as Nanos + 1);
                return left;
            }
            *free = start + takes;
            let (tag, flow) = names(bytes);
            if !*lost_track {
                let at = inside.iter().position(|(inside, _)| *inside == tag);
                // Absent for the second and further copies of a flooded frame.
                let _gone = at.and_then(|at| inside.remove(at));
            }
            let mut copy = spent.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            let at = (start / 1000) as Nanos;
            lines[self.port].push_back(Held { at, tag, flow, bytes: copy });
            left = left.without(Lanes(1 << lane));
        }
        left
    }
}
