//! Wires: the yard's ports under virtual time, as rings, and lines that take their time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::LinkType;
use flowyard_yard::port::Received;
use flowyard_yard::{Rx, Tx};

use super::{Held, YardSpec, lock, names};
use crate::dut::State;
use crate::line::{Line, OVERHEAD_BYTES};

/// Frames that a port may have ahead of its line.
const AHEAD: u64 = 256;

/// Frames inside that are remembered; beyond, the state is not told any more.
const INSIDE: usize = 1 << 16;

/// Frames under way beyond which a state takes too long to be told.
const MANY: usize = 8192;

/// 128 bits of a sequence: two sequences that are not equal have equal ones by a chance of 2^-128.
fn digest(values: impl Iterator<Item = u64>) -> [u64; 2] {
    values.fold([1, 2], |[a, b], value| {
        let mix = |sum: u64, by: u64| (sum.rotate_left(23) ^ value).wrapping_mul(by);
        [mix(a, 0x9e37_79b9_7f4a_7c15), mix(b, 0xd6e8_feb8_6659_fd93)]
    })
}

/// All ports' rings and lines.
pub(super) struct Wires {
    line: Line,
    /// Received, by port.
    pub(super) rings: Vec<VecDeque<Held>>,
    /// Leaving, by port: when the first bit does.
    lines: Vec<VecDeque<Held>>,
    /// When each line is free, in picoseconds.
    free_ps: Vec<u128>,
    /// When a port that refused a frame takes one again.
    room: Vec<Option<Nanos>>,
    /// Received and not yet transmitted: tag and flow.
    inside: VecDeque<(u64, u64)>,
    lost_track: bool,
    /// Buffers to be used again.
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
            room: vec![None; ports],
            inside: VecDeque::new(),
            lost_track: false,
            spent: Vec::new(),
        }
    }

    /// When a port that refused a frame takes one again.
    pub(super) fn room(&self, now: Nanos) -> Option<Nanos> {
        self.room.iter().flatten().copied().filter(|at| *at > now).min()
    }

    /// The next frame whose first bit leaves until `until`.
    pub(super) fn leave(&mut self, until: Nanos) -> Option<(Nanos, u8, Vec<u8>)> {
        let fronts = self.lines.iter().enumerate();
        let fronts = fronts.filter_map(|(port, line)| line.front().map(|held| (held.at, port)));
        let (at, port) = fronts.min().filter(|(at, _)| *at <= until)?;
        let held = self.lines[port].pop_front()?;
        Some((at, port as u8, held.bytes))
    }

    /// What is under way, with times relative to `now`.
    pub(super) fn state(&self, now: Nanos, into: &mut Vec<u64>) -> State {
        if self.lost_track {
            return State::Never;
        }
        let under_way = self.rings.iter().chain(&self.lines).map(VecDeque::len).sum::<usize>();
        if under_way + self.inside.len() > MANY {
            return State::Later;
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
        into.extend(self.room.iter().map(|room| room.map_or(0, |at| at.saturating_sub(now))));
        State::Told
    }
}

/// A port's receiving half.
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
            let meta = Meta { time, wire_len, in_port: self.port, link, copied: 0 };
            match pool.copy(&bytes, meta) {
                Ok(frame) => {
                    // There is room: the lanes were counted above.
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

/// A port's transmitting half.
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
        let Wires { line, lines, free_ps, room, inside, lost_track, spent, .. } = &mut *wires;
        let free = &mut free_ps[self.port];
        room[self.port] = None;
        let mut left = lanes;
        for lane in lanes {
            let bytes = pool.bytes(&from.frames[lane]);
            let takes = u128::from(line.ps(bytes.len() as u64 + 4 + OVERHEAD_BYTES));
            let start = (*free).max(u128::from(now) * 1000);
            let ahead = start - u128::from(now) * 1000;
            let most = takes * u128::from(AHEAD);
            if ahead > most {
                room[self.port] = Some(now + ((ahead - most) / 1000) as Nanos + 1);
                return left;
            }
            *free = start + takes;
            let (tag, flow) = names(bytes);
            if !*lost_track {
                let at = inside.iter().position(|(inside, _)| *inside == tag);
                // A copy of a flooded frame was there before.
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
