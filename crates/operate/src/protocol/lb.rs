//! Answers about a balancer.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a balancer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Lb {
    /// When the state was read, in seconds since the engine was started.
    pub at_s: f64,
    /// The number of the plan that the cores use. It increases with every change.
    pub generation: u64,
    /// The services, in the order of the configuration.
    pub services: Vec<LbService>,
    /// The connection table of each core.
    pub cores: Vec<LbCore>,
    /// The routes to the VIPs; empty if the configuration announces none.
    #[serde(default)]
    pub routes: Vec<LbRoute>,
    /// The synchronization of connections with other nodes; `null` if it is not configured.
    #[serde(default)]
    pub sync: Option<LbSync>,
}

/// The synchronization of connections with other nodes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbSync {
    /// The connections of this node that it has reported, because the Maglev table does not name their backends.
    pub reported: u64,
    /// The connections of other nodes that this node stores.
    pub stored: u64,
    /// How many of them were replaced by others because there was no room.
    pub evicted: u64,
    /// The number of scans of the connection tables so far.
    pub scans: u64,
    /// The duration of the last scan of the connection tables, in seconds.
    pub scan_s: f64,
    /// The connections that the last scan has looked at.
    pub scanned: u64,
    /// Ends of connections that were not sent to other nodes, because too many were seen at once.
    #[serde(default)]
    pub dropped_ends: u64,
    /// The connections of this node that are closing because another node has seen the end of what the client sends.
    #[serde(default)]
    pub closed: u64,
    /// The other nodes.
    pub peers: Vec<LbPeer>,
}

/// Another node with which connections are synchronized.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbPeer {
    /// Its address and port.
    pub address: String,
    /// Whether this node has a session to it.
    pub sends: bool,
    /// Whether it has a session to this node.
    pub receives: bool,
    /// Whether it has reported all its connections since this node was started.
    pub is_complete: bool,
    /// Reports of connections that were sent to it.
    pub sent: u64,
    /// Bytes that were sent to it, without the headers of TCP and IP.
    pub sent_bytes: u64,
    /// Reports of connections that it has sent.
    pub received: u64,
    /// Bytes that it has sent.
    pub received_bytes: u64,
    /// Ends of connections that were sent to it.
    #[serde(default)]
    pub sent_ends: u64,
    /// Ends of connections that it has sent.
    #[serde(default)]
    pub received_ends: u64,
    /// Why there is no session to it.
    pub error: Option<String>,
}

/// Whether a VIP is announced to the routing daemon of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbRoute {
    /// The virtual IP address.
    pub vip: String,
    /// Whether the kernel has the route.
    pub is_announced: bool,
    /// Why it does not have it.
    pub why: Option<String>,
}

/// The routes after a change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbRoutes {
    /// The routes to the VIPs.
    pub routes: Vec<LbRoute>,
}

/// The state of a service.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbService {
    /// The name in the configuration.
    pub name: String,
    /// The virtual IP address that clients connect to.
    pub vip: String,
    /// `tcp`, `udp` or `sctp`.
    pub proto: String,
    /// The destination port, or the range of ports as `5000-5010`.
    pub ports: String,
    /// `dsr`, `dnat`, `fullnat`, `ipip` or `gue`.
    pub mode: String,
    /// `maglev`, `source`, `roundrobin`, `least`, `wlc`, `nq`, `fo` or `ovf`.
    pub choice: String,
    /// Checksum of the Maglev table in hexadecimal. It is equal on machines that send the same
    /// connections to the same backends.
    pub checksum: String,
    /// Size of the Maglev table; 0 if no backend accepts new connections.
    pub entries: u32,
    /// The number of backends that are up.
    pub up: usize,
    /// The behaviour when all backends are down: `drop` or `use`.
    pub all_down: String,
    /// Totals since the service was added, including those of backends removed since.
    pub counters: LbCounts,
    /// Whether each datagram is placed by itself.
    #[serde(default)]
    pub one_packet: bool,
    /// How connections of a client's network stay with one backend; null if they do not.
    #[serde(default)]
    pub persist: Option<LbPersist>,
    /// The number of entries in the tables of all cores.
    pub entries_held: usize,
    /// The number of unestablished connections among them.
    pub unestablished: usize,
    /// The backends, in the order of the configuration.
    pub backends: Vec<LbBackend>,
}

