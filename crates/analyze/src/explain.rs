//! Why a flow gets its queue: what `flowyard explain --json` prints (schema `flowyard.explain/1`).

use schemars::JsonSchema;
use serde::Serialize;

mod answer;

/// What is asked besides "where, and why".
#[derive(Clone, Copy, Debug, Default)]
pub struct Question {
    /// Why not this queue?
    pub expect_queue: Option<u16>,
    /// Which source port lands on this queue?
    pub choose_port: Option<u16>,
}

/// The answer for one flow, in both directions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Explanation {
    /// The flow, as the adapter receives it.
    pub flow: String,
    /// The capture and packet that it was taken from, if any; learned tables are then in the state
    /// that they had when this packet came.
    pub packet: Option<PacketOf>,
    /// The adapter.
    pub adapter: String,
    /// Receive queues.
    pub queues: u16,
    /// Cores; queue q interrupts core q modulo this.
    pub cores: u16,
    /// What each policy says of the flow.
    pub policies: Answers,
    /// The same for the frames of the opposite direction, if this adapter received them.
    pub reverse: Reverse,
    /// Why not the expected queue, where one was asked for.
    pub expect: Option<Expect>,
    /// A source port that lands the flow on the wanted queue, where one was asked for.
    pub choose_port: Option<ChosenPort>,
}

/// A packet of a capture.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PacketOf {
    /// The capture's file name.
    pub capture: String,
    /// The packet's number, from 1.
    pub number: u64,
    /// The host receives the packet; else it sends it, and the answers below are those that the
    /// adapter would give if it received it.
    pub received: bool,
}

/// The opposite direction.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reverse {
    /// The flow with source and destination exchanged.
    pub flow: String,
    /// What each policy says of it.
    pub policies: Answers,
}

/// What each policy says. `rss` is there wherever the adapter hashes, `fdir` wherever it has Flow
/// Director, the others where `--policy` names them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Answers {
    /// Receive-side scaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<RssAnswer>,
    /// Flow Director: the hashes of this flow, and the rule that matches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fdir: Option<FdirAnswer>,
    /// Flow Director, filled by sampling transmits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atr: Option<Verdict>,
    /// Receive packet steering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rps: Option<Verdict>,
    /// Receive flow steering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rfs: Option<Verdict>,
    /// Receive flow steering in the adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arfs: Option<Verdict>,
    /// flowyard's own learner.
    #[serde(rename = "yard", skip_serializing_if = "Option::is_none")]
    pub yard: Option<Verdict>,
}

/// Where a frame goes, by which stage, and why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Verdict {
    /// The receive queue; `null` for a dropped frame.
    pub queue: Option<u16>,
    /// The core that processes the frame; `null` for a dropped frame.
    pub core: Option<u16>,
    /// The stage that decided.
    pub stage: String,
    /// Why, in a sentence.
    pub why: String,
}

/// What RSS says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RssAnswer {
    /// The hash type in Microsoft's words, such as `TCP_IPV4`; `null` when the frame is not hashed.
    pub hash_type: Option<String>,
    /// The input of the hash, field by field, in the order it is hashed.
    pub input: Vec<InputField>,
    /// The hash, `0x` and eight digits.
    pub hash: Option<String>,
    /// The entry of the indirection table: the hash's low bits.
    pub index: Option<u32>,
    /// Entries of the indirection table.
    pub entries: u32,
    /// Where the frame goes.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// One field of a hash input.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InputField {
    /// Its name: `src`, `dst`, `sport`, `dport`, or what is combined.
    pub field: String,
    /// Its bytes in hex, in network order.
    pub bytes: String,
}

/// What Flow Director says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FdirAnswer {
    /// `signature` (filled by ATR) or `perfect` (filled by rules).
    pub mode: String,
    /// 82599: the bucket hash, before it is cut to the table's size: 15 bits of the signature
    /// table, or 13 bits of the perfect table, there under the mask that the rules have fixed.
    pub bucket_hash: Option<String>,
    /// 82599: the 15-bit signature that Linux's ATR programs.
    pub signature_hash: Option<String>,
    /// 82599: the two together as the FDIRHASH register holds them in signature mode.
    pub fdirhash: Option<String>,
    /// 82599: the bucket in a table of the size set by `--pballoc`.
    pub bucket: Option<String>,
    /// 82599: the bucket hash in perfect mode (13 bits), with every field matched.
    pub perfect_bucket_hash: Option<String>,
    /// What matched: `rule LINE`, `filter` or `none`.
    #[serde(rename = "match")]
    pub matched: String,
    /// Where the frame goes.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Why not the queue that was expected.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Expect {
    /// The queue that was expected.
    pub queue: u16,
    /// By policy: whether it holds, and if not, why and what would change it.
    pub policies: std::collections::BTreeMap<String, ExpectAnswer>,
}

/// Whether a policy gives the expected queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExpectAnswer {
    /// The policy gives this queue.
    pub holds: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// What would change it.
    pub mend: Vec<String>,
}

/// A source port for a flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChosenPort {
    /// The wanted queue.
    pub queue: u16,
    /// The port.
    pub port: Option<u16>,
    /// The flow with that port.
    pub flow: Option<String>,
    /// How many source ports land on the queue.
    pub ports_that_fit: u32,
    /// Why there is none, where there is none.
    pub why: Option<String>,
}
