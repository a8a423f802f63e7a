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
