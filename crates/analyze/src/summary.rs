//! The result of an analysis as plain data. `flowyard analyze --json` prints it field by field
//! (schema `flowyard.analyze/2`). Ratios are fractions; the name of a time ends in its unit.

use std::collections::BTreeMap;

use flowyard_adapter::FilterStats;
use schemars::JsonSchema;
use serde::Serialize;

mod tenants;

pub use tenants::{PoolSummary, TenantsSummary};

/// The result of an analysis.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Analysis {
    /// The captures that were read, in order.
    pub captures: Vec<Capture>,
    /// The modelled adapter and host.
    pub setup: SetupSummary,
    /// The contents of the captures.
    pub traffic: Traffic,
    /// The results of each policy, in the order requested.
    pub policies: Vec<PolicySummary>,
    /// The frames of each tenant, if a file of tenants is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<TenantsSummary>,
    /// Fibre Channel over Ethernet, if the captures have any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<crate::StorageSummary>,
    /// NC-SI control frames by what they say, if the captures have any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub control: BTreeMap<String, u64>,
    /// Received flows above the elephant share, largest first.
    pub elephants: Vec<Elephant>,
    /// Remarks on the analysis and its limits, in sentences.
    pub notes: Vec<String>,
    /// What the result means, the most important finding first.
    pub verdict: Vec<Finding>,
}

/// One capture file.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Capture {
    /// The name of the file as given.
    pub file: String,
    /// Packets read.
    pub packets: u64,
    /// Packets that the reader skipped, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// A description of where the file is damaged, if it is.
    pub damage: Option<String>,
}

/// The modelled adapter and host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SetupSummary {
    /// The name of the adapter.
    pub adapter: String,
    /// Number of receive queues.
    pub queues: u16,
    /// Number of receive queues that RSS can address on this adapter.
    pub rss_queues: u16,
    /// Number of entries in the indirection table.
    pub indirection_entries: u32,
    /// The hash key in hexadecimal.
    pub rss_key: String,
    /// Where the hash key comes from, such as `Microsoft's published test key` or `read from eth0.rss`.
    pub rss_key_source: String,
    /// Number of cores; queue q interrupts core q modulo this number, or the core that the settings of an interface
    /// name.
    pub cores: u16,
    /// The side of each connection on which the host is: `server`, `client`, `all` (a monitor) or the
    /// addresses of the host.
    pub local: String,
    /// How a connection is assigned to the application thread that consumes it.
    pub consumers: String,
    /// Time after which a thread moves to another core; 0 means never.
    pub migrate_every_ns: u64,
    /// Number of thread moves.
    pub migrations: u64,
    /// Queue-delay model: time that a core takes for a frame.
    pub service_ns: u64,
    /// Queue-delay model: time to pass a frame to another core (RPS, RFS).
    pub dispatch_ns: u64,
    /// Queue-delay model: additional delay of each core, if set.
    pub core_delay_ns: Vec<u64>,
    /// A flow above this fraction of the received bytes is an elephant.
    pub elephant_share: f64,
    /// Length of a window in which imbalance is measured.
    pub window_ns: u64,
    /// The header of a tunnelled packet that the adapter hashes and matches: `outer` or `inner`.
    pub tunnels: String,
}

