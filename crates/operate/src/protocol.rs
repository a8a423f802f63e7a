//! Messages of the control socket: one JSON request per line, one JSON response per line.
//!
//! ```json
//! {"ask":"trace","flow":"tcp 10.0.0.1:40000 > 10.0.0.2:443","count":10,"seconds":5}
//! {"answer":{...}}    or    {"error":"what is wrong; how to fix it"}
//! ```
//!
//! A field whose name ends in `at_s` or `since_s` is a time in seconds since the engine was started.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod ipsec;
mod lb;
mod offload;
mod reload;
mod steer;
mod switch;

pub use ipsec::{SaState, Sas};
pub use lb::{
    Lb, LbBackend, LbChange, LbCheck, LbConnection, LbConnections, LbConnectionsRequest, LbCore,
    LbCounts, LbGroup, LbPeer, LbPersist, LbRoute, LbRoutes, LbService, LbSync, LbTrace, LbVotes,
};
pub use offload::{Offload, OffloadEntry, OffloadKind, OffloadPort, OffloadRefused};
pub use reload::{Reload, ReloadChange, ReloadDoes, ReloadHow};
pub use steer::{Steer, SteerQueue, SteerRing, SteerWhere};
pub use switch::{
    Controller, Controllers, Snooped, SnoopedMessage, SwitchFlow, SwitchPort, SwitchWhy,
};

/// A request. Each variant names the type of its answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Counters of all cores: [`Cores`].
    Cores,
    /// All queues, including the tx queues of ports: [`Queues`].
    Queues,
    /// The tables of all cores: [`Tables`].
    Tables {
        /// The most entries to list of each table.
        #[serde(default = "entries")]
        entries: usize,
    },
    /// The largest flows of each core: [`Flows`]. The answer comes after `seconds`.
    Flows {
        /// The time for which frames are counted.
        #[serde(default = "one")]
        seconds: f64,
    },
    /// The flows that are split over cores, and the recent decisions about elephants: [`Elephants`].
    Elephants,
    /// Drop counters by core and reason, and the last dropped frames: [`Drops`].
    Drops,
    /// Follows the frames of one flow: [`Trace`].
    Trace(TraceRequest),
    /// The services of a balancer: [`Lb`].
    Lb,
    /// The backend of a balancer that a flow goes to, and the reason: [`LbTrace`].
    #[serde(rename = "lb_trace")]
    LbTrace {
        /// A flow, as `tcp 10.0.0.1:40000 > 192.0.2.1:443`.
        flow: String,
    },
    /// The entries of a balancer's connection tables: [`LbConnections`].
    #[serde(rename = "lb_connections")]
    LbConnections(LbConnectionsRequest),
    /// The flow entries of a switch that a frame matches, and whether the flow cache handles it:
    /// [`SwitchWhy`].
    #[serde(rename = "switch_why")]
    SwitchWhy {
        /// Fields of the frame, as `in_port=west,tcp,nw_dst=10.0.0.1`.
        flow: String,
    },
    /// The messages that passed between a switch and its controllers: [`Snooped`].
    #[serde(rename = "switch_snoop")]
    SwitchSnoop {
        /// The number of the first message; `None` starts to keep messages.
        #[serde(default)]
        from: Option<u64>,
    },
    /// The security associations of an IPsec gateway, without keys: [`Sas`].
    Sas,
    /// The connections of a switch to its controllers: [`Controllers`].
    Controllers,
    /// What the adapters of ports do by rules, and what is in software, with the reason: [`Offload`].
    Offload,
    /// What SIGHUP would do now: [`Reload`].
    Reload,
    /// The state of an interface that `flowyard steer` steers: [`Steer`].
    Steer,
    /// Where `flowyard steer` sends a flow: [`SteerWhere`].
    #[serde(rename = "steer_where")]
    SteerWhere {
        /// A flow, as `tcp 10.0.0.1:40000 > 10.0.0.2:443`.
        flow: String,
    },
    /// Drains a backend, or ends that: [`LbChange`].
    #[serde(rename = "lb_drain")]
    LbDrain {
        /// The name of a service.
        service: String,
        /// The name of a backend of that service.
        backend: String,
        /// Ends the drain, so that the backend gets new connections again.
        #[serde(default)]
        undo: bool,
    },
    /// Sets the weight of a backend: [`LbChange`].
    #[serde(rename = "lb_weight")]
    LbWeight {
        /// The name of a service.
        service: String,
        /// The name of a backend of that service.
        backend: String,
        /// The new weight; `None` restores the configured one.
        weight: Option<u32>,
    },
    /// Hands the ports and the state over to the process that asks, by the protocol of [`crate::handover`].
    #[serde(rename = "hand_over")]
    HandOver,
    /// Withdraws the routes to all VIPs, or announces them again: [`LbRoutes`].
    #[serde(rename = "lb_withdraw")]
    LbWithdraw {
        /// Announces them again.
        #[serde(default)]
        undo: bool,
    },
}

