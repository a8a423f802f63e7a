//! Why a flow gets its queue, as printed by `flowyard explain --json` (schema `flowyard.explain/2`).

use schemars::JsonSchema;
use serde::Serialize;

mod answer;
pub(crate) mod rule;

/// The optional parts of an explanation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Question {
    /// Explain why the flow does not get this queue.
    pub expect_queue: Option<u16>,
    /// Find a source port with which RSS selects this queue.
    pub choose_port: Option<u16>,
}

/// The explanation of one flow in both directions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Explanation {
    /// The flow in the direction that the adapter receives.
    pub flow: String,
    /// The packet of a capture that the flow was taken from, if any. Learned tables are then in the
    /// state in which this packet arrived.
    pub packet: Option<PacketOf>,
    /// The name of the adapter.
    pub adapter: String,
    /// Number of receive queues.
    pub queues: u16,
    /// Number of cores; queue q interrupts core q modulo this number, or the core that the settings of an interface
    /// name.
    pub cores: u16,
    /// The hash key of RSS in hexadecimal; `null` if the adapter has no RSS.
    pub rss_key: Option<String>,
    /// Where the hash key comes from, such as `Microsoft's published test key` or `read from eth0.rss`.
    pub rss_key_source: Option<String>,
    /// The decision of each policy on the flow.
    pub policies: Answers,
    /// The opposite direction, as if the adapter received it.
    pub reverse: Reverse,
    /// Why the flow does not get the expected queue, if one was given.
    pub expect: Option<Expect>,
    /// A source port with which RSS selects the given queue, if one was given.
    pub choose_port: Option<ChosenPort>,
    /// What the packet is, if it is for storage (FCoE) or management (NC-SI), in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kind: Vec<String>,
    /// Who of the tenants gets the frame from the network, if a file of tenants is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<TenantsAnswer>,
    /// Remarks on the limits of the explanation, in sentences.
    pub notes: Vec<String>,
}

/// Who of the tenants gets a frame, and why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TenantsAnswer {
    /// The copies; none means that the frame is dropped.
    pub copies: Vec<TenantCopy>,
    /// The steps of the adapter that led there, in sentences; the numbers of the steps are those of the X550 datasheet, section
    /// 7.8.3.3.1.
    pub why: Vec<String>,
    /// The filter by which the management controller gets the frame, if it does.
    pub management: Option<String>,
    /// Whether only the management controller gets it.
    pub only_management: bool,
}

/// A copy of a frame.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TenantCopy {
    /// The pool.
    pub pool: u8,
    /// The tenant; `null` if no line names the pool.
    pub tenant: Option<String>,
    /// The receive queue, counted over the whole port.
    pub queue: u16,
}

/// A packet of a capture.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PacketOf {
    /// The file name of the capture.
    pub capture: String,
    /// The number of the packet, from 1.
    pub number: u64,
    /// Whether the host receives the packet. If the host transmits it, the decisions below are those
    /// on an adapter that receives it.
    pub received: bool,
}

/// The opposite direction.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reverse {
    /// The flow with source and destination exchanged.
    pub flow: String,
    /// The decision of each policy.
    pub policies: Answers,
}

/// The decision of each policy. `rss` is present if the adapter has RSS, `fdir` if it has Flow
/// Director, the others if `--policy` names them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Answers {
    /// Receive-side scaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<RssAnswer>,
    /// Flow Director: the hashes of the flow, and the rule that matches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fdir: Option<FdirAnswer>,
    /// Flow Director with filters that are learned from transmitted packets (ATR).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atr: Option<Verdict>,
    /// Receive packet steering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rps: Option<Verdict>,
    /// Receive flow steering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rfs: Option<Verdict>,
    /// Receive flow steering that programs the adapter (accelerated RFS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arfs: Option<Verdict>,
    /// The policy of flowyard itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yard: Option<Verdict>,
    /// RSS whose indirection table is rebalanced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<Verdict>,
}

/// Where a frame goes, which stage decided that, and why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Verdict {
    /// The receive queue; `null` for a dropped frame.
    pub queue: Option<u16>,
    /// The core that processes the frame; `null` for a dropped frame.
    pub core: Option<u16>,
    /// The stage that decided.
    pub stage: String,
    /// The reason as text.
    pub why: String,
}

/// The decision of RSS.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RssAnswer {
    /// Microsoft's name of the hash type, such as `TCP_IPV4`; `null` if the frame is not hashed.
    pub hash_type: Option<String>,
    /// The fields of the hash input, in the order in which they are hashed.
    pub input: Vec<InputField>,
    /// The hash, as `0x` and eight hexadecimal digits.
    pub hash: Option<String>,
    /// Whether the driver marks the hash as one that covers ports (L4). RPS and RFS use the kernel's own hash if not.
    pub l4_hash: bool,
    /// The index into the indirection table: the low bits of the hash.
    pub index: Option<u32>,
    /// Number of entries in the indirection table.
    pub entries: u32,
    /// Where the frame goes.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// One field of a hash input.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InputField {
    /// The name: `src`, `dst`, `sport`, `dport`, or their XOR, such as `src^dst`.
    pub field: String,
    /// The bytes in hexadecimal, in network order.
    pub bytes: String,
}

/// The decision of Flow Director.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FdirAnswer {
    /// `signature` (filters from ATR) or `perfect` (filters from rules).
    pub mode: String,
    /// 82599: the bucket hash before it is reduced to the size of the table. It has 15 bits in
    /// signature mode, and 13 bits in perfect mode, where the mask of the rules is applied.
    pub bucket_hash: Option<String>,
    /// 82599: the 15-bit signature that the ATR of Linux programs.
    pub signature_hash: Option<String>,
    /// 82599: signature and bucket hash as in the FDIRHASH register in signature mode.
    pub fdirhash: Option<String>,
    /// 82599: the bucket in a table of the size that `--pballoc` sets.
    pub bucket: Option<String>,
    /// 82599: the 13-bit bucket hash in perfect mode if every field is matched.
    pub perfect_bucket_hash: Option<String>,
    /// What matched the frame: `rule` or `none`.
    #[serde(rename = "match")]
    pub matched: String,
    /// Where the frame goes.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The comparison with the expected queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Expect {
    /// The expected queue.
    pub queue: u16,
    /// By policy: whether it selects the expected queue; if not, why, and how to change that.
    pub policies: std::collections::BTreeMap<String, ExpectAnswer>,
}

/// Whether a policy gives the expected queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExpectAnswer {
    /// Whether the policy selects the expected queue.
    pub holds: bool,
    /// The reason if it does not.
    pub why_not: Option<String>,
    /// Changes after which it does, or the reason why there is none.
    pub fix: Vec<String>,
}

/// The result of the search for a source port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChosenPort {
    /// The queue that RSS should select.
    pub queue: u16,
    /// The smallest suitable port, from 1024 if there is one; `null` if no port is suitable.
    pub port: Option<u16>,
    /// The flow with that port.
    pub flow: Option<String>,
    /// Number of source ports with which RSS selects the queue.
    pub ports_that_fit: u32,
    /// The reason if no port is suitable.
    pub why: Option<String>,
}
