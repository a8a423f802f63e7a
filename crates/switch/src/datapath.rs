//! Datapath: the data plane of a switch on one core. It processes frames and applies changes.
//!
//! ```text
//!   frames ─ parse ──> keys ─ cache ──hit──────────────> the flows of the path, or a port
//!                               └─miss──> table ──goto──> table .. ──> action set
//!   change 1, 2, 3 .. ──> tables, groups, meters, ports; and the cache in the same call
//! ```
//!
//! After [`Datapath::apply`] every frame is processed with the new state, because there is no second table
//! that is updated later. So a change is in force when every core reports it ([`Datapath::in_force`]).
//!
//! Invariants: the next table always has a higher number, so the walk ends; the cache does not change the
//! result for a frame; in the steady state a frame allocates memory only if it is punted.
//! Thread-safety: owned by one core. Counters are shared as [`flowyard_openflow::change`] says, and the
//! buckets of meters are shared by all cores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use flowyard_flow::Secret;
use flowyard_flow::table::l2::{Announced, L2};
use flowyard_openflow::Field;
use flowyard_openflow::change::{Change, Entry, Lookups, Place as Own};
use flowyard_openflow::flow::InReason;

use crate::cache::{Cache, Path};
use crate::classify::{Classifier, Lookup};
use crate::effects::{Effects, Seen};
use crate::key::{Key, Pattern, flat};
use crate::mapping::Mapping;
use crate::meter::Shared;
use crate::set::ActionSet;
use crate::unfinished::Traits;
use crate::world::World;

mod ahead;
mod front;
mod fronted;
mod noted;
mod path;
mod unfinished;
mod walk;

pub use ahead::AHEAD;
pub use front::Place;
pub use fronted::{MASK, Moved};
pub use unfinished::Preparation;

/// The settings of a switch.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tables, at most 255.
    pub tables: u8,
    /// The lookup of the tables.
    pub lookup: Lookup,
    /// Entries of each core's flow cache; with 0 there is no cache.
    pub cache_entries: usize,
    /// The greatest number of stations that `NORMAL` learns.
    pub stations: usize,
    /// The time after which a station is removed, in nanoseconds.
    pub station_age: u64,
    /// The secret of hashes that decide where entries are stored. Senders of frames must not know it.
    pub secret: Secret,
    /// The counters of lookups of each table; may be shorter than the list of tables.
    pub lookups: Vec<Lookups>,
    /// Whether frames may come that a port is to cut into segments.
    pub long_frames: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tables: 255,
            lookup: Lookup::Merged,
            cache_entries: 8192,
            stations: 1024,
            station_age: 300_000_000_000,
            secret: Secret::FIXED,
            lookups: Vec::new(),
            long_frames: false,
        }
    }
}

/// How a frame was received.
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
    /// Received from a physical port.
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

/// A flow, with data derived from it.
#[derive(Debug)]
struct Flow {
    entry: Arc<Entry>,
    pattern: Pattern,
    /// Of the flows that match, the one with the highest level answers: see [`level`].
    level: u32,
    /// The reason in messages to controllers. A flow of priority 0 that matches everything is its table's
    /// table-miss flow.
    reason: InReason,
    /// Frames and bytes of cache hits.
    offloaded: (u64, u64),
    traits: Traits,
}

/// Counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Frames.
    pub frames: u64,
    /// Frames that hit in the cache.
    pub cached: u64,
    /// Frames that hit in the cache and were only sent to a port.
    pub mapped: u64,
    /// Frames that were sent to a port before they entered a queue ([`Datapath::front`]); `mapped` includes them.
    pub front: u64,
    /// Of these, frames whose entry an adapter named by a mark, so that nothing was looked up.
    pub marked: u64,
    /// Frames, those of controllers included, that met more buckets of groups, or became more frames, than one
    /// frame may. They were dropped.
    pub over: u64,
}

/// See the module's head.
#[derive(Debug)]
pub struct Datapath {
    core: usize,
    tables: Vec<Classifier>,
    lookups: Vec<Lookups>,
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    /// The switch's own entries: below and above all others.
    own: [Option<Arc<Entry>>; 2],
    world: World,
    cache: Cache,
    mapping: Mapping,
    set: ActionSet,
    path: Path,
    ahead: ahead::Ahead,
    /// What is answered in front of the yard.
    fronted: Option<Box<fronted::Fronted>>,
    /// Whether data derived from the tables is up to date: see [`Datapath::ready`].
    is_ready: bool,
    /// The calls of [`Datapath::count_if_due`] since a frame was noted, when that was, and when noted frames were counted.
    quiet: u32,
    noted_at: u64,
    counted: u64,
    /// Whether a lookup in the tables is cheap.
    is_light: bool,
    splits: unfinished::Splits,
    in_force: u64,
    /// The counters since the start.
    pub totals: Totals,
}