/// The frames to follow. Exactly one of `flow` and `drops` must be set.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRequest {
    /// A flow, as `tcp 10.0.0.1:40000 > 10.0.0.2:443`.
    pub flow: Option<String>,
    /// A drop reason, or `any`. A flow that has just lost a frame for this reason is followed, and
    /// only its frames that are dropped for this reason are reported.
    pub drops: Option<String>,
    /// Whether to follow the opposite direction of the flow too.
    pub both: bool,
    /// The most frames to report.
    pub count: usize,
    /// The longest duration of the trace.
    pub seconds: f64,
}

const fn entries() -> usize {
    1000
}

const fn one() -> f64 {
    1.0
}

/// The response to a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Response<T> {
    /// The request succeeded.
    Answer(T),
    /// The request was refused: what is wrong, and how to fix it.
    Error(String),
}

impl<T: Serialize> Response<T> {
    /// Sends it as one line.
    pub(crate) fn send(&self, mut stream: &UnixStream) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        stream.write_all(&line)
    }
}

/// Counters of all cores.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Cores {
    /// When the counters were read.
    pub at_s: f64,
    /// In the order of core numbers.
    pub cores: Vec<CoreState>,
}

/// Counters of a core.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CoreState {
    /// Number of the core, from 0.
    pub core: u16,
    /// Whether it answered in time.
    pub alive: bool,
    /// The counters of `flowyard_yard::Counters`, by name.
    pub counters: BTreeMap<String, u64>,
    /// Frames dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

impl CoreState {
    /// The counter with this name; 0 if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Frames dropped for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }
}

/// All queues of the configuration, followed by the tx queue of each port.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// When the counters were read.
    pub at_s: f64,
    /// In the order of the configuration.
    pub queues: Vec<QueueState>,
}

/// The state of a queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct QueueState {
    /// The name of the queue, or of the port for a tx queue.
    pub name: String,
    /// `direct`, `unordered`, `ordered` or `atomic`.
    pub order: String,
    /// Whether it is the tx queue of a port.
    pub tx: bool,
    /// Frames that were enqueued.
    pub enqueued: u64,
    /// Frames that were completed, counted up to the oldest frame that is not.
    pub completed: u64,
    /// What producers do when the queue is full: `hold` or `drop`.
    pub full: String,
    /// The cores that dequeue from it.
    pub consumers: Vec<u16>,
    /// The core that is working on the oldest frame, if one is.
    pub oldest_held_by: Option<u16>,
}

/// The tables of all cores.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Tables {
    /// The cores that receive frames and answered.
    pub cores: Vec<CoreTables>,
    /// Cores that did not answer in time: they are dead, have ended, or are in a long batch.
    pub silent_cores: Vec<u16>,
}

/// The tables of a core, in the order in which they are looked up.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CoreTables {
    /// Number of the core, from 0.
    pub core: u16,
    /// The tables in front of the indirection table.
    pub tables: Vec<TableState>,
    /// The destination of each entry of the indirection table.
    pub indirection: Vec<String>,
    /// Frames whose destination came from the indirection table.
    pub indirection_hits: u64,
}

/// The state of a table.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TableState {
    /// `exact`: entries of the user; `rules`: rules of the user; `promoted`: flows split over cores;
    /// `learnt`: entries of learners; `mapping`: the port mapping of a switch.
    pub name: String,
    /// The number of entries, if the table counts them.
    pub entries: Option<usize>,
    /// The largest number of entries, if the table has a limit.
    pub capacity: Option<usize>,
    /// Frames that matched an entry of this table.
    pub hits: u64,
    /// Some of the entries, no more than requested.
    pub listed: Vec<Entry>,
}

/// An entry of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The fields that a frame must have.
    pub flow: String,
    /// The destination: `queue NAME`, `port NAME` or `drop`.
    pub to: String,
    /// The mark that is set on matching frames.
    pub mark: u32,
}

/// The largest flows of all cores.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Flows {
    /// The time for which frames were counted.
    pub seconds: f64,
    /// In the order of core numbers.
    pub cores: Vec<CoreFlows>,
    /// Cores that did not answer in time.
    pub silent_cores: Vec<u16>,
}

