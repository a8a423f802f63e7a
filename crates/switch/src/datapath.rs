//! Datapath: a switch, as one core has it. From a frame to what becomes of it.
//!
//! ```text
//!   frame ── parse ──> key ── cache ──hit──────────────> the flows of the path, or a port
//!                               └─miss──> table ──goto──> table .. ──> action set
//!   change 1, 2, 3 .. ──> tables, groups, meters, ports; and the cache in the same breath
//! ```
//!
//! After [`Datapath::apply`] no frame meets what was before: there is no second table that has to
//! catch up. So when every core says that a change is in force ([`Datapath::in_force`]), it is.
//!
//! Invariants: a frame goes from a table to a higher one, so it ends; with a cache and without, frames
//! come to the same; in the steady state nothing is allocated for a frame, but for punts.
//! Thread-safety: one core's. Counters are shared as [`flowyard_openflow::change`] says, meters' buckets
//! by all cores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use flowyard_flow::table::l2::L2;
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Entry, Lookups};
use flowyard_openflow::flow::{FlowMod, InReason, PacketOut};
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Field, group, ofctl};

use crate::cache::{Cache, Fast, Path};
use crate::classify::{Classifier, Lookup};
use crate::effects::{Effects, Reason, Seen};
use crate::key::{Key, Pattern};
use crate::meter::Shared;
use crate::packet::Packet;
use crate::set::{ActionSet, reveals};
use crate::why::{Answer, Why};
use crate::world::{Origin, World};

/// What a switch is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tables, at most 255.
    pub tables: u8,
    /// How they look up.
    pub lookup: Lookup,
    /// Flows in front of the tables, for each core; 0 caches none.
    pub cache_entries: usize,
    /// Stations that `NORMAL` knows.
    pub stations: usize,
    /// How long it knows them, in nanoseconds.
    pub station_age: u64,
    /// Decides where entries stand: keep it from those who send frames.
    pub seed: u64,
    /// Of each table, the counters of lookups; may be shorter.
    pub lookups: Vec<Lookups>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tables: 255,
            lookup: Lookup::Merged,
            cache_entries: 8192,
            stations: 1024,
            station_age: 300_000_000_000,
            seed: 1,
            lookups: Vec::new(),
        }
    }
}

/// How a frame came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// `OXM_OF_IN_PORT`.
    pub port: u32,
    /// `OXM_OF_IN_PHY_PORT`.
    pub physical: u32,
    /// `OXM_OF_TUNNEL_ID`.
    pub tunnel: Option<u64>,
}

impl Arrival {
    /// By a physical port.
    #[must_use]
    pub const fn by(port: u32) -> Self {
        Self { port, physical: port, tunnel: None }
    }

    fn key(self) -> Key {
        let mut key = Key::ZERO;
        key.set(Field::InPort, self.port.into());
        key.set(Field::InPhyPort, self.physical.into());
        key.set(Field::Metadata, 0);
        if let Some(tunnel) = self.tunnel {
            key.set(Field::TunnelId, tunnel.into());
        }
        key
    }
}

/// A flow, with what is worked out of it.
#[derive(Debug)]
struct Flow {
    entry: Arc<Entry>,
    pattern: Pattern,
    /// The word to controllers: a table's lowest flow that matches all is its miss.
    reason: InReason,
    /// Frames and bytes that the cache answered.
    offloaded: (u64, u64),
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Frames.
    pub frames: u64,
    /// Of these, those that the cache knew.
    pub cached: u64,
    /// Of those, those that only took the port mapping.
    pub mapped: u64,
}

/// See the module's head.
#[derive(Debug)]
pub struct Datapath {
    core: usize,
    tables: Vec<Classifier>,
    lookups: Vec<Lookups>,
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    world: World,
    cache: Cache,
    set: ActionSet,
    path: Path,
    in_force: u64,
    /// What happened so far.
    pub totals: Totals,
}

/// Where a frame is, between two tables.
enum Next {
    Table(u8),
    /// The tables are done: the action set follows.
    Done,
    /// Nothing follows.
    Over,
}

impl Datapath {
    /// A switch without flows and ports on each of `cores` cores. They share the meters' rates.
    #[must_use]
    pub fn group(cores: usize, settings: &Settings) -> Vec<Self> {
        let shared: Shared = Arc::new(Mutex::new(HashMap::new()));
        (0..cores).map(|core| Self::one(core, settings, &shared)).collect()
    }

