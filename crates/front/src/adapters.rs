//! Rules in the adapters of ports (rte_flow): what the yard offers, what an adapter took, and why it refused the rest.
//!
//! ```text
//!  [steer] exact, rule ──offer──┐                      ┌─ drops its frames, and counts them
//!  flows, connections, split ──put───> rules of a port ┼─ marks its frames ──> the yard looks nothing up (Marked)
//!                               └─ refused: in software, ├─ gives its frames to the queue of a core
//!                                  with the reason       └─ sends its frames out by another port
//! ```
//!
//! *What is offered.* An entry of the user is offered if no entry in front of it could match one of its frames: then
//! every frame that matches the rule gets the entry's answer, also from an adapter that matches fewer frames than the key
//! does. Frames of an entry that drops are dropped by the adapter, if it can and no counter of the user counts them;
//! frames of an entry that names a port of the same embedded switch are sent out by the adapter, under the same condition;
//! frames of the others are marked.
//!
//! Works and the elephant detector put flows: those of the port mapping of a switch, the connections of a balancer, and flows
//! that are split over cores. Their frames are marked.
//!
//! *Order.* A mark changes no frame's way: it enters the queue that the tables would have named, through settle. A rule
//! that gives frames to another receive queue moves them to another core, which would let them overtake those that the
//! first core has. So such rules are made at the start only, before the yard receives, and stay to the end. Rules that
//! send frames out are made at the start, too, and removed when their entry changes.
//!
//! *Changes.* When the user's entries change, their rules are removed first. Then the tables change, with a new
//! generation of marks, and then rules for the new entries are offered. A mark of an earlier generation is ignored.
//!
//! Invariants: what an adapter drops or sends out, the tables would have dropped or sent out by the same port. A refused rule changes nothing but counters.
//! Thread-safety: shared by all threads. Cores put and remove flows under a lock that is held for a moment; devices are
//! called by the thread that runs the engine ([`ControlPlane::tick`]) under another one.

mod flows;
mod forwards;
mod pattern;
#[cfg(test)]
mod tests;
mod users;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowyard_dpdk::rules::{self as learnt, Capabilities, Device, Hits, Match, Offer};
use flowyard_dpdk::rules::{Refused, Rule, RuleId};
use flowyard_flow::table;
use flowyard_frame::{Action, FlowKey, Nanos};
use flowyard_yard::ControlPlane;

use flows::Flows;
use forwards::{Forwards, SwitchPorts};
use pattern::Shape;
pub use users::Prepared;

/// The user's entries, in the order of the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Users {
    /// Exact entries.
    pub exact: Vec<(FlowKey, Action)>,
    /// Rules.
    pub rules: Vec<table::Rule>,
}

/// The adapters of a yard.
#[derive(Debug)]
pub struct Adapters {
    hardware: Mutex<Hardware>,
    flows: Mutex<Flows>,
}

#[derive(Debug, Default)]
struct Hardware {
    ports: BTreeMap<u16, Adapter>,
    /// The generation of the user's marks; 0 before the first.
    generation: u8,
    /// When counters were read last.
    looked: Nanos,
}

/// The adapter of a port.
struct Adapter {
    name: String,
    device: Box<dyn Device + Send>,
    /// The core of each receive queue.
    cores: Vec<u16>,
    capabilities: Capabilities,
    /// What it refused whatever the values were.
    refuses: BTreeMap<(Shape, Ask), Refused>,
    /// The user's entries, exact ones first.
    users: Vec<Placed>,
    /// Rules that give frames to a queue, which stay to the end.
    queues: Vec<(FlowKey, FlowKey, RuleId)>,
    /// Rules that send frames out by another port.
    forwards: Forwards,
    /// Whether it may send frames out: not if the yard drops some of the port's frames by itself.
    may_forward: bool,
    /// Rules of flows, by number.
    flows: BTreeMap<u32, RuleId>,
    /// Rules that it refused one after the other; while it is likely to be full, few are offered.
    strikes: u32,
    /// Frames that rules dropped which are gone.
    dropped_before: u64,
    /// Frames that rules sent out which are gone.
    forwarded_before: u64,
    /// The first entry whose counter is read next.
    next_count: usize,
}

/// What a rule asks for, without values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Ask {
    Drop { count: bool },
    Forward { count: bool },
    Mark { queue: bool },
    Queue,
}

/// An entry of the user, and where its answer comes from.
#[derive(Clone, Debug)]
struct Placed {
    what: String,
    flow: String,
    state: State,
    rule: Option<RuleId>,
    hits: Option<Hits>,
}

/// What an adapter does for an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// It drops the frames.
    Drops,
    /// It sends the frames out by the port of this name.
    Forwards(String),
    /// It marks the frames.
    Marks,
    /// It gives the frames to the queue of this core, and marks them, or not.
    Queue {
        /// The core.
        core: u16,
        /// Whether it also marks them.
        marks: bool,
    },
    /// Nothing, for this reason: the answer comes from the tables.
    Software(String),
}

