//! Walk: processes a frame with the port mapping, the flows of a known path, or the tables.
//!
//! Invariants: the next table always has a higher number, so the walk ends; the counters of the matched flows are
//! incremented in each of the three cases.
//! Thread-safety: owned by one core.

use flowyard_openflow::Field;
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::Lookups;
use flowyard_openflow::flow::{InReason, PacketOut};
use flowyard_openflow::port::reserved;
use flowyard_wire::Offload;

use super::{Arrival, Datapath, Flow, HOT, path};
use crate::cache::{Path, Spot};
use crate::effects::{Bytes, Effects, Reason, Sent};
use crate::packet::Packet;
use crate::set::ActionSet;
use crate::world::{Origin, World};

/// What follows a table.
enum Next {
    Table(u8),
    /// No other table; the action set is applied.
    Done,
    /// Nothing follows.
    Over,
}

impl Datapath {
    /// Processes a frame that was received at `now`. `out` is cleared first, except its punts. For many
    /// frames at a time, see [`Datapath::look`].
    pub fn process(&mut self, frame: &[u8], from: Arrival, now: u64, out: &mut Effects) {
        self.look([(frame, from)]);
        self.act(0, frame, now, out);
    }

    /// Processes the frame that was looked up at this place. Its bytes must not have changed since then.
    pub fn act(&mut self, place: usize, frame: &[u8], now: u64, out: &mut Effects) {
        self.act_on(place, (frame, Offload::NONE), now, out);
    }

    /// As [`Datapath::act`], for a frame of which something is left to do, as [`Datapath::preparation`] allows.
    pub fn act_on(
        &mut self,
        place: usize,
        (frame, left): (&[u8], Offload),
        now: u64,
        out: &mut Effects,
    ) {
        out.clear();
        let Some(in_port) = self.ahead.keys.get(place).map(|key| key.bits(Field::InPort) as u32)
        else {
            return out.because(Reason::NotReceived);
        };
        self.totals.frames += 1;
        if !self.world.receives(in_port) {
            return out.because(Reason::NotReceived);
        }
        let holds = self.ahead.holds;
        let known = self.ahead.paths[place].filter(|_| holds);
        let port = known.and_then(|path| self.cache.port(path));
        let mapped = port.and_then(|port| path::egress_port(port, in_port));
        if let (Some(path), Some(port)) = (known, mapped)
            && self.map(path, (port, left), frame.len() as u64, now, out)
        {
            return;
        }
        out.begin();
        let buffer = self.world.buffer();
        let parsed = (self.ahead.keys[place], self.ahead.layouts[place]);
        let mut packet = Packet::parsed(frame, parsed, left, buffer);
        if let Some(path) = known {
            self.totals.cached += 1;
            self.replay(path, mapped, &mut packet, now, out);
        } else {
            let spot = self.ahead.spots[place].filter(|_| holds);
            let first = holds.then(|| self.ahead.flows[place]);
            let mut path = std::mem::take(&mut self.path);
            let ended = self.walk(&mut packet, now, false, first, &mut path, out);
            if let Some(spot) = spot {
                self.learn(place, spot, &path, ended);
            }
            self.path = path;
        }
        self.totals.over += u64::from(out.end());
        if out.sent.is_empty() {
            out.because(Reason::NoOutput);
        }
        let buffer = packet.into_buffer();
        self.world.give_back(buffer);
    }

    /// Sends a frame to the port of a path with only one flow. Returns false if the path has more.
    #[inline]
    fn map(
        &mut self,
        path: u32,
        (port, left): (u32, Offload),
        len: u64,
        now: u64,
        out: &mut Effects,
    ) -> bool {
        let fast = self.cache.fast(path);
        let Some((table, counts)) = &fast.only else { return false };
        fast.hits = (fast.hits.0 + 1, fast.hits.1 + len);
        if let Some(counts) = counts.get(self.core) {
            counts.add(1, len, now);
        }
        count(&self.lookups, *table, self.core, (1, 1), now);
        self.totals.cached += 1;
        self.totals.mapped += 1;
        if self.world.sends(port) {
            out.sent.push(Sent { port, queue: 0, bytes: Bytes::Same, left });
        } else {
            out.because(Reason::Filtered);
        }
        true
    }

    /// Stores the path of a frame that missed in the cache.
    fn learn(&mut self, place: usize, spot: Spot, path: &Path, ended: bool) {
        let of = |number: &u32| {
            let table = self.flow(*number).map(|flow| flow.entry.table);
            table.map_or(1, |table| self.tables[usize::from(table)].tuples())
        };
        let tuples = path.flows.iter().map(of).sum();
        let pays = self.cache.taken() < HOT || !self.is_light;
        let kept = ended && pays && self.proves(path) && {
            let (key, flows) = (&self.ahead.keys[place], &self.flows);
            self.cache.put(key, spot, path, || path::ends(flows, path))
        };
        self.cache.watch.missed(tuples, kept);
    }

    /// Processes a packet with the tables. `first` is the result of the first table, if it is known. Returns
    /// whether the path was followed to its end.
    fn walk(
        &mut self,
        packet: &mut Packet<'_>,
        now: u64,
        owned: bool,
        first: Option<Option<u32>>,
        path: &mut Path,
        out: &mut Effects,
    ) -> bool {
        path.flows.clear();
        path.miss = None;
        self.set.clear();
        let (mut at, mut first) = (0, first);
        loop {
            let Some(table) = self.tables.get(usize::from(at)) else { return false };
            let found = first.take().unwrap_or_else(|| table.lookup(&packet.key));
            let flow = found.and_then(|number| self.flows[number as usize].as_ref());
            count(&self.lookups, at, self.core, (1, flow.is_some().into()), now);
            let (Some(number), Some(flow)) = (found, flow) else {
                path.miss = Some(at);
                out.because(Reason::Miss);
                return true;
            };
            path.flows.push(number);
            let mut origin = origin(flow, now, owned);
            match step(flow, &mut self.world, &mut self.set, packet, &mut origin, out) {
                // The agent rejects a goto to the same or a lower table; this check ends the walk in any case.
                Next::Table(to) if to > at => at = to,
                Next::Table(_) | Next::Over => return false,
                Next::Done => {
                    self.world.act_set(&self.set, packet, &last(flow, &origin), out);
                    return true;
                }
            }
        }
    }

