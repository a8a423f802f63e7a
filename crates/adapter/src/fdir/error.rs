//! Why the filter table refuses a command, and which frames Flow Director never matches.

use serde::Serialize;

/// Why Flow Director does not look at a frame at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum Unmatched {
    /// Not IPv4 or IPv6.
    #[error("the frame is not IP, and Flow Director matches only IP")]
    NotIp,
    /// A fragment, first or later.
    #[error("the frame is an IP fragment, and Flow Director never matches fragments")]
    Fragment,
    /// IPv6, in perfect mode.
    #[error("the frame is IPv6, and perfect filters match only IPv4; signature mode matches IPv6")]
    Ipv6,
}

/// Why the table refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No filter is free.
    #[error(
        "the filter table is full: {0} filters; remove one, flush, or choose a larger carve-out"
    )]
    Full(u32),
    /// The filter could never hit.
    #[error("no frame would ever hit this filter: {0}")]
    Unmatched(#[from] Unmatched),
    /// A queue out of reach.
    #[error("queue {0}: a filter names queues 0 to 126 (127 drops)")]
    Queue(u16),
    /// Drop in signature mode.
    #[error("signature filters cannot drop; use perfect mode")]
    DropInSignature,
    /// A counter, an interrupt class or a value that this series lacks.
    #[error("a filter of the 500 series has no {0}")]
    NoSuchAction(&'static str),
    /// Port masks without the L4 type.
    #[error("ports are compared but the L4 type is not; compare the L4 type, or mask the ports")]
    PortsWithoutL4,
    /// An offset that flex bytes cannot have.
    #[error("flex bytes at offset {0}; use an even offset from 0 to 62")]
    FlexOffset(u8),
    /// Another mask while filters are in.
    #[error("the port has one mask set and {0} filters use it; remove them first")]
    MaskInUse(u32),
    /// Nothing to remove.
    #[error("no filter with id {id} in bucket 0x{bucket:x}")]
    NotFound {
        /// The bucket.
        bucket: u16,
        /// The soft id or signature.
        id: u16,
    },
}
