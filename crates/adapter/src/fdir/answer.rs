//! The limits of the filter table, and the results of its commands.

use serde::Serialize;

use super::action::Action;

/// The two limits in the FDIRCTRL register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// MAX_LENGTH: the number of filters in a bucket list that hit without a LENGTH error.
    pub max_length: u16,
    /// FULL_THRESH x 16: the near-full interrupt is raised when this many filters are free.
    pub full_threshold: u16,
}

impl Default for Limits {
    /// The values of both Linux drivers: 10, and 4 x 16.
    fn default() -> Self {
        Self { max_length: 10, full_threshold: 64 }
    }
}

/// The effect of an add command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// A filter was added.
    Added,
    /// The action of an equal filter was changed (FILTER_UPDATE).
    Updated,
    /// A filter was added although an equal one exists. The older one keeps matching, so the new
    /// one only takes space.
    Duplicate,
}

/// The result of an add command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Added {
    /// The effect of the command.
    pub outcome: Outcome,
    /// The slot of the filter that was added or changed.
    pub slot: u16,
    /// Whether this add raised the near-full interrupt.
    pub near_full: bool,
}

/// The filter that a frame matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// The slot of the filter.
    pub slot: u16,
    /// The bucket that lists the filter.
    pub bucket: u16,
    /// The position of the filter in the list of its bucket, from 1.
    pub position: u16,
    /// The value in the receive descriptor: the soft id, or the signature with bit 15 set.
    pub id: u16,
    /// The action of the filter.
    pub action: Action,
    /// FDIRERR.LENGTH: the position is greater than MAX_LENGTH.
    pub length_error: bool,
}
