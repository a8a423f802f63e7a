//! What goes into the table's commands besides the key, and what comes back.

use serde::Serialize;

use super::{Action, Unmatched};

/// FDIRCTRL's two limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// MAX_LENGTH: filters of a list that hit without a LENGTH error.
    pub max_length: u16,
    /// FULL_THRESH x 16: the near-full interrupt comes when this many filters are free.
    pub full_threshold: u16,
}

impl Default for Limits {
    /// What both Linux drivers set: 10, and 4 x 16.
    fn default() -> Self {
        Self { max_length: 10, full_threshold: 64 }
    }
}

/// What an add did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// A filter more.
    Added,
    /// An equal filter had its action changed (FILTER_UPDATE).
    Updated,
    /// A filter more beside an equal one, which goes on winning: a filter wasted.
    Duplicate,
}

/// The answer to an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Added {
    /// What happened.
    pub outcome: Outcome,
    /// The filter's slot.
    pub slot: u16,
    /// This add made the near-full interrupt.
    pub near_full: bool,
}

/// The filter that a frame hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// Its slot.
    pub slot: u16,
    /// Its bucket.
    pub bucket: u16,
    /// Its place in the list, from 1.
    pub position: u16,
    /// What the receive descriptor reports: the soft id, or the signature with bit 15 set.
    pub id: u16,
    /// What it does.
    pub action: Action,
    /// FDIRERR.LENGTH: it stands beyond MAX_LENGTH in its list.
    pub length_error: bool,
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
