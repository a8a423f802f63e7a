//! The words of the control socket: one JSON request in a line, one JSON answer in a line.
//!
//! ```json
//! {"ask":"trace","flow":"tcp 10.0.0.1:40000 > 10.0.0.2:443","count":10,"seconds":5}
//! {"answer":{...}}    or    {"error":"what is wrong; and the mend"}
//! ```
//!
//! Times are seconds since the yard was started, unless a name says otherwise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod lb;

pub use lb::{Lb, LbBackend, LbChange, LbCheck, LbCore, LbCounts, LbService, LbTrace};

/// What can be asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Every core's counters: [`Cores`].
    Cores,
    /// Every queue and tx queue: [`Queues`].
    Queues,
    /// Tables of the cores: [`Tables`].
    Tables {
        /// The most entries of each table.
        #[serde(default = "entries")]
        entries: usize,
    },
    /// The largest flows of each core: [`Flows`]. Answered after `seconds`.
    Flows {
        /// How long frames are counted.
        #[serde(default = "one")]
        seconds: f64,
    },
    /// Flows that are split, and what was decided: [`Elephants`].
    Elephants,
    /// Drops by core and reason, and the last ones: [`Drops`].
    Drops,
    /// Follows a flow, or a flow that drops frames: [`Trace`].
    Trace(TraceRequest),
    /// The services of a balancer: [`Lb`].
    Lb,
    /// Which backend of a balancer a flow goes to, and why: [`LbTrace`].
    #[serde(rename = "lb_trace")]
    LbTrace {
        /// A flow, as `tcp 10.0.0.1:40000 > 192.0.2.1:443`.
        flow: String,
    },
    /// Which flows of a switch a frame meets, and whether its cache answers it: [`SwitchWhy`].
    #[serde(rename = "switch_why")]
    SwitchWhy {
        /// A frame's fields, as `in_port=west,tcp,nw_dst=10.0.0.1`.
        flow: String,
    },
    /// Drains a backend, or undoes that: [`LbChange`].
    #[serde(rename = "lb_drain")]
    LbDrain {
        /// The service.
        service: String,
        /// The backend.
        backend: String,
        /// Takes new connections again.
        #[serde(default)]
        undo: bool,
    },
    /// Sets the weight of a backend: [`LbChange`].
    #[serde(rename = "lb_weight")]
    LbWeight {
        /// The service.
        service: String,
        /// The backend.
        backend: String,
        /// The weight; none is the configured one.
        weight: Option<u32>,
    },
}

/// What is to be followed: one of `flow` and `drops`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRequest {
    /// A flow, as `tcp 10.0.0.1:40000 > 10.0.0.2:443`.
    pub flow: Option<String>,
    /// A reason of drops, or `any`: a flow that loses frames for it is followed, and only frames
    /// that are dropped for it are told.
    pub drops: Option<String>,
    /// The other direction too.
    pub both: bool,
    /// The most frames.
    pub count: usize,
    /// How long, at most.
    pub seconds: f64,
}

const fn entries() -> usize {
    1000
}

const fn one() -> f64 {
    1.0
}

/// What comes back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Response<T> {
    /// The answer.
    Answer(T),
    /// Why there is none, and the mend.
    Error(String),
}

/// Which flows of a switch a frame meets, and what answers the next one like it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SwitchWhy {
    /// The fields that were asked about.
    pub flow: String,
    /// The flows that it meets, table by table.
    pub flows: Vec<SwitchFlow>,
    /// The table that has none for it.
    pub miss: Option<u8>,
    /// Whether its second frame is answered in front of the tables.
    pub is_offloaded: bool,
    /// How it is answered, and why so.
    pub answer: String,
    /// Cores whose cache has an entry for such a frame now, of so many.
    pub known: [u32; 2],
    /// What is to be said of cores whose cache rests.
    pub rests: Vec<String>,
}

/// A flow that a frame meets.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SwitchFlow {
    /// As `ovs-ofctl` writes it.
    pub flow: String,
    /// Its frames that were answered in front of the tables, of all cores.
    pub offloaded: u64,
}

/// Every core's counters.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cores {
    /// When they were read.
    pub at_s: f64,
    /// By core.
    pub cores: Vec<CoreState>,
}

/// A core's counters.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CoreState {
    /// Its number.
    pub core: u16,
    /// Whether it answers.
    pub alive: bool,
    /// Numbers by name, see `flowyard_yard::Counters`.
    pub counters: BTreeMap<String, u64>,
    /// Frames dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

impl CoreState {
    /// The counter of this name, 0 if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Frames dropped for all reasons.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }
}

/// Every queue, then every port's tx queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Queues {
    /// When they were read.
    pub at_s: f64,
    /// In the order of the configuration.
    pub queues: Vec<QueueState>,
}

/// A queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct QueueState {
    /// Its name, or its port's.
    pub name: String,
    /// `direct`, `unordered`, `ordered` or `atomic`.
    pub order: String,
    /// Whether it is a port's tx queue.
    pub tx: bool,
    /// Frames that entered.
    pub entered: u64,
    /// Frames that are done, with all before them.
    pub done: u64,
    /// What producers do when it is full: `hold` or `drop`.
    pub full: String,
    /// The cores that work on it.
    pub consumers: Vec<u16>,
    /// The core that has its oldest frame in hand.
    pub holder: Option<u16>,
}