/// The largest flows that a core worked on.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CoreFlows {
    /// Number of the core, from 0.
    pub core: u16,
    /// Frames that the core worked on.
    pub frames: u64,
    /// Bytes of the sampled frames.
    pub bytes: u64,
    /// At most 16 flows, the largest first.
    pub flows: Vec<FlowState>,
}

/// The size of a flow. The sampler knows it between two bounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FlowState {
    /// The flow, as `tcp 10.0.0.1:40000 > 10.0.0.2:443`.
    pub flow: String,
    /// Lower bound of its share of the core's bytes, from 0 to 1.
    pub share: f64,
    /// Upper bound of its share of the core's bytes, from 0 to 1.
    pub share_at_most: f64,
    /// The receive hash.
    pub hash: u32,
}

/// The flows that are split over cores, and the recent decisions about elephants.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Elephants {
    /// The entries of the tables of promoted flows.
    pub promoted: Vec<Entry>,
    /// The last decisions, the oldest first.
    pub decisions: Vec<DecisionState>,
}

/// A decision of the elephant detector.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DecisionState {
    /// When it was made.
    pub at_s: f64,
    /// The overloaded core.
    pub core: u16,
    /// The share of time for which that core was busy, from 0 to 1.
    pub busy: f64,
    /// Frames that were queued for that core.
    pub waiting: u64,
    /// Frames that were dropped for that core.
    pub dropped: u64,
    /// `rebalance`, `promote`, `outcome`, `demote`, `undo` or `refuse`.
    pub kind: String,
    /// The flow that the decision is about, if it is about one.
    pub flow: Option<String>,
    /// The decision with its figures, as a sentence.
    pub text: String,
}

/// Drop counters by reason, and the last dropped frames.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Drops {
    /// When the counters were read.
    pub at_s: f64,
    /// The reasons for which at least one frame was dropped.
    pub reasons: Vec<DropState>,
    /// The last dropped frames, the oldest first: at most 64 for each core, and 4 for each tick.
    pub last: Vec<DroppedState>,
    /// Cores that did not answer in time; their frames are missing in `last`.
    pub silent_cores: Vec<u16>,
}

/// Drop counters of one reason.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DropState {
    /// Name of the reason, as `queue_full`.
    pub reason: String,
    /// Dropped frames, for each core.
    pub cores: Vec<u64>,
    /// Dropped frames over all cores.
    pub frames: u64,
    /// What can be done about these drops.
    pub fix: String,
}

/// A dropped frame.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DroppedState {
    /// When it was dropped.
    pub at_s: f64,
    /// The core that dropped it.
    pub core: u16,
    /// Name of the reason, as `queue_full`.
    pub reason: String,
    /// The queue or port where it was, or to which it would have gone.
    pub place: String,
    /// Its flow; `None` if the port dropped it before it was parsed.
    pub flow: Option<String>,
    /// The number of frames; more than one only if there is no flow.
    pub frames: u32,
}

/// The steps of the frames of one flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// The flow that was followed.
    pub flow: String,
    /// The duration of the trace.
    pub seconds: f64,
    /// Frames whose last step was seen: they were sent or dropped during the trace.
    pub finished_frames: u64,
    /// `finished_frames` by outcome: `sent`, or the name of a drop reason.
    pub outcomes: BTreeMap<String, u64>,
    /// The first of the requested frames, in the order in which they finished.
    pub frames: Vec<Story>,
    /// Events that were lost because they came faster than they were read; steps may be missing.
    pub lost_events: u64,
    /// Cores that did not answer in time; their steps are missing.
    pub silent_cores: Vec<u16>,
    /// A remark for the user, for example why there are no frames.
    pub note: Option<String>,
}

/// The steps of one frame.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Story {
    /// `sent`, the name of a drop reason, or `in_flight` if the trace ended before the frame did.
    pub outcome: String,
    /// What can be done about the drop, if the frame was dropped.
    pub fix: Option<String>,
    /// Whether the frame is of the reverse direction of the flow.
    pub reverse: bool,
    /// In the order in which they happened.
    pub steps: Vec<StepState>,
}

/// One step of a frame.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StepState {
    /// When the tick of the core began.
    pub at_s: f64,
    /// The core that executed the step.
    pub core: u16,
    /// `rx`, `steer`, `settle`, `enqueue`, `work`, `tx` or `drop`.
    pub stage: String,
    /// What was done, and the reason.
    pub text: String,
}
