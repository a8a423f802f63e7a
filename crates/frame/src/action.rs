//! What a table says about a frame. Plain data, so it can be printed, compared and offloaded.

use crate::FlowKey;

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// To a queue, by number.
    Queue(u16),
    /// Out of a port, by number.
    Port(u16),
    /// Through an action list, by number. Only tables say this; the list's own destination takes
    /// its place before the frame enters a queue.
    List(u16),
    /// Out of every port of a port list, by number: each gets a copy. Only works say this.
    Ports(u16),
    /// Out of several ports: the frame has others tied to it, and each of them its port. Only works
    /// say this.
    Chain,
    /// Nowhere; the drop is counted under the reason with this code. 0 is no reason: the stage that
    /// finds it gives its own.
    Drop(u16),
    /// Nowhere, because a port has transmitted the frame. Only ports' tx queues see this.
    Sent,
}

impl Default for To {
    fn default() -> Self {
        Self::DROP
    }
}

impl To {
    /// Nowhere, without a reason.
    pub const DROP: Self = Self::Drop(0);

    /// Whether the frame is dropped.
    #[must_use]
    #[inline]
    pub const fn is_drop(self) -> bool {
        matches!(self, Self::Drop(_))
    }

    /// Whether the frame ends in the queue that it is in: dropped, or transmitted.
    #[must_use]
    #[inline]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Drop(_) | Self::Sent)
    }

    /// The destination as a number: equal for equal destinations, different for others. All drops
    /// are one destination.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u32 {
        match self {
            Self::Queue(n) => n as u32,
            Self::Port(n) => 1 << 16 | n as u32,
            Self::List(n) => 2 << 16 | n as u32,
            Self::Drop(_) => 3 << 16,
            Self::Ports(n) => 4 << 16 | n as u32,
            Self::Chain => 5 << 16,
            Self::Sent => 6 << 16,
        }
    }
}

/// A table's answer: a destination, and what to count and mark on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// Where the frame goes.
    pub to: To,
    /// The user's counter to add to, from 1; 0 is none.
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
