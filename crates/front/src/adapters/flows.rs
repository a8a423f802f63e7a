//! Flows that a work offers: they get numbers at once, and rules when the thread that runs the engine comes to it.
//!
//! ```text
//!  core: put ──> number, request ──> tick: rule with the mark of the number ──> frames come with the mark
//!  core: remove ──> request ──> tick: the rule is removed;  free ──> the number is used again
//! ```
//!
//! Cores that put the same key share a number, and with it a rule: it is removed with the last of them. An adapter that got
//! two rules for a flow could refuse the second one.
//!
//! Invariants: at most [`WAITING`] requests wait, and then flows are refused, but never removals. Flows that an adapter has
//! refused take no capacity from others, up to as many as fit into the adapters.
//! Thread-safety: as of [`Adapters`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::DerefMut;

use flowyard_dpdk::rules::{Offer, Place, Rule};
use flowyard_flow::table::marked;
use flowyard_frame::{FlowKey, Nanos};
use flowyard_yard::front::{Change, Entry, Front};

use super::pattern::{overlap, pattern};
use super::{Adapter, Adapters, Ask, Hardware};

/// Requests that wait at most.
const WAITING: usize = 8192;
/// Requests that are carried out in one tick.
const AT_ONCE: usize = 1024;
/// Reasons that are counted apart.
const REASONS: usize = 32;

/// Why a flow has no number.
const FULL: &str = "there are as many flows in the adapters as [offload] allows";

/// What became of a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Fate {
    #[default]
    None,
    Waits(u16),
    Marked(u16),
    Refused(String),
    Removed,
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

/// A flow that has a number.
#[derive(Clone, Debug)]
struct Flow {
    fate: Fate,
    key: FlowKey,
    /// How often it was put and not removed, and put and not freed.
    puts: u32,
    holds: u32,
}

/// The flows of all works.
#[derive(Debug)]
pub(super) struct Flows {
    most: u32,
    /// Ports with an adapter that marks frames.
    ports: Vec<u16>,
    /// By number.
    flows: Vec<Flow>,
    /// The number of each key that is put.
    numbers: HashMap<FlowKey, u32>,
    free: VecDeque<u32>,
    /// Flows that were refused by an adapter, and have a number.
    out: usize,
    requests: VecDeque<Request>,
    refused: BTreeMap<String, u64>,
    /// The user's entries, with the generation of their marks; `None` while they change.
    pub(super) users: Option<(u8, Vec<(FlowKey, FlowKey)>)>,
}

impl Flows {
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            ports: Vec::new(),
            flows: Vec::new(),
            numbers: HashMap::new(),
            free: VecDeque::new(),
            out: 0,
            requests: VecDeque::new(),
            refused: BTreeMap::new(),
            users: None,
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
        if let Some(number) = self.numbers.get(&entry.key)
            && let Some(flow) = self.flows.get_mut(*number as usize)
        {
            (flow.puts, flow.holds) = (flow.puts + 1, flow.holds + 1);
            return Ok(*number);
        }
        let pattern = self.pattern(entry)?;
        if self.requests.len() >= WAITING {
            return Err("too many flows wait for the adapters".into());
        }
        if self.is_full() {
            return Err(FULL.into());
        }
        let port = entry.key.in_port;
        let flow = Flow { fate: Fate::Waits(port), key: entry.key, puts: 1, holds: 1 };
        let number = match self.free.pop_front() {
            Some(number) => number,
            None => self.flows.len() as u32,
        };
        match self.flows.get_mut(number as usize) {
            Some(place) => *place = flow,
            None => self.flows.push(flow),
        }
        self.numbers.insert(entry.key, number);
        let key = Box::new(entry.key.flow());
        self.requests.push_back(Request::Put { number, port, key, pattern: Box::new(pattern) });
        Ok(number)
    }

    /// Whether there is no number for another flow.
    fn is_full(&self) -> bool {
        let used = self.flows.len() - self.free.len();
        used >= self.most as usize + self.out.min(self.most as usize)
    }

    fn remove(&mut self, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize).filter(|flow| flow.puts > 0) else {
            return;
        };
        flow.puts -= 1;
        if flow.puts > 0 {
            return; // another core has it, too
        }
        self.numbers.remove(&flow.key);
        if let Fate::Waits(port) | Fate::Marked(port) = flow.fate {
            flow.fate = Fate::Removed;
            self.requests.push_back(Request::Remove { number, port });
        }
    }

    fn free(&mut self, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize).filter(|flow| flow.holds > flow.puts)
        else {
            return;
        };
        flow.holds -= 1;
        if flow.holds == 0 {
            self.out -= usize::from(matches!(flow.fate, Fate::Refused(_)));
            flow.fate = Fate::None;
            self.free.push_back(number);
        }
    }

    fn fate(&self, number: u32) -> &Fate {
        self.flows.get(number as usize).map_or(&Fate::None, |flow| &flow.fate)
    }

    /// Whether the number is still that of the flow with this key, which waits for the adapter of `port`.
    fn waits(&self, number: u32, port: u16, key: &FlowKey) -> bool {
        self.flows
            .get(number as usize)
            .is_some_and(|flow| flow.fate == Fate::Waits(port) && flow.key.flow() == *key)
    }

    /// A flow was offered to its adapter.
    fn offered(&mut self, number: u32, port: u16, done: Result<(), String>) {
        if let Err(why) = &done {
            self.refuse(why);
        }
        // It may have been removed meanwhile; then its request to remove it comes.
        if let Some(flow) = self.flows.get_mut(number as usize)
            && flow.fate == Fate::Waits(port)
        {
            self.out += usize::from(done.is_err());
            flow.fate = done.map_or_else(Fate::Refused, |()| Fate::Marked(port));
        }
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
                let is_wanted = lock().waits(number, port, &key);
                let adapter = hardware.ports.get_mut(&port).filter(|_| is_wanted);
                let Some(adapter) = adapter else { continue };
                let done = adapter.mark(number, &key, &pattern);
                lock().offered(number, port, done);
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
        self.flow_lock().remove(flow);
    }

    fn free(&self, flow: u32) {
        self.flow_lock().free(flow);
    }

    fn answers(&self) -> bool {
        false
    }

    fn state(&self, flow: u32) -> String {
        match self.flow_lock().fate(flow) {
            Fate::Marked(_) => {
                "the adapter marks its frames, so that they are found without a lookup".into()
            }
            Fate::Waits(_) => "it waits to be offered to the adapter".into(),
            Fate::Refused(why) => format!("it is not in the adapter: {why}"),
            Fate::None | Fate::Removed => "it is not in the adapter any more".into(),
        }
    }

    fn uncontested(&self, key: &FlowKey) -> Option<u8> {
        let flows = self.flow_lock();
        let (generation, entries) = flows.users.as_ref()?;
        let flow = (&key.flow(), &FlowKey::FLOW);
        let is_free = entries.iter().all(|(key, mask)| !overlap(flow, (key, mask)));
        is_free.then_some(*generation)
    }

    /// A flow that no rule can describe stays in software: rules match the protocols TCP and UDP.
    fn may_take_later(&self, entry: &Entry) -> bool {
        self.flow_lock().pattern(entry).is_ok()
    }

    fn why_not(&self, entry: &Entry) -> Option<String> {
        let flows = self.flow_lock();
        let why = flows.pattern(entry).err();
        why.or_else(|| flows.is_full().then(|| FULL.into()))
    }
}
