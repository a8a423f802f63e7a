//! Answers of `flowyard steer`.
//!
//! Thread-safety: plain data.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of an interface whose frames are steered in the kernel.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Steer {
    /// When the counters were read.
    pub at_s: f64,
    /// The interface.
    pub interface: String,
    /// `rss`, `rules`, `atr` or `rfs`.
    pub policy: String,
    /// Where in the receive path the program runs: `driver` or `generic`.
    pub attached: String,
    /// The folder of the pins; `null` if the program ends with the process.
    pub pins: Option<String>,
    /// The frames of each queue, since the program was first attached.
    pub queues: Vec<SteerQueue>,
    /// The ring of each CPU, since the process was started; `null` if the kernel does not let programs see it.
    pub rings: Option<Vec<SteerRing>>,
    /// Flows that were learned and were not known before.
    pub learned_flows: u64,
    /// Moves of flows to another CPU.
    pub flow_moves: u64,
}

/// The frames of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SteerQueue {
    /// The queue.
    pub queue: u16,
    /// Its CPU; `null`: its frames stay where they are received.
    pub cpu: Option<u32>,
    /// Frames by the stage that decided: `no_hash`, `rss`, `rule`, `dropped`, `filter`, `settling`,
    /// `elephant`, `gap_drop`.
    pub frames: BTreeMap<String, u64>,
    /// Bytes of all these frames.
    pub bytes: u64,
}

/// The ring in which frames wait for a CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SteerRing {
    /// The CPU.
    pub cpu: u32,
    /// Frames that were handed to it.
    pub frames: u64,
    /// Those of them that were dropped because the ring was full.
    pub dropped: u64,
}

/// Where `flowyard steer` sends a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SteerWhere {
    /// The interface.
    pub interface: String,
    /// The flow.
    pub flow: String,
    /// The queue; `null` if a rule drops the flow.
    pub queue: Option<u16>,
    /// The CPU; `null` if frames stay where they are received, or are dropped.
    pub cpu: Option<u32>,
    /// The stage that decides: `no_hash`, `rss`, `rule`, `dropped`, `filter`, `settling`,
    /// `elephant` or `gap_drop`.
    pub stage: String,
    /// The reason, as text.
    pub why: String,
}

impl Steer {
    /// Frames of all queues that this stage decided.
    #[must_use]
    pub fn frames(&self, stage: &str) -> u64 {
        self.queues.iter().filter_map(|queue| queue.frames.get(stage)).sum()
    }
}
