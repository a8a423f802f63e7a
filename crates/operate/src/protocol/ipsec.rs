//! Answers about IPsec. No answer has a key.
//!
//! Thread-safety: plain data.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The security associations of a gateway.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sas {
    /// In the order of the configured file.
    pub sas: Vec<SaState>,
    /// Counters that belong to no SA.
    pub counters: BTreeMap<String, u64>,
}

/// A security association.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SaState {
    /// `in` or `out`.
    pub direction: String,
    /// The source of packets with ESP.
    pub src: String,
    /// The destination of packets with ESP.
    pub dst: String,
    /// The security parameters index.
    pub spi: u32,
    /// The number by which policies find it.
    pub reqid: u32,
    /// `tunnel` or `transport`.
    pub mode: String,
    /// The algorithms.
    pub suite: String,
    /// Whether packets are in UDP.
    pub is_udp: bool,
    /// Whether sequence numbers have 64 bits.
    pub is_extended: bool,
    /// The highest sequence number: sent, or accepted.
    pub number: u64,
    /// The configured anti-replay window.
    pub window: u32,
    /// Whether it carries packets: an outbound SA ends with its limits.
    pub is_usable: bool,
    /// The limit of packets; absent without one.
    pub hard_packets: Option<u64>,
    /// The limit of bytes; absent without one.
    pub hard_bytes: Option<u64>,
    /// The counters.
    pub counters: BTreeMap<String, u64>,
}