/// The contents of the captures.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Traffic {
    /// Packets in both directions.
    pub packets: u64,
    /// Wire bytes in both directions, without FCS.
    pub bytes: u64,
    /// Time from the first to the last time stamp.
    pub duration_s: f64,
    /// Packets the host receives.
    pub received: u64,
    /// Packets the host transmits.
    pub transmitted: u64,
    /// IP packets neither from nor to the addresses of the host, if these are given; they count as received, as
    /// an adapter in promiscuous mode receives them.
    pub foreign: u64,
    /// Connections: 5-tuples, with both directions counted once.
    pub connections: u64,
    /// Flows (5-tuples of one direction) that the host receives.
    pub received_flows: u64,
    /// Packets that are not IP.
    pub not_ip: u64,
    /// IP fragments.
    pub fragments: u64,
    /// Packets with VLAN tags.
    pub vlan: u64,
    /// Packets with MPLS labels.
    pub mpls: u64,
    /// Packets whose IP header follows MPLS labels, PPPoE or more than two VLAN tags. Not every adapter
    /// finds it there.
    pub deep_ip_header: u64,
    /// Packets in a tunnel.
    pub tunnelled: u64,
    /// Packets that were truncated by the snap length of the capture.
    pub truncated: u64,
    /// Packets whose headers could not be parsed completely, by reason.
    pub parse_errors: BTreeMap<String, u64>,
    /// The verdicts on checksums, by what they are of: `ipv4`, `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`; with `inner_` in
    /// front for the innermost packet of a tunnel.
    pub checksums: BTreeMap<String, ChecksumCounts>,
    /// Size distribution of received flows: `[bytes, fraction of flows of at most this size]`.
    pub flow_size_cdf: Vec<(u64, f64)>,
    /// Memory of this analysis per connection.
    pub state_bytes_per_connection: u64,
}

/// Packets by the verdict on one of their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChecksumCounts {
    /// The checksum is correct.
    pub good: u64,
    /// It is wrong.
    pub bad: u64,
    /// It covers the pseudo header only: the packet was captured before its sender's adapter completed it.
    pub partial: u64,
    /// It was not verified: the sender left it out, or the capture does not have all that it covers.
    pub not_checked: u64,
}

/// The result of one policy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicySummary {
    /// The name of the policy, as given to `--policy`.
    pub name: String,
    /// A one-line description.
    pub title: String,
    /// Load of each receive queue.
    pub queues: Vec<LoadSummary>,
    /// Load of each receive queue over time.
    pub queues_over_time: LoadOverTime,
    /// Load of each core, as the core that processes the packet.
    pub cores: Vec<LoadSummary>,
    /// Imbalance of the load.
    pub imbalance: Imbalance,
    /// Fraction of received packets that reached the core of their consumer, of those that belong to a
    /// flow.
    pub locality: Option<f64>,
    /// Received packets by the stage that decided where they go.
    pub stages: BTreeMap<String, u64>,
    /// Packets that could be reordered.
    pub reorder: Reorder,
    /// The filter table, if the policy has one.
    pub filters: Option<Filters>,
    /// The verdict on each rule of the rule file, if the policy has one.
    pub rules: Vec<RuleSummary>,
    /// The moves of table entries, if the policy moves them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<RebalanceSummary>,
    /// The interrupts, if they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<crate::InterruptSummary>,
    /// Packets by the hardware counter that a rule selects, if a rule does.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<u16, u64>,
}

/// What moving entries of the indirection table did, beside the same traffic with the table left as it was.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RebalanceSummary {
    /// A queue is overloaded if its load is more than this many times the mean.
    pub even: f64,
    /// Time over which the load is measured.
    pub window_ns: u64,
    /// An entry moves if no packet has come for it in this time. Packets can only be overtaken if the old core is behind
    /// by more.
    pub pause_ns: u64,
    /// The most entries that move in a second.
    pub moves_per_second: u32,
    /// Time after which an entry moves without a pause; `null`: it stays.
    pub force_after_ns: Option<u64>,
    /// Moves of entries.
    pub moves: u64,
    /// Entries that moved at least once.
    pub moved_entries: u64,
    /// Moves without a pause.
    pub forced: u64,
    /// Moves that were made while the old core still had packets of the entry, by the queue-delay model. If there is none,
    /// no packet can be overtaken.
    pub early: u64,
    /// Load of the busiest queue over the mean: mean of the windows with at least ten packets for each queue.
    pub mean_imbalance: Option<f64>,
    /// The same if no entry had moved.
    pub mean_imbalance_of_rss: Option<f64>,
    /// These windows; in long captures each is the mean of several.
    pub windows: Vec<RebalanceWindow>,
    /// Number of entries that were to move, did not pause, and stayed.
    pub busy_entries: u64,
    /// The busiest ten of them.
    pub busy: Vec<BusyEntry>,
}

