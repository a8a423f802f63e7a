//! Answers about a switch.
//!
//! Thread-safety: plain data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The flow entries of a switch that a frame matches, and how further frames of its flow are handled.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SwitchWhy {
    /// The fields in the request.
    pub flow: String,
    /// The matching flow entries, in the order of the tables.
    pub flows: Vec<SwitchFlow>,
    /// Where the frame goes: a sentence for each output, and for each group with the bucket that it chooses.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// The result for the frame: where it leaves, as `port 2 (east)`, or `dropped (no_flow)` with the reason.
    #[serde(default)]
    pub result: String,
    /// The table in which no flow entry matches, if there is one.
    pub miss_table: Option<u8>,
    /// Whether the second frame of this flow is handled without a lookup in the tables.
    pub is_offloaded: bool,
    /// How it is handled, and the reason.
    pub answer: String,
    /// The number of cores whose flow cache has an entry for such a frame now.
    pub cached_on_cores: u32,
    /// The number of cores that answered.
    pub answering_cores: u32,
    /// What is done for the flow in front of the cores, by XDP or by an adapter, or why it is not; a remark for each core.
    #[serde(default)]
    pub in_front: Vec<String>,
    /// A remark for each core whose flow cache is disabled for most frames.
    pub cache_notes: Vec<String>,
}

/// A flow entry that a frame matches.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SwitchFlow {
    /// In the syntax of `ovs-ofctl`.
    pub flow: String,
    /// Frames of this entry that were handled without a lookup in the tables, over all cores.
    pub offloaded: u64,
}

/// Messages that passed between a switch and its controllers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Snooped {
    /// In the order in which they passed.
    pub messages: Vec<SnoopedMessage>,
    /// The number of the next message.
    pub next: u64,
    /// The ports of the switch; only in the first answer, when `from` was absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<SwitchPort>,
}

/// A port of a switch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SwitchPort {
    /// Its OpenFlow number.
    pub number: u32,
    /// Its name.
    pub name: String,
}

/// A message that passed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SnoopedMessage {
    /// Its number. A gap means that messages were not kept.
    pub number: u64,
    /// When it passed.
    pub at_s: f64,
    /// The address of the controller.
    pub connection: String,
    /// Whether the switch sent it.
    pub is_sent: bool,
    /// The message as hexadecimal digits.
    pub bytes: String,
}

/// The connections of a switch to its controllers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Controllers {
    /// Connections that the switch opens, up or not, and those of controllers that connected to it.
    pub connections: Vec<Controller>,
}

/// A connection to a controller.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Controller {
    /// The address in the configuration.
    pub endpoint: String,
    /// The address of a controller that connected to the switch.
    pub peer: String,
    /// Whether the switch opens the connection.
    pub dialed: bool,
    /// The auxiliary ID; 0 is a main connection.
    pub auxiliary: u8,
    /// Whether the connection is up.
    pub connected: bool,
    /// The OpenFlow version of a connection that is up.
    pub version: Option<String>,
    /// How many times the connection came up.
    pub ups: u64,
    /// Attempts to connect that failed since the connection was last up.
    pub failed_attempts: u64,
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Packet-ins that were dropped because the controller did not read.
    pub dropped_packet_ins: u64,
    /// Why the connection is down, or was last down.
    pub error: String,
}
