//! What goes into the table's commands besides the key, and what comes back.

use serde::Serialize;

use super::action::Action;

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