/// A window in which load was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RebalanceWindow {
    /// Its end, from the first packet on.
    pub end_s: f64,
    /// Load of the busiest queue over the mean, if no entry had moved.
    pub rss: f64,
    /// The same with the moves.
    pub rebalanced: f64,
    /// Moves in the window.
    pub moves: u64,
}

/// An entry that was to move, and did not pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BusyEntry {
    /// Its number.
    pub entry: u32,
    /// Its queue at the end.
    pub queue: u32,
    /// How often it was given up.
    pub times: u64,
    /// Its packets in the windows in which that happened.
    pub packets: u64,
}

/// Packets and wire bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoadSummary {
    /// Packets received.
    pub packets: u64,
    /// Wire bytes without FCS.
    pub bytes: u64,
}

/// The load of each receive queue over time, in equal slices from the first received packet on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LoadOverTime {
    /// Length of a slice.
    pub slice_s: f64,
    /// For each queue, the packets in each slice; empty for a queue without packets.
    pub packets: Vec<Vec<u32>>,
}

/// What an analysis means, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// What was found and what follows from it, in sentences.
    pub text: String,
    /// Commands for a shell of the host, in this order; `IFACE` stands for the name of the interface.
    pub commands: Vec<String>,
}

/// The ratio of the largest to the mean load. 1 is the best value; the worst is the number of queues
/// (or cores).
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Imbalance {
    /// Ratio for the queues over the whole capture, by packets.
    pub queues: Option<f64>,
    /// Ratio for the cores over the whole capture, by packets.
    pub cores: Option<f64>,
    /// Ratio for the cores: 99th percentile of the windows with at least ten packets per core.
    pub window_p99: Option<f64>,
    /// Number of windows with at least ten packets per core.
    pub windows: u64,
}

/// Packets that could overtake an earlier packet of their flow, according to the queue-delay model.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Reorder {
    /// Packets that could overtake.
    pub packets: u64,
    /// These packets as a fraction of the received packets.
    pub share: f64,
    /// Number of times that a flow changed its core.
    pub moves: u64,
}

/// The filter table of a policy.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Filters {
    /// The counters of the table.
    #[serde(flatten)]
    pub stats: FilterStats,
    /// Occupancy over time: `[seconds from the first packet, filters]`.
    pub occupancy_over_time: Vec<(f64, u32)>,
}

/// The verdict on a rule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RuleSummary {
    /// The line of the rule in the rule file.
    pub line: u32,
    /// The rule as written.
    pub rule: String,
    /// `accepted`, `merged` or `refused`.
    pub verdict: String,
    /// The reason for the verdict, and the fix for a refused rule.
    pub why: String,
    /// Packets that matched the rule.
    pub packets: u64,
    /// The hardware counter that counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<u16>,
    /// The interrupt class of its packets: `low-latency` or `high-bandwidth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moderation: Option<String>,
    /// The number that the receive descriptors of its packets have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u32>,
}

/// A flow above the elephant share.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Elephant {
    /// The flow, as received.
    pub flow: String,
    /// Wire bytes received.
    pub bytes: u64,
    /// Packets received.
    pub packets: u64,
    /// Fraction of all received bytes.
    pub share: f64,
    /// The effect on its core, by policy.
    pub policies: BTreeMap<String, ElephantCore>,
}

/// The effect of an elephant on its core under one policy.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ElephantCore {
    /// The core of its last packet.
    pub final_core: u16,
    /// Number of times that the flow changed its core.
    pub moves: u32,
    /// Fraction of the bytes of the final core that are of this flow, since it last moved there.
    pub share_of_core: f64,
}
