//! The frames of each tenant as plain data.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// The frames of the tenants, and those of nobody.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TenantsSummary {
    /// The name of the file.
    pub file: String,
    /// How the 128 queues are divided: `64x2`, `32x4`, `dcb32x4` or `dcb16x8`.
    pub layout: String,
    /// The pool of frames for nobody; `null`: they are dropped.
    pub default_pool: Option<u8>,
    /// The pools that a line names or that got frames, in order.
    pub pools: Vec<PoolSummary>,
    /// Frames from the network that no pool got, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Frames from the network that the management controller got, by filter; `null` without a `bmc` line.
    pub management: Option<BTreeMap<String, u64>>,
    /// What the adapter or its driver does not do as the file asks.
    pub remarks: Vec<String>,
}

/// The frames of one pool.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct PoolSummary {
    /// The number of the pool.
    pub pool: u8,
    /// The tenant; `null` if no line names the pool.
    pub tenant: Option<String>,
    /// `pool`, `vf` or `pf`.
    pub place: Option<String>,
    /// Frames that it got, from the network and from other pools.
    pub packets: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Frames by receive queue of the port.
    pub queues: BTreeMap<u16, u64>,
    /// Frames that it transmitted to the network.
    pub to_network: u64,
    /// Frames that it transmitted to other pools without leaving the adapter.
    pub local: u64,
    /// Frames that it transmitted and that the adapter dropped, by reason.
    pub spoofed: BTreeMap<String, u64>,
}