/// Tables by core.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Cores that receive and have answered.
    pub cores: Vec<CoreTables>,
    /// Cores that did not answer: at work for long, or dead.
    pub silent: Vec<u16>,
}

/// The tables of a core, in the order they are asked.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CoreTables {
    /// Its number.
    pub core: u16,
    /// Those in front of the indirection table.
    pub tables: Vec<TableState>,
    /// Where each entry of the indirection table sends.
    pub indirection: Vec<String>,
    /// Frames that it answered.
    pub indirection_hits: u64,
}

/// A table.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TableState {
    /// `exact` is the user's, `promoted` that of split flows, `learnt` that of learners.
    pub name: String,
    /// How many entries it has, if it counts them.
    pub entries: Option<usize>,
    /// How many it takes.
    pub capacity: Option<usize>,
    /// Frames that it answered.
    pub hits: u64,
    /// Entries: as many as were asked for.
    pub listed: Vec<Entry>,
}

/// An entry of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The flow.
    pub flow: String,
    /// Where it goes: `queue NAME`, `port NAME` or `drop`.
    pub to: String,
    /// The mark that its frames carry.
    pub mark: u32,
}

/// The largest flows by core.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Flows {
    /// How long frames were counted.
    pub seconds: f64,
    /// By core.
    pub cores: Vec<CoreFlows>,
    /// Cores that did not answer.
    pub silent: Vec<u16>,
}

/// The largest flows that a core worked on.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CoreFlows {
    /// Its number.
    pub core: u16,
    /// Frames it worked on.
    pub frames: u64,
    /// Bytes that were sampled of them.
    pub bytes: u64,
    /// At most 16, the largest first.
    pub flows: Vec<FlowState>,
}

/// A flow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FlowState {
    /// Its name.
    pub flow: String,
    /// Of the core's bytes, at least.
    pub share: f64,
    /// Of the core's bytes, at most.
    pub share_at_most: f64,
    /// Its receive hash.
    pub hash: u32,
}

/// Flows that are split, and what was decided.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Elephants {
    /// Flows that have an entry in a table of promoted flows.
    pub promoted: Vec<Entry>,
    /// The last decisions, the oldest first.
    pub decisions: Vec<DecisionState>,
}

/// A decision about elephants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DecisionState {
    /// When.
    pub at_s: f64,
    /// The core it is about.
    pub core: u16,
    /// How busy that was, from 0 to 1.
    pub busy: f64,
    /// Frames that waited for it.
    pub waiting: u64,
    /// Frames that it lost.
    pub dropped: u64,
    /// `rebalance`, `promote`, `outcome`, `demote` or `refuse`.
    pub what: String,
    /// The flow, where it is about one.
    pub flow: Option<String>,
    /// The whole of it, with its figures.
    pub text: String,
}

/// Drops by core and reason, and the last ones.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Drops {
    /// When they were read.
    pub at_s: f64,
    /// By reason, those that occurred.
    pub reasons: Vec<DropState>,
    /// The last dropped frames, the oldest first: at most 64 of a core, and 4 of a tick.
    pub last: Vec<DroppedState>,
    /// Cores that did not say which.
    pub silent: Vec<u16>,
}

/// Drops for one reason.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DropState {
    /// The reason.
    pub reason: String,
    /// Frames, by core.
    pub cores: Vec<u64>,
    /// Frames in all.
    pub frames: u64,
    /// What can be done about it.
    pub mend: String,
}

/// A dropped frame.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DroppedState {
    /// When.
    pub at_s: f64,
    /// By which core.
    pub core: u16,
    /// Why.
    pub reason: String,
    /// Where it was or was to go.
    pub at: String,
    /// Whose; none where the port dropped it unread.
    pub flow: Option<String>,
    /// How many: more than one only where there is no flow.
    pub frames: u32,
}

/// What happened to the frames of a flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    /// The flow that was followed.
    pub flow: String,
    /// How long.
    pub seconds: f64,
    /// Frames whose last step was seen.
    pub seen: u64,
    /// Of these, by what became of them: `sent`, or a reason of drops.
    pub outcomes: BTreeMap<String, u64>,
    /// The first of those that were wanted, in the order they came in.
    pub frames: Vec<Story>,
    /// Events that came faster than they were read: stories may have gaps.
    pub lost: u64,
    /// Cores that did not answer: what they do is not seen.
    pub silent: Vec<u16>,
    /// What the user should know besides.
    pub note: Option<String>,
}

/// The life of one frame.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Story {
    /// `sent`, a reason of drops, or `inside` if its end was not seen.
    pub outcome: String,
    /// What can be done about a drop.
    pub mend: Option<String>,
    /// Step by step.
    pub steps: Vec<StepState>,
}

/// One step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StepState {
    /// When.
    pub at_s: f64,
    /// On which core.
    pub core: u16,
    /// `rx`, `steer`, `settle`, `enqueue`, `work`, `tx` or `drop`.
    pub stage: String,
    /// What was done there, and why.
    pub text: String,
}
