//! One frame in the form that all policies use.

use flowyard_frame::{FlowKey, Nanos};

use crate::flows::FlowId;

/// A frame of the current burst, with everything that does not depend on the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// The fields of the header, outer or inner, that the adapter hashes and matches.
    pub(crate) key: FlowKey,
    /// The type of an ICMP or ICMPv6 message, which the key does not have.
    pub(crate) icmp_type: Option<u8>,
    /// The time of arrival, which never decreases.
    pub(crate) now: Nanos,
    /// Length on the wire in bytes, without FCS.
    pub(crate) wire_len: u32,
    /// Whether the host receives the frame; otherwise the host transmits it.
    pub(crate) received: bool,
    /// The flow, and the core on which its consumer runs now; `None` for frames that are not IP.
    pub(crate) flow: Option<(FlowId, u16)>,
    /// The adapter's RSS hash. For a transmitted frame it is the hash of the opposite direction.
    pub(crate) hash: Option<u32>,
    /// Whether the driver tells Linux that the hash covers the ports (L4).
    pub(crate) l4_hash: bool,
    /// The queue that RSS selects. For a transmitted frame it is that of the opposite direction.
    pub(crate) rss_queue: u16,
    /// The queue that RSS selects for this frame, if it came from the network; set only if there are tenants.
    pub(crate) own_queue: u16,
}

impl Packet {
    /// A received frame of which nothing but these is known.
    pub(crate) const fn new(key: FlowKey, now: Nanos, wire_len: u32) -> Self {
        Self {
            key,
            icmp_type: None,
            now,
            wire_len,
            received: true,
            flow: None,
            hash: None,
            l4_hash: false,
            rss_queue: 0,
            own_queue: 0,
        }
    }
}