/// How connections of clients' networks stay with backends, and what became of new ones.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbPersist {
    /// The time in seconds without new connections after which the backend of a network is forgotten.
    pub seconds: u64,
    /// The leading bits of an IPv4 address that are the network.
    pub mask_ipv4: u8,
    /// The leading bits of an IPv6 address that are the network.
    pub mask_ipv6: u8,
    /// Whether new connections of a network still go to its backend while this is drained: `keep` or `move`.
    pub drained: String,
    /// The most networks that are stored.
    pub capacity: usize,
    /// Networks that have a backend now.
    pub networks: u64,
    /// Connections that went to the backend that their network had.
    pub kept: u64,
    /// Networks that were given a backend.
    pub given: u64,
    /// Networks that were given another backend, because theirs was down, removed, drained or at its limit.
    pub moved: u64,
    /// Networks that were forgotten before their time, because there was no room for another one.
    pub evicted: u64,
}

/// Traffic counters of a service or a backend.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbCounts {
    /// Connections that were opened.
    pub connections: u64,
    /// Connections that another node has had before, as it has reported (`[balance.sync]`). They are not among `connections`.
    #[serde(default)]
    pub resumed: u64,
    /// New connections that a backend did not get because it had reached its `max_connections`.
    #[serde(default)]
    pub passed_over: u64,
    /// New connections that a backend did not get because the client's port has one to it through another service, and replies
    /// that could belong to two services.
    #[serde(default)]
    pub ambiguous: u64,
    /// Segments that passed without the TCP option with the client's address (`toa`), because it had no room.
    #[serde(default)]
    pub toa_omitted: u64,
    /// Packets from clients that were forwarded to a backend.
    pub in_packets: u64,
    /// Bytes of `in_packets`, with Ethernet headers, as the clients sent them.
    pub in_bytes: u64,
    /// Replies that returned through the balancer; 0 with the modes `dsr`, `ipip` and `gue`.
    pub out_packets: u64,
    /// Bytes of `out_packets`, with Ethernet headers.
    pub out_bytes: u64,
    /// Packets among `in_packets` and `out_packets` that XDP answered, see `[offload]`.
    #[serde(default)]
    pub offloaded_packets: u64,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Entries that were evicted for new connections, by the limit that these had reached: `unestablished`,
    /// `service`, `table` or `local_ports`.
    pub evicted: BTreeMap<String, u64>,
    /// Packets of new connections that got no entry, by the limit that was reached, as in `evicted`. Only services
    /// count them.
    pub refused: BTreeMap<String, u64>,
}

/// The state of a backend.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbBackend {
    /// The name in the configuration.
    pub name: String,
    /// The address that packets are forwarded to.
    pub addr: String,
    /// The destination port after translation; null keeps the client's.
    pub port: Option<u16>,
    /// `up`, `down`, `drained` (manually, by the configuration or by weight 0), `standby` (a backup while another
    /// backend of the service accepts new connections), `full` (it has reached its limit of connections) or `starting` (in slow
    /// start).
    pub state: String,
    /// When it last came up or went down, in seconds since the engine was started.
    pub since_s: f64,
    /// Whether it is drained manually, which is independent of the configuration.
    pub manually_drained: bool,
    /// Whether it is a backup: it gets new connections only while no other backend of the service accepts any.
    #[serde(default)]
    pub is_backup: bool,
    /// The weight in the configuration.
    pub configured_weight: u32,
    /// The weight that was set manually.
    pub manual_weight: Option<u32>,
    /// The effective weight for new connections. It includes health, drain and slow start.
    pub weight: f64,
    /// Share of the entries of the service's Maglev table, from 0 to 1.
    pub share: f64,
    /// Current connections.
    pub connections: u32,
    /// The number of connections with which it accepts no new ones; null if it has no limit.
    #[serde(default)]
    pub max_connections: Option<u32>,
    /// After that it accepts new ones when it has less connections than this.
    #[serde(default)]
    pub resume_connections: Option<u32>,
    /// Whether it accepts no new connections because of its limit.
    #[serde(default)]
    pub is_full: bool,
    /// Totals since the backend was added.
    pub counters: LbCounts,
    /// The last health check, if there was one.
    pub check: Option<LbCheck>,
    /// What the checks of all nodes say, if nodes agree on the health of this backend.
    #[serde(default)]
    pub votes: Option<LbVotes>,
}