impl Datapath {
    /// Data planes for `cores` cores, without flows and ports. They share the rates of meters.
    #[must_use]
    pub fn group(cores: usize, settings: &Settings) -> Vec<Self> {
        let shared: Shared = Arc::new(Mutex::new(HashMap::new()));
        (0..cores).map(|core| Self::one(core, settings, &shared)).collect()
    }

    fn one(core: usize, settings: &Settings, shared: &Shared) -> Self {
        let of_core = |name| settings.secret.key(name).wrapping_add(core as u64);
        let seed = of_core("flow tables");
        let table = |number: u64| Classifier::new(settings.lookup, seed ^ number << 32);
        let seed = of_core("stations") ^ 3;
        let (most, age) = (settings.stations, settings.station_age);
        let stations = (L2::new(most, age, seed), Announced::new(most, age, seed));
        // The same seed on every core, so that a flow has the same bucket on all of them.
        let select = settings.secret.key("select groups") ^ 5;
        Self {
            core,
            tables: (0..u64::from(settings.tables)).map(table).collect(),
            lookups: settings.lookups.clone(),
            flows: Vec::new(),
            free: Vec::new(),
            own: [None, None],
            world: World::new(core, stations, Arc::clone(shared), select),
            cache: Cache::new(settings.cache_entries, of_core("flow cache") ^ 7),
            mapping: Mapping::new(settings.cache_entries, of_core("port mapping") ^ 11),
            set: ActionSet::default(),
            path: Path::default(),
            ahead: ahead::Ahead::default(),
            fronted: None,
            is_ready: false,
            quiet: 0,
            noted_at: 0,
            counted: 0,
            is_light: false,
            splits: unfinished::Splits::new(settings.long_frames),
            in_force: 0,
            totals: Totals::default(),
        }
    }

    /// The last change that was applied.
    #[must_use]
    pub const fn in_force(&self) -> u64 {
        self.in_force
    }

    /// Number of flows and of tuples of a table.
    #[must_use]
    pub fn table(&self, table: u8) -> Option<(usize, usize)> {
        self.tables.get(usize::from(table)).map(|table| (table.len(), table.tuples()))
    }