    /// Processes a packet with the flows of a known path.
    fn replay(
        &mut self,
        path: u32,
        mapped: Option<u32>,
        packet: &mut Packet<'_>,
        now: u64,
        out: &mut Effects,
    ) {
        let len = packet.bytes().len() as u64;
        let path = self.cache.path(path);
        self.set.clear();
        let mut end = None;
        for &number in &path.flows {
            let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::as_mut) else {
                return;
            };
            flow.offloaded = (flow.offloaded.0 + 1, flow.offloaded.1 + len);
            count(&self.lookups, flow.entry.table, self.core, (1, 1), now);
            let mut origin = origin(flow, now, false);
            if mapped.is_some() {
                if let Some(counts) = flow.entry.counts.get(self.core) {
                    counts.add(1, len, now);
                }
                end = Some(origin);
                continue;
            }
            if let Next::Over = step(flow, &mut self.world, &mut self.set, packet, &mut origin, out)
            {
                return;
            }
            end = Some(last(flow, &origin));
        }
        if let Some(table) = path.miss {
            count(&self.lookups, table, self.core, (1, 0), now);
            return out.because(Reason::Miss);
        }
        let Some(end) = end else { return };
        match mapped {
            Some(port) => {
                self.totals.mapped += 1;
                self.world.send(port, packet, &end, out);
            }
            None => self.world.act_set(&self.set, packet, &end, out),
        }
    }

    /// Sends a controller's frame, whose results are the first in `out`.
    pub(super) fn send(&mut self, message: &PacketOut, now: u64, out: &mut Effects) {
        // Groups may have changed since the last frame.
        self.world.refresh();
        out.begin();
        let buffer = self.world.buffer();
        let key = Arrival::by(message.in_port).key();
        let mut packet = Packet::new(&message.data, key, buffer);
        let reason = InReason::PacketOut;
        let mut origin =
            Origin { reason, table: 0xff, cookie: u64::MAX, now, queue: 0, owned: true };
        for action in &message.actions {
            if let Action::Output { port: reserved::TABLE, .. } = action {
                let mut path = std::mem::take(&mut self.path);
                let buffer = self.world.buffer();
                let mut branch = packet.branch(buffer);
                self.walk(&mut branch, now, true, None, &mut path, out);
                let buffer = branch.into_buffer();
                self.world.give_back(buffer);
                self.path = path;
            } else if let Err(fault) = self.world.act(action, &mut packet, &mut origin, out) {
                self.world.fault(fault, &packet, &origin, out);
                break;
            }
        }
        self.totals.over += u64::from(out.end());
        let buffer = packet.into_buffer();
        self.world.give_back(buffer);
    }
}

/// Counts the lookups of a table, and how many of them matched.
#[inline]
pub(super) fn count(
    lookups: &[Lookups],
    table: u8,
    core: usize,
    (frames, matched): (u64, u64),
    now: u64,
) {
    if let Some(counts) = lookups.get(usize::from(table)).and_then(|counts| counts.get(core)) {
        counts.add(frames, matched, now);
    }
}

fn origin(flow: &Flow, now: u64, owned: bool) -> Origin {
    let (table, cookie) = (flow.entry.table, flow.entry.cookie);
    Origin { reason: flow.reason, table, cookie, now, queue: 0, owned }
}

/// The origin of the action set.
fn last(flow: &Flow, origin: &Origin) -> Origin {
    let miss = flow.reason == InReason::NoMatch;
    let reason = if miss { InReason::NoMatch } else { InReason::ActionSet };
    Origin { reason, queue: 0, ..*origin }
}

/// Applies the instructions of a flow, in the order of section 5.9 of OpenFlow 1.3.5.
fn step(
    flow: &Flow,
    world: &mut World,
    set: &mut ActionSet,
    packet: &mut Packet<'_>,
    origin: &mut Origin,
    out: &mut Effects,
) -> Next {
    if let Some(counts) = flow.entry.counts.get(world.core) {
        counts.add(1, packet.bytes().len() as u64, origin.now);
    }
    let instructions = || flow.entry.instructions.iter();
    let mut next = Next::Done;
    for instruction in instructions() {
        if let Instruction::Meter(number) = instruction
            && !world.passes(*number, packet, origin.now)
        {
            out.because(Reason::Meter);
            return Next::Over;
        }
    }
    for instruction in instructions() {
        let Instruction::ApplyActions(list) = instruction else { continue };
        for action in list {
            if let Err(fault) = world.act(action, packet, origin, out) {
                world.fault(fault, packet, origin, out);
                return Next::Over;
            }
        }
    }
    if instructions().any(|one| *one == Instruction::ClearActions) {
        set.clear();
    }
    for instruction in instructions() {
        match instruction {
            Instruction::WriteActions(list) => list.iter().for_each(|action| set.write(action)),
            Instruction::WriteMetadata { value, mask } => packet.key.write_metadata(*value, *mask),
            Instruction::GotoTable(table) => next = Next::Table(*table),
            _ => {}
        }
    }
    if let Some(port) = set.output() {
        packet.key.set(Field::ActsetOutput, port.into());
    }
    next
}
