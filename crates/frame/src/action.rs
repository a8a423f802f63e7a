//! What a table says about a frame. Plain data, so it can be printed, compared and offloaded.

use crate::FlowKey;

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum To {
    /// To a queue, by number.
    Queue(u16),
    /// Out of a port, by number.
    Port(u16),
    /// Through an action list, by number.
    List(u16),
    /// Nowhere; the drop is counted.
    #[default]
    Drop,
}

impl To {
    /// The destination as a number: equal for equal destinations, different for others.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u32 {
        match self {
            Self::Queue(n) => n as u32,
            Self::Port(n) => 1 << 16 | n as u32,
            Self::List(n) => 2 << 16 | n as u32,
            Self::Drop => 3 << 16,
        }
    }
}

/// A table's answer: a destination, and what to count and mark on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// Where the frame goes.
    pub to: To,
    /// The counter to add to; 0 counts nowhere.
    pub counter: u16,
    /// The software-defined value carried with the frame; 0 is none.
    pub mark: u32,
}

impl Action {
    /// An action that sends to `queue`, without counter or mark.
    #[must_use]
    pub const fn queue(queue: u16) -> Self {
        Self { to: To::Queue(queue), counter: 0, mark: 0 }
    }
}

/// A change to a table. Edits flow backwards through the walk, between batches, never inside one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edit {
    /// Add the entry, or replace the action of an equal key.
    Put(FlowKey, Action),
    /// Remove the entry with this key, if any.
    Del(FlowKey),
}