    /// Number of paths in the cache.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.cache.paths()
    }

    /// Frames and bytes of a flow that hit in the cache of this core. The flow's counters include them.
    #[must_use]
    pub fn offloaded(&self, entry: &Entry) -> Option<(u64, u64)> {
        self.hits(self.number(entry, level(entry))?)
    }

    fn hits(&self, number: u32) -> Option<(u64, u64)> {
        let (hits, noted) = (self.cache.hits(number), self.noted(number));
        let flow = self.flow(number)?;
        let sum =
            |part: fn(&(u64, u64)) -> u64| [flow.offloaded, hits, noted].iter().map(part).sum();
        Some((sum(|of| of.0), sum(|of| of.1)))
    }

    fn number(&self, entry: &Entry, level: u32) -> Option<u32> {
        let pattern = Pattern::from(&entry.matching);
        self.tables.get(usize::from(entry.table))?.find(&pattern, level)
    }

    /// Learns a station that another core has seen.
    pub fn hear(&mut self, seen: &Seen) {
        self.world.hear(seen);
    }

    /// Notes that a station of [`Effects::seen`] did not reach all cores. It will be announced again soon.
    pub fn not_heard(&mut self, seen: &Seen) {
        self.world.not_heard(seen);
    }

    /// Applies change `number`. Changes are applied in order. A controller's frame is processed on core 0
    /// only, and added to `out`; its bytes are never [`crate::Bytes::Same`].
    pub fn apply(&mut self, number: u64, change: &Change, now: u64, out: &mut Effects) {
        self.ahead.holds = false;
        self.is_ready = false;
        self.count_noted();
        match change {
            Change::Flow(entry) => self.add(entry, level(entry)),
            Change::FlowGone(entry) => self.remove(entry, level(entry)),
            Change::Own(place, entry) => self.set_own(*place, entry.as_ref()),
            Change::Group(group) => self.world.set_group(group),
            Change::GroupGone(number) => self.world.drop_group(*number),
            Change::Meter(meter) => {
                self.world.set_meter(meter, number);
                // Which paths may be cached depends on whether the meter changes fields.
                self.cache.clear();
            }
            Change::MeterGone(number) => self.world.drop_meter(*number),
            Change::Port(port) => {
                self.world.set_port(port);
                self.mapping.clear();
            }
            Change::PortGone(number) => {
                self.world.drop_port(*number);
                self.mapping.clear();
            }
            Change::Send(message) if self.core == 0 => self.send(message, now, out),
            Change::Send(_) => {}
        }
        for (flow, (packets, bytes)) in self.cache.retired() {
            if let Some(flow) = self.flows.get_mut(flow as usize).and_then(Option::as_mut) {
                flow.offloaded = (flow.offloaded.0 + packets, flow.offloaded.1 + bytes);
            }
        }
        let has_wrapped = std::mem::take(&mut self.cache.wrapped);
        if has_wrapped {
            self.mapping.clear();
        }
        let is_port = matches!(change, Change::Port(_) | Change::PortGone(_));
        self.fronted_changed(has_wrapped || is_port, now);
        self.mapping.resume();
        self.in_force = number;
    }

    fn set_own(&mut self, place: Own, entry: Option<&Arc<Entry>>) {
        let (at, level) = match place {
            Own::Below => (0, BELOW),
            Own::Above => (1, ABOVE),
        };
        if let Some(old) = std::mem::replace(&mut self.own[at], entry.cloned()) {
            self.remove(&old, level);
        }
        if let Some(entry) = entry {
            self.add(entry, level);
        }
    }

    fn add(&mut self, entry: &Arc<Entry>, level: u32) {
        let Some(table) = self.tables.get_mut(usize::from(entry.table)) else { return };
        let pattern = Pattern::from(&entry.matching);
        let miss = entry.priority == 0 && entry.matching.0.is_empty();
        let reason = if miss { InReason::NoMatch } else { InReason::Action };
        let (own, offloaded) = (Arc::clone(entry), (0, 0));
        let traits = Traits::of(&entry.instructions);
        self.splits.add(&pattern, traits);
        let flow = Some(Flow { entry: own, pattern, level, reason, offloaded, traits });
        let number = self.free.pop().unwrap_or(self.flows.len() as u32);
        if number as usize == self.flows.len() {
            self.flows.push(flow);
        } else {
            self.flows[number as usize] = flow;
        }
        if let Some(old) = table.insert(&pattern, level, number) {
            self.cache.gone(old);
            if let Some(old) = self.flows[old as usize].take() {
                self.splits.remove(old.traits);
            }
            self.free.push(old);
            return;
        }
        let flows = &self.flows;
        self.cache.rule(entry.table, &pattern, |other| {
            flows[other as usize].as_ref().is_none_or(|flow| {
                let is_lower = flow.entry.table == entry.table && flow.level < level;
                is_lower && flow.pattern.overlaps(&pattern)
            })
        });
    }

    fn remove(&mut self, entry: &Entry, level: u32) {
        let Some(number) = self.number(entry, level) else { return };
        let flow = &mut self.flows[number as usize];
        // Another flow may have replaced it.
        if flow.as_ref().is_none_or(|flow| flow.entry.id != entry.id) {
            return;
        }
        if let (Some(flow), Some(table)) =
            (flow.take(), self.tables.get_mut(usize::from(entry.table)))
        {
            table.remove(&flow.pattern, level);
            self.splits.remove(flow.traits);
        }
        self.free.push(number);
        self.cache.gone(number);
    }

    fn flow(&self, number: u32) -> Option<&Flow> {
        self.flows.get(number as usize)?.as_ref()
    }

    /// Updates the data derived from the tables, and removes what the changes end from the front. Called after changes,
    /// so that the next frame does not have to wait for it, and before they are reported as being in force.
    pub fn ready(&mut self) {
        self.is_ready = true;
        self.world.refresh();
        self.cache.reserve(self.flows.len());
        self.mapping.set_mask(&flat(self.cache.mask()));
        // If there are few tuples and the rules fit into a core's own cache, an entry in front of them pays only as
        // long as it is in that cache as well.
        let sums = self.tables.iter().map(|table| (table.tuples(), table.len()));
        let (tuples, rules) = sums.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        self.is_light = tuples <= LIGHT_TUPLES && rules <= LIGHT_RULES;
        self.end_fronted();
    }
}

/// The levels of the switch's own entries.
const BELOW: u32 = 0;
const ABOVE: u32 = 1 << 17;

/// The level of a flow: of the flows that match, the one with the highest level answers. It is the priority, above
/// [`BELOW`]. In OpenFlow 1.0, flows without wildcards are above all others (1.0.0, section 3.4): they have the
/// highest priority, and here they also win against flows with wildcards of that priority.
fn level(entry: &Entry) -> u32 {
    let is_exact = entry.priority == u16::MAX && entry.matching.is_exact_in_v10();
    1 + u32::from(entry.priority) + u32::from(is_exact)
}

/// The greatest numbers of tuples and rules of tables in which a lookup is cheap.
const LIGHT_TUPLES: usize = 4;
const LIGHT_RULES: usize = 4096;
/// The greatest number of entries in front of such tables: about as many as the second-level cache of a core holds.
const HOT: usize = 16_384;

#[cfg(test)]
mod tests;