    fn one(core: usize, settings: &Settings, shared: &Shared) -> Self {
        let seed = settings.seed.wrapping_add(core as u64);
        let table = |number: u64| Classifier::new(settings.lookup, seed ^ number << 32);
        let stations = L2::new(settings.stations, settings.station_age, seed ^ 3);
        Self {
            core,
            tables: (0..u64::from(settings.tables)).map(table).collect(),
            lookups: settings.lookups.clone(),
            flows: Vec::new(),
            free: Vec::new(),
            // A flow takes the same bucket on every core.
            world: World::new(core, stations, Arc::clone(shared), settings.seed ^ 5),
            cache: Cache::new(settings.cache_entries, seed ^ 7),
            set: ActionSet::default(),
            path: Path::default(),
            in_force: 0,
            totals: Totals::default(),
        }
    }

    /// The last change that was applied.
    #[must_use]
    pub const fn in_force(&self) -> u64 {
        self.in_force
    }

    /// How many flows a table has, and how many tuples it looks up in.
    #[must_use]
    pub fn table(&self, table: u8) -> Option<(usize, usize)> {
        self.tables.get(usize::from(table)).map(|table| (table.len(), table.tuples()))
    }

    /// How many paths the cache knows.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.cache.paths()
    }

    /// Frames and bytes of a flow that the cache answered on this core; they are in its counters
    /// too.
    #[must_use]
    pub fn offloaded(&self, entry: &Entry) -> Option<(u64, u64)> {
        let number = self.number(entry)?;
        let (packets, bytes) = self.cache.hits(number);
        let flow = self.flow(number)?;
        Some((flow.offloaded.0 + packets, flow.offloaded.1 + bytes))
    }

    fn number(&self, entry: &Entry) -> Option<u32> {
        let pattern = Pattern::from(&entry.matching);
        self.tables.get(usize::from(entry.table))?.find(&pattern, entry.priority)
    }

    /// Another core has seen a station.
    pub fn hear(&mut self, seen: &Seen) {
        self.world.hear(seen);
    }

    /// Puts change `number` in force. Changes come in order. What a controller's frame comes to is
    /// added to `out`, on core 0 alone; its bytes are never [`crate::Bytes::Same`].
    pub fn apply(&mut self, number: u64, change: &Change, now: u64, out: &mut Effects) {
        match change {
            Change::Flow(entry) => self.add(entry),
            Change::FlowGone(entry) => self.remove(entry),
            Change::Group(group) => self.world.set_group(group),
            Change::GroupGone(number) => self.world.drop_group(*number),
            Change::Meter(meter) => {
                self.world.set_meter(meter, number);
                // Whether it remarks decides what may be cached.
                self.cache.clear();
            }
            Change::MeterGone(number) => self.world.drop_meter(*number),
            Change::Port(port) => self.world.set_port(port),
            Change::PortGone(number) => self.world.drop_port(*number),
            Change::Send(message) if self.core == 0 => self.send(message, now, out),
            Change::Send(_) => {}
        }
        for (flow, (packets, bytes)) in self.cache.retired() {
            if let Some(flow) = self.flows.get_mut(flow as usize).and_then(Option::as_mut) {
                flow.offloaded = (flow.offloaded.0 + packets, flow.offloaded.1 + bytes);
            }
        }
        self.in_force = number;
    }

    fn add(&mut self, entry: &Arc<Entry>) {
        let Some(table) = self.tables.get_mut(usize::from(entry.table)) else { return };
        let pattern = Pattern::from(&entry.matching);
        let miss = entry.priority == 0 && entry.matching.0.is_empty();
        let reason = if miss { InReason::NoMatch } else { InReason::Action };
        let flow = Some(Flow { entry: Arc::clone(entry), pattern, reason, offloaded: (0, 0) });
        let number = self.free.pop().unwrap_or(self.flows.len() as u32);
        if number as usize == self.flows.len() {
            self.flows.push(flow);
        } else {
            self.flows[number as usize] = flow;
        }
        if let Some(old) = table.insert(&pattern, entry.priority, number) {
            self.cache.gone(old);
            self.flows[old as usize] = None;
            self.free.push(old);
            return;
        }
        let flows = &self.flows;
        self.cache.rule(entry.table, &pattern, |other| {
            flows[other as usize].as_ref().is_none_or(|flow| {
                flow.entry.table == entry.table
                    && flow.entry.priority < entry.priority
                    && flow.pattern.overlaps(&pattern)
            })
        });
    }

    fn remove(&mut self, entry: &Entry) {
        let Some(number) = self.number(entry) else { return };
        let flow = &mut self.flows[number as usize];
        // Another one may have taken its place.
        if flow.as_ref().is_none_or(|flow| flow.entry.id != entry.id) {
            return;
        }
        if let (Some(flow), Some(table)) =
            (flow.take(), self.tables.get_mut(usize::from(entry.table)))
        {
            table.remove(&flow.pattern, entry.priority);
        }
        self.free.push(number);
        self.cache.gone(number);
    }

    /// What becomes of a frame that came at `now`. `out` is cleared first, but for its punts.
    pub fn process(&mut self, frame: &[u8], from: Arrival, now: u64, out: &mut Effects) {
        out.clear();
        self.totals.frames += 1;
        if !self.world.receives(from.port) {
            return out.because(Reason::NotReceived);
        }
        let room = self.world.room();
        let mut packet = Packet::new(frame, from.key(), room);
        if self.cache.is_on() {
            let spot = self.cache.spot(&packet.key);
            match self.cache.get(&packet.key, spot) {
                Some(hit) => {
                    self.totals.cached += 1;
                    self.replay(hit.path, hit.port, &mut packet, now, out);
                }
                None => {
                    let key = packet.key; // actions will change it
                    let mut path = std::mem::take(&mut self.path);
                    if self.walk(&mut packet, now, false, &mut path, out) && self.proves(&path) {
                        let port = self.mapping(&path);
                        let fast = port.and_then(|_| self.fast(&path));
                        self.cache.put(&key, spot, &path, port, fast);
                    }
                    self.path = path;
                }
            }
        } else {
            let mut path = std::mem::take(&mut self.path);
            self.walk(&mut packet, now, false, &mut path, out);
            self.path = path;
        }
        if out.sent.is_empty() {
            out.because(Reason::NoOutput);
        }
        let room = packet.into_room();
        self.world.give(room);
    }

    /// Through the tables. Whether the path was gone to its end.
    fn walk(
        &mut self,
        packet: &mut Packet<'_>,
        now: u64,
        owned: bool,
        path: &mut Path,
        out: &mut Effects,
    ) -> bool {
        path.flows.clear();
        path.miss = None;
        self.set.clear();
        let mut at = 0;
        loop {
            let Some(table) = self.tables.get(usize::from(at)) else { return false };
            let found = table.lookup(&packet.key);
            let flow = found.and_then(|number| self.flows[number as usize].as_ref());
            count(&self.lookups, at, self.core, flow.is_some(), now);
            let (Some(number), Some(flow)) = (found, flow) else {
                path.miss = Some(at);
                out.because(Reason::Miss);
                return true;
            };
            path.flows.push(number);
            let mut origin = origin(flow, now, owned);
            match step(flow, &mut self.world, &mut self.set, packet, &mut origin, out) {
                // A goto leads to a higher table, or nowhere: the agent sees to that, and so do we.
                Next::Table(to) if to > at => at = to,
                Next::Table(_) | Next::Over => return false,
                Next::Done => {
                    self.world.act_set(&self.set, packet, &last(flow, &origin), out);
                    return true;
                }
            }
        }
    }

    /// What the port mapping needs of a path of one flow.
    fn fast(&self, path: &Path) -> Option<Fast> {
        let [number] = path.flows[..] else { return None };
        let entry = &self.flow(number)?.entry;
        Some(Fast { table: entry.table, counts: Arc::clone(&entry.counts), hits: (0, 0) })
    }

    /// Goes a path again.
    fn replay(
        &mut self,
        path: u32,
        port: Option<u32>,
        packet: &mut Packet<'_>,
        now: u64,
        out: &mut Effects,
    ) {
        let len = packet.bytes().len() as u64;
        let mapped = port.filter(|port| u128::from(*port) != packet.key.bits(Field::InPort));
        if let (Some(port), Some(fast)) = (mapped, self.cache.fast(path)) {
            fast.hits = (fast.hits.0 + 1, fast.hits.1 + len);
            if let Some(counts) = fast.counts.get(self.core) {
                counts.add(1, len, now);
            }
            count(&self.lookups, fast.table, self.core, true, now);
            self.totals.mapped += 1;
            let (reason, table) = (InReason::Action, fast.table);
            let origin = Origin { reason, table, cookie: 0, now, queue: 0, owned: false };
            return self.world.send(port, packet, &origin, out);
        }
        let path = self.cache.path(path);
        self.set.clear();
        let mut end = None;
        for &number in &path.flows {
            let Some(flow) = self.flows.get_mut(number as usize).and_then(Option::as_mut) else {
                return;
            };
            flow.offloaded = (flow.offloaded.0 + 1, flow.offloaded.1 + len);
            count(&self.lookups, flow.entry.table, self.core, true, now);
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
            count(&self.lookups, table, self.core, false, now);
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

    fn flow(&self, number: u32) -> Option<&Flow> {
        self.flows.get(number as usize)?.as_ref()
    }

    /// Whether a key that went this path proves that all that agree with it do: no table but the
    /// first looks at what the key does not say.
    fn proves(&self, path: &Path) -> bool {
        let looked = path.flows.len() + usize::from(path.miss.is_some());
        let before = path.flows.iter().take(looked.saturating_sub(1));
        before.filter_map(|number| self.flow(*number)).all(|flow| self.hides(flow).is_none())
    }

    /// What of a flow changes fields as no key tells.
    fn hides<'a>(&self, flow: &'a Flow) -> Option<&'a Instruction> {
        flow.entry.instructions.iter().find(|instruction| match instruction {
            Instruction::ApplyActions(list) => list.iter().any(reveals),
            Instruction::Meter(number) => self.world.remarks(*number),
            _ => false,
        })
    }

    /// Why frames with these fields are, or are not, offloaded. They are looked up as they would be;
    /// nothing is counted or changed.
    #[must_use]
    pub fn why(&self, key: &Key) -> Why {
        let mut key = *key;
        if !key.has(Field::Metadata) {
            key.set(Field::Metadata, 0);
        }
        let (mut path, mut at, mut unknown) = (Path::default(), 0, None);
        while let Some(table) = self.tables.get(usize::from(at)) {
            let Some(number) = table.lookup(&key) else {
                path.miss = Some(at);
                break;
            };
            path.flows.push(number);
            let Some(flow) = self.flow(number) else { break };
            let mut next = None;
            for instruction in &flow.entry.instructions {
                match instruction {
                    Instruction::ApplyActions(list) => {
                        for action in list {
                            match action {
                                Action::SetField(oxm) if key.has(oxm.field) => {
                                    key.set(oxm.field, oxm.value);
                                }
                                Action::Output { .. }
                                | Action::Group(_)
                                | Action::SetField(_)
                                | Action::SetQueue(_)
                                | Action::DecNwTtl
                                | Action::SetNwTtl(_) => {}
                                _ => unknown = Some(()),
                            }
                        }
                    }
                    Instruction::WriteMetadata { value, mask } => {
                        let old = key.bits(Field::Metadata) as u64;
                        key.set(Field::Metadata, (old & !mask | value & mask).into());
                    }
                    Instruction::GotoTable(to) if *to > at => next = Some(*to),
                    _ => {}
                }
            }
            let Some(to) = next else { break };
            at = to;
            if unknown.is_some() {
                break;
            }
        }
        let open = unknown.is_some()
            && path
                .flows
                .last()
                .and_then(|n| self.flow(*n))
                .is_some_and(|flow| flow.entry.table < at);
        let looked = path.flows.len() + usize::from(path.miss.is_some() || open);
        let before = path.flows.iter().take(looked.saturating_sub(1));
        let hides = before.filter_map(|number| {
            let flow = self.flow(*number)?;
            Some((flow, self.hides(flow)?))
        });
        let answer = match (hides.into_iter().next(), self.mapping(&path)) {
            _ if !self.cache.is_on() => Answer::NoCache,
            (Some((flow, does)), _) => Answer::Unproven {
                table: flow.entry.table,
                priority: flow.entry.priority,
                does: Box::new(does.clone()),
            },
            (None, _) if open => Answer::Unknown { table: at },
            (None, Some(port)) => Answer::Mapped { port },
            (None, None) => Answer::Cached,
        };
        let word = |number: &u32| {
            let entry = &self.flow(*number)?.entry;
            Some((entry.table, entry.priority, entry.cookie))
        };
        let text = |number: &u32| {
            let entry = &self.flow(*number)?.entry;
            let flow = FlowMod {
                table: entry.table,
                priority: entry.priority,
                cookie: entry.cookie,
                out_port: reserved::ANY,
                out_group: group::ANY,
                matching: entry.matching.clone(),
                instructions: entry.instructions.clone(),
                ..FlowMod::default()
            };
            let offloaded = self.offloaded(entry).unwrap_or_default().0;
            Some((ofctl::flow_mod_text(&flow), offloaded))
        };
        Why {
            path: path.flows.iter().filter_map(word).collect(),
            flows: path.flows.iter().filter_map(text).collect(),
            miss: path.miss,
            answer,
        }
    }

    /// The port, if all that a path does is to put out to one.
    fn mapping(&self, path: &Path) -> Option<u32> {
        let mut port = None;
        for number in &path.flows {
            for instruction in &self.flow(*number)?.entry.instructions {
                match instruction {
                    Instruction::GotoTable(_) => {}
                    Instruction::WriteMetadata { .. } => {}
                    Instruction::ApplyActions(list) | Instruction::WriteActions(list) => {
                        for action in list {
                            match action {
                                Action::Output { port: to, .. }
                                    if port.is_none() && *to < reserved::MAX =>
                                {
                                    port = Some(*to);
                                }
                                _ => return None,
                            }
                        }
                    }
                    _ => return None,
                }
            }
        }
        port.filter(|_| path.miss.is_none())
    }

    /// A controller's frame.
    fn send(&mut self, message: &PacketOut, now: u64, out: &mut Effects) {
        let room = self.world.room();
        let key = Arrival::by(message.in_port).key();
        let mut packet = Packet::new(&message.data, key, room);
        let reason = InReason::PacketOut;
        let mut origin =
            Origin { reason, table: 0xff, cookie: u64::MAX, now, queue: 0, owned: true };
        for action in &message.actions {
            if let Action::Output { port: reserved::TABLE, .. } = action {
                let mut path = std::mem::take(&mut self.path);
                let room = self.world.room();
                let mut branch = packet.branch(room);
                self.walk(&mut branch, now, true, &mut path, out);
                let room = branch.into_room();
                self.world.give(room);
                self.path = path;
            } else if let Err(fault) = self.world.act(action, &mut packet, &mut origin, out) {
                self.world.fault(fault, &packet, &origin, out);
                break;
            }
        }
        let room = packet.into_room();
        self.world.give(room);
    }
}

