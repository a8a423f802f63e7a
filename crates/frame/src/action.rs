//! The action that a table gives a frame: plain data that can be printed, compared and offloaded.

use zerocopy::{Immutable, IntoBytes};

use crate::FlowKey;

/// The destination of a frame. Numbers are those of queues, ports and lists in the configuration's
/// order.
///
/// Every variant has 16 bits beside its tag, so that two destinations are compared as one word.
#[derive(Clone, Copy, Eq, Debug, IntoBytes, Immutable)]
#[repr(u16)]
pub enum To {
    /// A queue, by number.
    Queue(u16),
    /// A port, by number: the frame is transmitted.
    Port(u16),
    /// An action list, by number. Only tables use this; the destination of the list replaces it before
    /// the frame enters a queue.
    List(u16),
    /// Every port of a port list, by number: each gets a copy. Only works use this.
    Ports(u16),
    /// Several ports: other frames are chained to the frame, and each has its own port. Only works use
    /// this.
    Chain(Unused),
    /// None: the frame is dropped, and counted under the reason with this code. 0 is no reason: the
    /// stage that drops the frame uses its own.
    Drop(u16),
    /// None: a port has transmitted the frame. Occurs only in the tx queues of ports.
    Sent(Unused),
}

/// The 16 bits of a destination that has no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoBytes, Immutable)]
#[repr(u16)]
pub enum Unused {
    /// The only value.
    Zero = 0,
}

impl PartialEq for To {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes() // one comparison of 32 bits
    }
}

impl Default for To {
    fn default() -> Self {
        Self::DROP
    }
}

impl To {
    /// A drop without a reason.
    pub const DROP: Self = Self::Drop(0);

    /// Several ports: see [`To::Chain`].
    pub const CHAIN: Self = Self::Chain(Unused::Zero);

    /// Transmitted: see [`To::Sent`].
    pub const SENT: Self = Self::Sent(Unused::Zero);

    /// Whether the frame is dropped.
    #[must_use]
    #[inline]
    pub const fn is_drop(self) -> bool {
        matches!(self, Self::Drop(_))
    }

    /// Whether the frame leaves the engine: it is dropped, or was transmitted.
    #[must_use]
    #[inline]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Drop(_) | Self::Sent(_))
    }
}

/// A table's answer: a destination, a counter and a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// The destination.
    pub to: To,
    /// Number of the user's counter that counts the frame, from 1; 0 is none.
    pub counter: u16,
    /// A value, defined by the user, that the frame carries; 0 is none.
    pub mark: u32,
}

impl Action {
    /// An action that sends to `queue`, without counter or mark.
    #[must_use]
    pub const fn queue(queue: u16) -> Self {
        Self { to: To::Queue(queue), counter: 0, mark: 0 }
    }
}

/// A change to a table. Edits are applied between batches, never while a batch is processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edit {
    /// Add the entry, or replace the action of an equal key.
    Put(FlowKey, Action),
    /// Remove the entry with this key, if any.
    Del(FlowKey),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_equal_if_kind_and_number_are() {
        let numbers = [0, 1, 0x100, u16::MAX];
        let kinds = [To::Queue, To::Port, To::List, To::Ports, To::Drop];
        let mut all: Vec<(usize, u16, To)> = Vec::new();
        for (kind, make) in kinds.iter().enumerate() {
            all.extend(numbers.map(|number| (kind, number, make(number))));
        }
        all.extend([(5, 0, To::CHAIN), (6, 0, To::SENT)]);
        for (kind, number, to) in &all {
            for (other_kind, other_number, other) in &all {
                let equal = (kind, number) == (other_kind, other_number);
                assert_eq!(to == other, equal, "{to:?} and {other:?}");
            }
            assert_eq!(to.is_drop(), *kind == 4, "{to:?}");
            assert_eq!(to.is_end(), matches!(kind, 4 | 6), "{to:?}");
        }
    }

    #[test]
    fn an_action_drops_by_default() {
        assert_eq!(Action::default(), Action { to: To::Drop(0), counter: 0, mark: 0 });
        assert_eq!(Action::queue(7), Action { to: To::Queue(7), counter: 0, mark: 0 });
    }
}
