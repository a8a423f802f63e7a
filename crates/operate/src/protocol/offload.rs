//! Answers about rules in the adapters of ports.
//!
//! Thread-safety: plain data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the adapters of the ports do for the yard, and what is in software, with the reason.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Offload {
    /// The ports with an adapter that takes rules.
    pub ports: Vec<OffloadPort>,
    /// Flows of the work that wait to be offered to an adapter, or for their rule to be removed.
    pub waiting_flows: usize,
    /// Refusals of flows of the work since the start, by reason. A flow that was refused is in software.
    pub refused_flows: Vec<OffloadRefused>,
}

/// The adapter of a port.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct OffloadPort {
    /// The port.
    pub port: String,
    /// Entries of `[steer]`, in the order in which they are asked.
    pub entries: Vec<OffloadEntry>,
    /// Frames that the adapter dropped and counted.
    pub dropped_frames: u64,
    /// Frames that the adapter sent out by other ports and counted.
    #[serde(default)]
    pub forwarded_frames: u64,
    /// Flows of the work that the adapter marks: those of a switch, each direction of a balancer's connection, and
    /// promoted elephants.
    pub marked_flows: usize,
    /// Kinds of rules that the adapter was asked about at the start.
    pub accepts: Vec<OffloadKind>,
}

/// An entry of `[steer]`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct OffloadEntry {
    /// Which one, as `rule 2`: the second in the configuration.
    pub entry: String,
    /// What it matches.
    pub matches: String,
    /// Whether the adapter has a rule for it.
    pub is_in_adapter: bool,
    /// What the adapter does, or why it does nothing.
    pub state: String,
    /// Frames that the adapter counted.
    pub frames: Option<u64>,
}

/// A reason, and how often flows were refused for it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct OffloadRefused {
    /// The reason.
    pub reason: String,
    /// The number of refusals. A flow that is offered again and refused again counts each time; each direction of a
    /// connection is a flow, and so is an elephant on each port.
    pub flows: u64,
}

/// A kind of rule.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct OffloadKind {
    /// What it matches.
    pub matches: String,
    /// What it does.
    pub does: String,
    /// Why the adapter refuses it; absent if it accepts it.
    pub refused: Option<String>,
}