/// What the health checks of all nodes say of a backend.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbVotes {
    /// Whether it is up by the checks of this node.
    pub own: bool,
    /// The number of nodes by whose checks it is up, with this one.
    pub up: usize,
    /// The number of nodes whose checks are known, with this one.
    pub known: usize,
    /// The number of all nodes.
    pub nodes: usize,
}

/// The last health check of a backend.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbCheck {
    /// `tcp`, `http`, `https`, `udp`, `dns`, `grpc` or `command`.
    pub kind: String,
    /// When it ended, in seconds since the engine was started.
    pub at_s: f64,
    /// The duration in seconds.
    pub took_s: f64,
    /// Why it failed; null if it passed.
    pub failure: Option<String>,
    /// The number of checks so far.
    pub checks: u64,
    /// The number of failed checks so far.
    pub failures: u64,
}

/// The connection table of a core.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbCore {
    /// Number of the core, from 0.
    pub core: usize,
    /// The number of connections in the table.
    pub connections: usize,
    /// The number of half-open connections: the client sent a SYN and nothing else yet.
    pub opening: usize,
    /// The number of unestablished connections: the backend has not answered, or the client has sent one packet.
    pub unestablished: usize,
    /// The number of connections whose packets XDP answers, see `[offload]`.
    #[serde(default)]
    pub offloaded: usize,
    /// The number of connections whose packets adapters were asked to mark, see `[offload]`.
    #[serde(default)]
    pub marked: usize,
    /// Packets whose connection was found by the mark of an adapter, without a lookup.
    #[serde(default)]
    pub marked_packets: u64,
    /// The largest number of connections.
    pub capacity: usize,
}

/// The backend that a flow goes to, and the reason.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbTrace {
    /// The flow in the request.
    pub flow: String,
    /// The number of the plan from which the answer was computed.
    pub generation: u64,
    /// The service of the flow, if there is one.
    pub service: Option<String>,
    /// The backend; null if there is none, or if only the receiving core can determine it.
    pub backend: Option<String>,
    /// The address of the backend.
    pub addr: Option<String>,
    /// What decides: `connection` (an entry of the connection table), `maglev`, `source`, `least`, `wlc`, `nq`, `fo`, `ovf`,
    /// `roundrobin` (the service's choice), `network` (the network of the client has a backend), `reported` (another node has reported
    /// the connection), `no_backend`, `backend_limit` (every backend has reached its
    /// limit of connections), `no_service`, or `answer` (the flow is a
    /// reply of a backend).
    pub why: String,
    /// The decision step by step, as sentences.
    pub steps: Vec<String>,
    /// The name of the drop reason, if packets of the flow are dropped.
    pub drop_reason: Option<String>,
    /// What can be done about the drop.
    pub fix: Option<String>,
}

/// The result of a manual change.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbChange {
    /// The name of the service.
    pub service: String,
    /// The name of the backend.
    pub backend: String,
    /// The number of the plan with the change.
    pub generation: u64,
    /// As in [`LbBackend::state`].
    pub state: String,
    /// Whether the backend is drained manually.
    pub manually_drained: bool,
    /// The weight that was set manually.
    pub manual_weight: Option<u32>,
    /// The effective weight for new connections after the change.
    pub weight: f64,
    /// Current connections, which are not affected by the change.
    pub connections: u32,
    /// A remark for the user, for example why the change has no effect yet.
    pub note: Option<String>,
}

