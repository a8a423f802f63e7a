//! The reasons for which the filter table refuses a command, and the frames it never matches.

use serde::Serialize;

/// The reason for which Flow Director matches a frame against no filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum Unmatched {
    /// The frame is neither IPv4 nor IPv6.
    #[error("the frame is not IP, and Flow Director matches only IP")]
    NotIp,
    /// The frame is a fragment, the first or a later one.
    #[error("the frame is an IP fragment, and Flow Director never matches fragments")]
    Fragment,
    /// The frame is IPv6 and the table is in perfect mode.
    #[error("the frame is IPv6, and perfect filters match only IPv4; signature mode matches IPv6")]
    Ipv6,
}

/// The reason for which the table refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No filter is free.
    #[error(
        "the filter table is full ({0} filters); remove a filter, flush the table, or give it more of the packet buffer"
    )]
    Full(u32),
    /// No frame can match the filter.
    #[error("no frame can match this filter: {0}")]
    Unmatched(#[from] Unmatched),
    /// The filter cannot address the queue.
    #[error("queue {0}: a filter can steer to queues 0 to 126 (127 drops)")]
    Queue(u16),
    /// A drop action in signature mode.
    #[error("signature filters cannot drop; use perfect mode")]
    DropInSignature,
    /// A counter, an interrupt class or a value that this series does not have.
    #[error("a filter of the 500 series has no {0}")]
    NoSuchAction(&'static str),
    /// Ports are matched although the L4 type is not.
    #[error("ports are matched but the L4 type is not; match the L4 type, or mask out the ports")]
    PortsWithoutL4,
    /// The offset of the flexible bytes is not supported.
    #[error("flexible bytes at offset {0}; use an even offset from 0 to 62")]
    FlexOffset(u8),
    /// The mask set cannot change while filters are installed.
    #[error("the port has one mask set, which {0} filters use; remove them before changing it")]
    MaskInUse(u32),
    /// The filter to remove does not exist.
    #[error("no filter with id {id} in bucket 0x{bucket:x}")]
    NotFound {
        /// The bucket that was searched.
        bucket: u16,
        /// The soft id or signature that was searched for.
        id: u16,
    },
}