impl State {
    /// Whether the frames do not reach the yard.
    const fn is_final(&self) -> bool {
        matches!(self, Self::Drops | Self::Forwards(_))
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drops => f.write_str("the adapter drops its frames"),
            Self::Forwards(port) => write!(f, "the adapter sends its frames out by port '{port}'"),
            Self::Marks => f.write_str("the adapter marks its frames"),
            Self::Queue { core, marks: true } => {
                write!(f, "the adapter marks its frames and gives them to core {core}")
            }
            Self::Queue { core, marks: false } => {
                write!(f, "the adapter gives its frames to core {core}; the tables are looked up")
            }
            Self::Software(why) => write!(f, "in software: {why}"),
        }
    }
}

/// The state of an entry, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryState {
    /// Which entry it is.
    pub what: String,
    /// What it matches.
    pub flow: String,
    /// Where its answer comes from.
    pub state: State,
    /// The frames that the adapter counted for it, if it counts.
    pub frames: Option<u64>,
}

/// The state of an adapter, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterState {
    /// The port's name.
    pub port: String,
    /// What it accepts: kinds of matches and of actions, with the reason for which it refuses one.
    pub accepts: Vec<(String, String, Option<String>)>,
    /// The user's entries.
    pub entries: Vec<EntryState>,
    /// Frames that it dropped and counted, for entries that are or were in it.
    pub dropped: u64,
    /// Frames that it sent out by other ports and counted, for entries that are or were in it.
    pub forwarded: u64,
    /// Flows that it marks: each direction of a connection is one.
    pub flows: usize,
}

/// The state of all adapters, for display.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllStates {
    /// Each adapter.
    pub ports: Vec<AdapterState>,
    /// Requests that wait: flows to be offered, and rules to be removed.
    pub waiting: usize,
    /// Refusals of flows since the start, by reason. A flow that is refused again counts again.
    pub refused: Vec<(String, u64)>,
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").field("name", &self.name).finish_non_exhaustive()
    }
}

/// After this number of refusals one after the other, one of as many rules is offered.
const STRIKES: u32 = 32;
/// The time between two looks at counters, and how many are read in one.
const LOOK_EVERY: Nanos = 1_000_000_000;
const LOOKS: usize = 256;

impl Adapter {
    /// Puts a rule into the adapter, with the first of `asks` that it accepts.
    ///
    /// # Errors
    /// Why it accepts none: the reason for the last one.
    fn put(&mut self, pattern: &Rule, asks: &[(Ask, Offer)]) -> Result<(Ask, RuleId), String> {
        let shape = Shape::of(pattern);
        let mut why = String::from("there is nothing that an adapter could do for it");
        for (ask, offer) in asks {
            if let Some(refused) = self.refuses.get(&(shape, *ask)) {
                why.clone_from(&refused.0);
                continue;
            }
            let rule = Rule { offer: *offer, ..pattern.clone() };
            if let Err(refused) = self.device.validate(&rule) {
                why.clone_from(&refused.0);
                // A refusal to send frames out may be that of one port.
                if !matches!(ask, Ask::Forward { .. }) {
                    self.refuses.insert((shape, *ask), refused);
                }
                continue;
            }
            self.strikes += 1;
            if self.strikes > STRIKES && !self.strikes.is_multiple_of(STRIKES) {
                return Err("the adapter refused the last rules; it may be full".into());
            }
            match self.device.create(&rule) {
                Ok(id) => {
                    self.strikes = 0;
                    return Ok((*ask, id));
                }
                Err(refused) => why = refused.0,
            }
        }
        Err(why)
    }

    /// Removes a rule.
    fn remove(&mut self, rule: RuleId) {
        // Of a device that fails, nothing else can be done; it reports its removal itself.
        let _ = self.device.destroy(rule);
        self.strikes = 0;
    }
}

impl Adapters {
    /// Without adapters. At most `flows` flows of works are in them at a time.
    #[must_use]
    pub fn new(flows: u32) -> Self {
        Self { hardware: Mutex::default(), flows: Mutex::new(Flows::new(flows)) }
    }

    /// Adds the adapter of port `port`, whose receive queues are those of `cores`. It learns what the device accepts.
    pub fn add(&self, port: u16, name: &str, mut device: Box<dyn Device + Send>, cores: &[u16]) {
        let capabilities = Capabilities::learn(&mut *device);
        let adapter = Adapter {
            name: name.into(),
            device,
            cores: cores.into(),
            capabilities,
            refuses: BTreeMap::new(),
            users: Vec::new(),
            queues: Vec::new(),
            forwards: Forwards::default(),
            may_forward: true,
            flows: BTreeMap::new(),
            strikes: 0,
            dropped_before: 0,
            forwarded_before: 0,
            next_count: 0,
        };
        let marks = |of| adapter.capabilities.of(of, learnt::Ask::Mark).is_ok();
        if marks(Match::Udp) || marks(Match::Tcp) {
            self.flow_lock().add(port);
        }
        self.lock().ports.insert(port, adapter);
    }

