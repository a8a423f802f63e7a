//! One frame as every policy sees it.

use flowyard_frame::{FlowKey, Nanos};

use crate::flows::FlowId;

/// A frame of the current burst, with everything that the policies share worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// The header fields at the tunnel level that the adapter looks at.
    pub(crate) key: FlowKey,
    /// When it came; never goes back.
    pub(crate) now: Nanos,
    /// Length on the wire.
    pub(crate) wire_len: u32,
    /// The host receives it; else the host transmits it.
    pub(crate) received: bool,
    /// Its flow and the core its consumer runs on now; `None` outside IP.
    pub(crate) flow: Option<(FlowId, u16)>,
    /// The adapter's RSS hash; of a transmitted frame, the hash of the frames that answer it.
    pub(crate) hash: Option<u32>,
    /// The queue RSS gives it.
    pub(crate) rss_queue: u16,
}
