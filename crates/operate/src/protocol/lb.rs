//! What is asked of a balancer, and answered.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A balancer: its services, as they are.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Lb {
    /// When that was, in seconds since the yard was started.
    pub at_s: f64,
    /// The number of the plan that cores go by: every change makes a higher one.
    pub generation: u64,
    /// In the order of the configuration.
    pub services: Vec<LbService>,
    /// Tables of connections, by core.
    pub cores: Vec<LbCore>,
}

/// A service.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbService {
    /// Its name.
    pub name: String,
    /// The address that clients know.
    pub vip: String,
    /// `tcp`, `udp` or `sctp`.
    pub proto: String,
    /// The port that clients know, or ports as `5000-5010`.
    pub ports: String,
    /// `dsr`, `dnat`, `fullnat`, `ipip` or `gue`.
    pub mode: String,
    /// `maglev`, `source`, `roundrobin` or `least`.
    pub choice: String,
    /// Of its Maglev table, in hexadecimal: equal on machines that send the same connections to the
    /// same backends.
    pub checksum: String,
    /// Entries of that table; 0 if no backend takes connections.
    pub entries: u32,
    /// Its backends that are up.
    pub up: usize,
    /// What happens when all are down: `drop` or `use`.
    pub all_down: String,
    /// What was counted, for backends that are gone now too.
    pub counts: LbCounts,
    /// Its backends, in the order of the configuration.
    pub backends: Vec<LbBackend>,
}

/// What is counted for a service, or a backend.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbCounts {
    /// Connections that began.
    pub connections: u64,
    /// Packets of clients that went to a backend.
    pub in_packets: u64,
    /// Their bytes, Ethernet headers included, as the clients sent them.
    pub in_bytes: u64,
    /// Answers that came back this way: none with `dsr`, `ipip` and `gue`.
    pub out_packets: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// A backend.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbBackend {
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// Its port, if it is another than the client's.
    pub port: Option<u16>,
    /// `up`, `down`, `drained` (by hand, by the configuration or by weight 0) or `starting` (slowly).
    pub state: String,
    /// Since when it is up, or down, in seconds since the yard was started.
    pub since_s: f64,
    /// Whether it is drained by hand.
    pub drained: bool,
    /// The weight in the configuration.
    pub configured_weight: u32,
    /// The weight that was set by hand.
    pub set_weight: Option<u32>,
    /// The weight that new connections go by: health, drain and slow start are in it.
    pub weight: f64,
    /// Its part of the service's table, from 0 to 1.
    pub share: f64,
    /// Connections that it has.
    pub connections: u32,
    /// What was counted.
    pub counts: LbCounts,
    /// Its last check, if it was checked.
    pub check: Option<LbCheck>,
}

/// What came of a check.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbCheck {
    /// `tcp`, `http`, `https`, `udp` or `command`.
    pub kind: String,
    /// When it ended, in seconds since the yard was started.
    pub at_s: f64,
    /// How long it took.
    pub took_s: f64,
    /// What was wrong.
    pub fault: Option<String>,
    /// Checks so far.
    pub checks: u64,
    /// Of these, those that something was wrong with.
    pub faults: u64,
}

/// A core's table of connections.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbCore {
    /// The core.
    pub core: usize,
    /// Connections that it keeps.
    pub connections: usize,
    /// Of these, those that are opening: a SYN came, and nothing else.
    pub opening: usize,
    /// The most.
    pub capacity: usize,
}

/// Which backend a flow goes to, and why.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbTrace {
    /// The flow that was asked about.
    pub flow: String,
    /// The plan that the answer goes by.
    pub generation: u64,
    /// Its service.
    pub service: Option<String>,
    /// Its backend; none if there is none, or if only the core that gets it knows.
    pub backend: Option<String>,
    /// That backend's address.
    pub addr: Option<String>,
    /// `connection`, `maglev`, `source`, `least`, `roundrobin`, `no_backend`, `no_service` or `answer`.
    pub why: String,
    /// The whole of it, step by step.
    pub steps: Vec<String>,
    /// The reason for which its packets are dropped, if they are.
    pub drop: Option<String>,
    /// What can be done about that.
    pub mend: Option<String>,
}

/// What a change by hand came to.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LbChange {
    /// The service.
    pub service: String,
    /// The backend.
    pub backend: String,
    /// The plan that the change made.
    pub generation: u64,
    /// As in [`LbBackend::state`].
    pub state: String,
    /// Whether it is drained by hand.
    pub drained: bool,
    /// The weight that was set by hand.
    pub set_weight: Option<u32>,
    /// The weight that new connections go by from now on.
    pub weight: f64,
    /// Connections that it has still.
    pub connections: u32,
    /// What else there is to know.
    pub note: Option<String>,
}