    /// The adapter of port `port` must not send frames out, because the yard drops some of them by itself, such as those with
    /// a wrong checksum.
    pub fn forbid_forwarding(&self, port: u16) {
        if let Some(adapter) = self.lock().ports.get_mut(&port) {
            adapter.may_forward = false;
        }
    }

    /// Whether there is an adapter.
    #[must_use]
    pub fn has_any(&self) -> bool {
        !self.lock().ports.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Hardware> {
        self.hardware.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flow_lock(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of all adapters.
    #[must_use]
    pub fn states(&self) -> AllStates {
        let ports = self.lock().ports.values().map(Adapter::state).collect();
        let flows = self.flow_lock();
        AllStates { ports, waiting: flows.waiting(), refused: flows.refused() }
    }

    /// Carries out what was asked for, and reads some counters.
    fn work(&self, now: Nanos) {
        let mut hardware = self.lock();
        flows::carry_out(&mut hardware, &|| self.flow_lock());
        if now.saturating_sub(hardware.looked) < LOOK_EVERY && hardware.looked != 0 {
            return;
        }
        hardware.looked = now.max(1);
        hardware.remove_forwards_to_closed_ports();
        hardware.ports.values_mut().for_each(|adapter| adapter.count(LOOKS));
    }
}

impl Hardware {
    /// The ports that are in embedded switches.
    fn switch_ports(&self) -> SwitchPorts {
        let ports = self.ports.iter();
        let in_switch = ports.filter_map(|(number, adapter)| {
            Some((*number, (adapter.name.clone(), adapter.device.switch_port()?)))
        });
        in_switch.collect()
    }

    /// Removes the rules that send frames out by a port that was closed.
    fn remove_forwards_to_closed_ports(&mut self) {
        if self.ports.values().all(|adapter| adapter.forwards.is_empty()) {
            return;
        }
        let ports = self.switch_ports();
        for adapter in self.ports.values_mut() {
            for rule in adapter.forwards.keep_ports(&ports) {
                if let Some(at) = adapter.users.iter().position(|one| one.rule == Some(rule)) {
                    adapter.take_out(at, "the port that the entry names was closed");
                }
            }
        }
    }
}

impl Adapter {
    /// Removes the rule of an entry, if it has one, and adds what it counted to the sums.
    fn take_out(&mut self, at: usize, why: &str) {
        let one = &mut self.users[at];
        let before = match std::mem::replace(&mut one.state, State::Software(why.into())) {
            State::Forwards(_) => &mut self.forwarded_before,
            _ => &mut self.dropped_before,
        };
        let Some(rule) = one.rule.take() else { return };
        let frames = one.hits.take().and_then(|hits| hits.frames).unwrap_or_default();
        let last = self.device.query(rule).ok().and_then(|hits| hits.frames);
        *before += last.unwrap_or(frames);
        self.remove(rule);
    }

    /// Reads the counters of at most `most` rules.
    fn count(&mut self, most: usize) {
        let Self { users, device, next_count, .. } = self;
        let counted: Vec<usize> =
            (0..users.len()).filter(|at| users[*at].state.is_final()).collect();
        // Begin behind the last one that was read, so that each has its turn.
        let start = counted.iter().position(|at| at >= next_count).unwrap_or(0);
        for at in counted.iter().cycle().skip(start).take(most.min(counted.len())) {
            let one = &mut users[*at];
            if let Some(rule) = one.rule {
                one.hits = device.query(rule).ok().or(one.hits);
            }
            *next_count = at + 1;
        }
    }

    fn state(&self) -> AdapterState {
        let entry = |one: &Placed| EntryState {
            what: one.what.clone(),
            flow: one.flow.clone(),
            state: one.state.clone(),
            frames: one.hits.and_then(|hits| hits.frames),
        };
        let accepts = self.capabilities.table().iter().map(|(of, ask, verdict)| {
            let why = verdict.as_ref().err().map(ToString::to_string);
            (format!("{of:?}"), format!("{ask:?}"), why)
        });
        let frames = |drops: bool| {
            let of = self.users.iter().filter(move |one| drops == (one.state == State::Drops));
            of.filter_map(|one| one.hits?.frames).sum::<u64>()
        };
        AdapterState {
            port: self.name.clone(),
            accepts: accepts.collect(),
            entries: self.users.iter().map(entry).collect(),
            dropped: self.dropped_before + frames(true),
            forwarded: self.forwarded_before + frames(false),
            flows: self.flows.len(),
        }
    }
}

impl ControlPlane for Adapters {
    fn tick(&self, now: Nanos) {
        self.work(now);
    }
}
