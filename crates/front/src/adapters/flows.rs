//! Flows that a work offers: they get numbers at once, and rules when the thread that runs the engine comes to it.
//!
//! ```text
//!  core: put ──> number, request ──> tick: rule with the mark of the number ──> frames come with the mark
//!  core: remove ──> request ──> tick: the rule is removed;  free ──> the number is used again
//! ```
//!
//! Invariants: at most [`WAITING`] requests wait, and then flows are refused, but never removals.
//! Thread-safety: as of [`Adapters`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::DerefMut;

use flowyard_dpdk::rules::{Offer, Place, Rule};
use flowyard_flow::table::marked;
use flowyard_frame::{FlowKey, Nanos};
use flowyard_yard::front::{Change, Entry, Front, Seen};

use super::pattern::{overlap, pattern};
use super::{Adapter, Adapters, Ask, Hardware};

/// Requests that wait at most.
const WAITING: usize = 8192;
/// Requests that are carried out in one tick.
const AT_ONCE: usize = 1024;
/// Reasons that are counted apart.
const REASONS: usize = 32;

/// What became of a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Fate {
    #[default]
    None,
    Waits(u16),
    Marked(u16),
    Refused(String),
    Removed(u16),
}

enum Request {
    Put { number: u32, port: u16, key: Box<FlowKey>, pattern: Box<Rule> },
    Remove { number: u32, port: u16 },
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Put { number, port, .. } => write!(f, "Put({number}, {port})"),
            Self::Remove { number, port } => write!(f, "Remove({number}, {port})"),
        }
    }
}

/// The flows of all works.
#[derive(Debug)]
pub(super) struct Flows {
    most: u32,
    /// Ports with an adapter that marks frames.
    ports: Vec<u16>,
    fates: Vec<Fate>,
    free: VecDeque<u32>,
    requests: VecDeque<Request>,
    refused: BTreeMap<String, u64>,
}

impl Flows {
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            ports: Vec::new(),
            fates: Vec::new(),
            free: VecDeque::new(),
            requests: VecDeque::new(),
            refused: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, port: u16) {
        self.ports.push(port);
    }

    pub(super) fn waiting(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn refused(&self) -> Vec<(String, u64)> {
        self.refused.iter().map(|(why, count)| (why.clone(), *count)).collect()
    }

    fn refuse(&mut self, why: &str) {
        let why = if self.refused.len() < REASONS || self.refused.contains_key(why) {
            why
        } else {
            "other reasons"
        };
        *self.refused.entry(why.to_owned()).or_default() += 1;
    }

    /// The pattern of a flow.
    ///
    /// # Errors
    /// Why there is none.
    fn pattern(&self, entry: &Entry) -> Result<Rule, String> {
        let port = entry.key.in_port;
        if !self.ports.contains(&port) {
            return Err("the port that receives it has no adapter that marks frames".into());
        }
        if entry.change != Change::None || entry.macs.is_some() || entry.hop {
            return Err("rules of adapters change no frames".into());
        }
        let found = pattern(&entry.key.flow(), &FlowKey::FLOW, port)?;
        found.ok_or_else(|| "the port receives none of its frames".into())
    }

    fn put(&mut self, entry: &Entry) -> Result<u32, String> {
        let pattern = self.pattern(entry)?;
        if self.requests.len() >= WAITING {
            return Err("too many flows wait for the adapters".into());
        }
        let number = match self.free.pop_front() {
            Some(number) => number,
            None if self.fates.len() < self.most as usize => {
                self.fates.push(Fate::None);
                self.fates.len() as u32 - 1
            }
            None => {
                return Err("there are as many flows in the adapters as [offload] allows".into());
            }
        };
        let (port, key) = (entry.key.in_port, Box::new(entry.key.flow()));
        self.set(number, Fate::Waits(port));
        self.requests.push_back(Request::Put { number, port, key, pattern: Box::new(pattern) });
        Ok(number)
    }

    fn set(&mut self, number: u32, fate: Fate) {
        if let Some(place) = self.fates.get_mut(number as usize) {
            *place = fate;
        }
    }

    fn fate(&self, number: u32) -> &Fate {
        self.fates.get(number as usize).unwrap_or(&Fate::None)
    }
}

