//! The result of an analysis as plain data: what `flowyard analyze --json` prints, field by field
//! (schema `flowyard.analyze/1`). Ratios are fractions, times are in the unit that the name ends in.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Everything an analysis found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Analysis {
    /// The captures read, in order.
    pub captures: Vec<Capture>,
    /// The adapter and host that were modelled.
    pub setup: SetupSummary,
    /// What was in the captures.
    pub traffic: Traffic,
    /// What each policy did with it, in the order asked for.
    pub policies: Vec<PolicySummary>,
    /// Received flows above the elephant share, largest first.
    pub elephants: Vec<Elephant>,
    /// Things the reader should know, in sentences.
    pub notes: Vec<String>,
}

/// One capture file.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Capture {
    /// Its name as given.
    pub file: String,
    /// Packets read.
    pub packets: u64,
    /// Packets left out by the reader, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Where the file is damaged, if it is.
    pub damage: Option<String>,
}

/// The adapter and host that were modelled.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SetupSummary {
    /// The adapter's name.
    pub adapter: String,
    /// Receive queues.
    pub queues: u16,
    /// Receive queues that RSS reaches on this adapter.
    pub rss_queues: u16,
    /// Entries of the indirection table.
    pub indirection_entries: u32,
    /// The hash key, in hex.
    pub rss_key: String,
    /// Cores; queue q interrupts core q modulo this.
    pub cores: u16,
    /// Which side of each connection the host is.
    pub local: String,
    /// How connections get their consumer's core.
    pub consumers: String,
    /// A thread moves to another core every so often; 0 is never.
    pub migrate_every_ns: u64,
    /// Thread moves that happened.
    pub migrations: u64,
    /// The queue-delay model: cost of a frame on a core.
    pub service_ns: u64,
    /// Cost of passing a frame to another core (RPS, RFS).
    pub dispatch_ns: u64,
    /// Extra delay by core, where set.
    pub core_delay_ns: Vec<u64>,
    /// A flow above this fraction of the received bytes is an elephant.
    pub elephant_share: f64,
    /// Width of an imbalance window.
    pub window_ns: u64,
    /// The tunnel level that the adapter looks at.
    pub tunnels: String,
}

/// What was in the captures.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Traffic {
    /// Packets, both directions.
    pub packets: u64,
    /// Wire bytes, both directions, without FCS.
    pub bytes: u64,
    /// From the first to the last time stamp.
    pub duration_s: f64,
    /// Packets the host receives.
    pub received: u64,
    /// Packets the host transmits.
    pub transmitted: u64,
    /// Connections (5-tuples, both directions together).
    pub connections: u64,
    /// Flows (one direction) that the host receives.
    pub received_flows: u64,
    /// Packets that are not IP.
    pub not_ip: u64,
    /// IP fragments.
    pub fragments: u64,
    /// Packets with VLAN tags.
    pub vlan: u64,
    /// Packets with MPLS labels.
    pub mpls: u64,
    /// Packets with their IP header behind MPLS labels, PPPoE or more than two VLAN tags, where not
    /// every adapter finds it.
    pub buried: u64,
    /// Packets in a tunnel.
    pub tunnelled: u64,
    /// Packets cut by the capture's snap length.
    pub snapped: u64,
    /// Packets whose headers could not be parsed to the end, by reason.
    pub faults: BTreeMap<String, u64>,
    /// Received flows by size: `[bytes, fraction of flows at most this large]`.
    pub flow_size_cdf: Vec<(u64, f64)>,
    /// Memory that one connection took in this analysis.
    pub state_bytes_per_connection: u64,
}

/// What one policy did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicySummary {
    /// The policy's name as given to `--policy`.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// Load per receive queue.
    pub queues: Vec<LoadSummary>,
    /// Load per processing core.
    pub cores: Vec<LoadSummary>,
    /// Load imbalance.
    pub imbalance: Imbalance,
    /// Fraction of received packets of flows that reached the core of their consumer.
    pub locality: Option<f64>,
    /// Received packets by the stage that decided.
    pub stages: BTreeMap<String, u64>,
    /// Reorder exposure.
    pub reorder: Reorder,
    /// The hardware filter table, where the policy has one.
    pub filters: Option<Filters>,
    /// What became of each rule of the rule file, where the policy has one.
    pub rules: Vec<RuleSummary>,
}

/// Packets and wire bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoadSummary {
    /// Packets.
    pub packets: u64,
    /// Wire bytes without FCS.
    pub bytes: u64,
}

/// Largest over mean load; 1 is perfect, the number of queues (or cores) is the worst.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Imbalance {
    /// Of the queues, over the whole capture, by packets.
    pub queues: Option<f64>,
    /// Of the cores, over the whole capture, by packets.
    pub cores: Option<f64>,
    /// Of the cores, 99th percentile of the windows with at least ten packets a core.
    pub window_p99: Option<f64>,
    /// Windows that had at least ten packets a core.
    pub windows: u64,
}

/// Packets that could overtake an earlier packet of their flow, under the queue-delay model.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Reorder {
    /// Exposed packets.
    pub packets: u64,
    /// As a fraction of the received packets.
    pub share: f64,
    /// How often a flow changed cores.
    pub moves: u64,
}

/// A hardware filter table's life.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Filters {
    /// Filters in the table at the end.
    pub occupancy: u32,
    /// Filters that fit.
    pub capacity: u32,
    /// Filters added.
    pub adds: u64,
    /// Filters that got another queue.
    pub updates: u64,
    /// Adds refused by a full table.
    pub failed_adds: u64,
    /// Filters removed.
    pub removes: u64,
    /// Filters evicted or expired.
    pub evictions: u64,
    /// Packets and samples that met a filter of another flow.
    pub aliases: u64,
    /// Times the whole table was flushed.
    pub flushes: u64,
    /// Received packets that matched.
    pub hits: u64,
    /// Received packets that did not.
    pub misses: u64,
    /// Occupancy over time: `[seconds from the start, filters]`.
    pub occupancy_over_time: Vec<(f64, u32)>,
}

/// What became of a rule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RuleSummary {
    /// Its line in the rule file.
    pub line: u32,
    /// The rule as written.
    pub rule: String,
    /// `accepted`, `merged` or `refused`.
    pub verdict: String,
    /// Why, and the mend.
    pub why: String,
    /// Packets that matched it.
    pub packets: u64,
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
    /// What it does to its core, by policy.
    pub cores: BTreeMap<String, ElephantCore>,
}

/// What an elephant does to its core under one policy.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ElephantCore {
    /// The core it is on at the end.
    pub core: u16,
    /// How often it changed cores.
    pub moves: u32,
    /// The fraction of that core's bytes that is this flow (since it last moved there).
    pub share_of_core: f64,
}