fn count(lookups: &[Lookups], table: u8, core: usize, matched: bool, now: u64) {
    if let Some(counts) = lookups.get(usize::from(table)).and_then(|counts| counts.get(core)) {
        counts.add(1, matched.into(), now);
    }
}

fn origin(flow: &Flow, now: u64, owned: bool) -> Origin {
    let (table, cookie) = (flow.entry.table, flow.entry.cookie);
    Origin { reason: flow.reason, table, cookie, now, queue: 0, owned }
}

/// The same, for the action set.
fn last(flow: &Flow, origin: &Origin) -> Origin {
    let miss = flow.reason == InReason::NoMatch;
    let reason = if miss { InReason::NoMatch } else { InReason::ActionSet };
    Origin { reason, queue: 0, ..*origin }
}

/// What a flow does with a frame (1.3.5, section 5.9), in the order that is laid down there.
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
            Instruction::WriteMetadata { value, mask } => {
                let old = packet.key.bits(Field::Metadata) as u64;
                packet.key.set(Field::Metadata, (old & !mask | value & mask).into());
            }
            Instruction::GotoTable(table) => next = Next::Table(*table),
            _ => {}
        }
    }
    if let Some(port) = set.output() {
        packet.key.set(Field::ActsetOutput, port.into());
    }
    next
}

#[cfg(test)]
mod tests;