/// Which connections to list, or to count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LbConnectionsRequest {
    /// The name of a service.
    pub service: Option<String>,
    /// The name of a backend of that service.
    pub backend: Option<String>,
    /// The address of a client, or a network such as `203.0.113.0/24`.
    pub client: Option<String>,
    /// One of [`LbConnectionsRequest::STATES`].
    pub state: Option<String>,
    /// One of [`LbConnectionsRequest::GROUPS`]: connections are counted by it, and not listed.
    pub by: Option<String>,
    /// The most connections, or groups, in the answer.
    pub limit: usize,
}

impl LbConnectionsRequest {
    /// What can be asked about the state of a connection.
    pub const STATES: [&'static str; 6] =
        ["opening", "open", "closing", "datagrams", "established", "unestablished"];
    /// By what connections can be counted.
    pub const GROUPS: [&'static str; 3] = ["service", "backend", "client"];
    /// The largest limit.
    pub const MOST: usize = 100_000;
}

impl Default for LbConnectionsRequest {
    fn default() -> Self {
        Self { service: None, backend: None, client: None, state: None, by: None, limit: 100 }
    }
}

/// Entries of the connection tables of all cores.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbConnections {
    /// When the reading of the tables began, in seconds since the engine was started.
    pub at_s: f64,
    /// The number of the plan that names services and backends.
    pub generation: u64,
    /// Entries in the tables of all cores.
    pub entries: u64,
    /// Entries that the filters select.
    pub selected: u64,
    /// Selected connections, or groups if there are any, that are not in the answer because of the limit.
    pub left_out: u64,
    /// Some of the selected entries, core by core; empty if they are counted by something.
    pub connections: Vec<LbConnection>,
    /// By what the entries are counted: `service`, `backend` or `client`; null if they are listed.
    pub by: Option<String>,
    /// The numbers of entries, the largest first.
    pub groups: Vec<LbGroup>,
    /// Selected entries whose client is not counted, because there are too many clients.
    pub ungrouped: u64,
}

/// An entry of a connection table.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbConnection {
    /// `tcp`, `udp` or `sctp`.
    pub proto: String,
    /// Address and port of the client.
    pub client: String,
    /// Address and port that the client sends to.
    pub vip: String,
    /// The service; null if no service has this address and port any more.
    pub service: Option<String>,
    /// The backend; null if it was removed.
    pub backend: Option<String>,
    /// Address and port of the backend; without the port if it is the one that the client sends to.
    pub addr: Option<String>,
    /// Address and port that the balancer has towards the backend, with `fullnat`.
    pub local: Option<String>,
    /// `opening` (the client has sent a SYN only), `open`, `closing` (after a FIN or RST), or `datagrams` (UDP).
    pub state: String,
    /// Whether it is established; see Floods in docs/balance.md.
    pub is_established: bool,
    /// The time since the last packet in seconds, up to 0.14 too small. If the connection is offloaded, since the last packet that the balancer knows.
    pub idle_s: f64,
    /// The time in seconds until the entry expires if no packet comes.
    pub expires_in_s: f64,
    /// The core that has the entry.
    pub core: u16,
    /// Whether another core has the entry by which the connection is counted.
    pub is_copy: bool,
    /// Whether XDP answers its packets.
    pub is_offloaded: bool,
}

/// The number of entries of a service, backend or client.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbGroup {
    /// The service, if entries are counted by service or backend; null for entries of no service.
    pub service: Option<String>,
    /// The backend, if entries are counted by backend; null for those of removed backends.
    pub backend: Option<String>,
    /// The address of the client, if entries are counted by client.
    pub client: Option<String>,
    /// Entries.
    pub entries: u64,
    /// Established connections among them.
    pub established: u64,
    /// Entries among them by which connections are not counted, because another core has one.
    pub copies: u64,
}