/// Carries out requests. The lock on the flows is not held while a device is called.
pub(super) fn carry_out<F: DerefMut<Target = Flows>>(
    hardware: &mut Hardware,
    lock: &dyn Fn() -> F,
) {
    for _ in 0..AT_ONCE {
        let Some(request) = lock().requests.pop_front() else { return };
        match request {
            Request::Put { number, port, key, pattern } => {
                let is_wanted = *lock().fate(number) == Fate::Waits(port);
                let adapter = hardware.ports.get_mut(&port).filter(|_| is_wanted);
                let Some(adapter) = adapter else { continue };
                let done = adapter.mark(number, &key, &pattern);
                let mut flows = lock();
                if let Err(why) = &done {
                    flows.refuse(why);
                }
                // It may have been removed meanwhile; then its request to remove it comes.
                if *flows.fate(number) == Fate::Waits(port) {
                    flows.set(number, done.map_or_else(Fate::Refused, |()| Fate::Marked(port)));
                }
            }
            Request::Remove { number, port } => {
                if let Some(adapter) = hardware.ports.get_mut(&port)
                    && let Some(rule) = adapter.flows.remove(&number)
                {
                    adapter.remove(rule);
                }
            }
        }
    }
}

impl Adapter {
    /// Makes a rule that marks the frames of a flow.
    fn mark(&mut self, number: u32, key: &FlowKey, pattern: &Rule) -> Result<(), String> {
        let mark = marked::of_flow(number).ok_or("there are no more marks")?;
        let flow = (key, &FlowKey::FLOW);
        if self.queues.iter().any(|(key, mask, _)| overlap(flow, (key, mask))) {
            return Err("a rule of the start gives its frames to a queue, and stays".into());
        }
        let offer = Offer { place: Place::Usual, mark: Some(mark), count: false };
        let (_, rule) = self.put(pattern, &[(Ask::Mark { queue: false }, offer)])?;
        self.flows.insert(number, rule);
        Ok(())
    }
}

impl Front for Adapters {
    fn reaches(&self, port: u16) -> bool {
        self.flow_lock().ports.contains(&port)
    }

    fn takes(&self, from: u16, _to: u16) -> bool {
        self.reaches(from) // the yard sends the frames
    }

    fn put(&self, entries: &[Entry], _now: Nanos) -> Option<u32> {
        let [entry] = entries else { return None };
        let mut flows = self.flow_lock();
        let put = flows.put(entry);
        put.inspect_err(|why| flows.refuse(why)).ok()
    }

    fn remove(&self, flow: u32) {
        let mut flows = self.flow_lock();
        if let Fate::Waits(port) | Fate::Marked(port) = *flows.fate(flow) {
            flows.set(flow, Fate::Removed(port));
            flows.requests.push_back(Request::Remove { number: flow, port });
        }
    }

    /// Frames with marks pass through the yard, which counts them.
    fn seen(&self, _flow: u32, _entry: usize) -> Seen {
        Seen::default()
    }

    fn settle(&self) {}

    fn free(&self, flow: u32) {
        let mut flows = self.flow_lock();
        if *flows.fate(flow) != Fate::None {
            flows.set(flow, Fate::None);
            flows.free.push_back(flow);
        }
    }

    fn passed(&self, _port: u16, _core: u16) -> Option<u64> {
        None
    }

    fn time(&self) -> u64 {
        0
    }

    fn drained(&self, _time: u64) {}

    fn answers(&self) -> bool {
        false
    }

    fn state(&self, flow: u32) -> String {
        match self.flow_lock().fate(flow) {
            Fate::Marked(_) => {
                "the adapter marks its frames, so the port mapping is not looked up".into()
            }
            Fate::Waits(_) => "it waits to be offered to the adapter".into(),
            Fate::Refused(why) => format!("it is not in the adapter: {why}"),
            Fate::None | Fate::Removed(_) => "it is not in the adapter any more".into(),
        }
    }

    fn why_not(&self, entry: &Entry) -> Option<String> {
        let flows = self.flow_lock();
        let why = flows.pattern(entry).err();
        why.or_else(|| {
            (flows.fates.len() >= flows.most as usize && flows.free.is_empty())
                .then(|| "there are as many flows in the adapters as [offload] allows".into())
        })
    }
}
