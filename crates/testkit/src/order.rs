//! Checks the two invariants of all code that moves frames: order and conservation.
//!
//! 1. Order: per flow (and exit), frames leave in the order in which they entered.
//! 2. Conservation: frames in + copies = frames out + counted drops + frames held.
//!
//! ```text
//!  enter(flow) ─> seq 0, 1, 2, ...   the code under test   leave(flow, seq) | drop(reason)
//! ```
//!
//! Invariants: per flow and exit, `missing` has exactly the numbers below `next_out` of the frames that
//! have not left there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Tracks frames by flow and sequence number; sequence numbers count per flow from 0. [`Checker::finish`]
/// returns the first violation.
#[derive(Debug, Default)]
pub struct Checker {
    /// Number of frames of each flow that entered.
    flows: HashMap<u64, u64>,
    /// State by flow and exit.
    exits: HashMap<(u64, u64), Exit>,
    entered: u64,
    copied: u64,
    left: u64,
    reordered: u64,
    dropped: BTreeMap<&'static str, u64>,
    any_order: bool,
    first: Option<Violation>,
}

#[derive(Debug, Default)]
struct Exit {
    next_out: u64,
    missing: BTreeSet<u64>,
}

/// The counts of a run without violations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Frames that entered.
    pub entered: u64,
    /// Frames that left.
    pub left: u64,
    /// Frames dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Frames that the code under test reports as held.
    pub held: u64,
    /// Frames that left after a later frame of their flow; zero unless any order is permitted.
    pub reordered: u64,
    /// Number of flows.
    pub flows: usize,
}

/// A violation of an invariant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A frame left that never entered.
    #[error("frame {seq} of flow {flow} left, but only {entered} frames of the flow entered")]
    Unknown {
        /// The flow.
        flow: u64,
        /// The frame's number in the flow.
        seq: u64,
        /// Number of frames of the flow that entered.
        entered: u64,
    },
    /// A frame left twice by the same exit.
    #[error("frame {seq} of flow {flow} left twice")]
    Twice {
        /// The flow.
        flow: u64,
        /// The frame's number in the flow.
        seq: u64,
    },
    /// A frame left after a later one of its flow.
    #[error("frame {seq} of flow {flow} left after frame {after}")]
    Order {
        /// The flow.
        flow: u64,
        /// The frame's number in the flow.
        seq: u64,
        /// The highest number of the flow's frames that had left.
        after: u64,
    },
    /// Frames were lost or duplicated.
    #[error(
        "{entered} frames entered and {copied} were copied, but {left} left, {dropped} were dropped and {held} are held"
    )]
    Conservation {
        /// Frames that entered.
        entered: u64,
        /// Copies of frames.
        copied: u64,
        /// Frames that left.
        left: u64,
        /// Frames counted as dropped.
        dropped: u64,
        /// Frames held.
        held: u64,
    },
}

impl Checker {
    /// A checker of order and conservation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A checker of conservation only, for queues without an order.
    #[must_use]
    pub fn any_order() -> Self {
        Self { any_order: true, ..Self::default() }
    }

    /// A frame of `flow` enters; returns its number in the flow.
    pub fn enter(&mut self, flow: u64) -> u64 {
        let entered = self.flows.entry(flow).or_default();
        let seq = *entered;
        *entered += 1;
        self.entered += 1;
        seq
    }

    /// Frame `seq` of `flow` leaves; for code with one exit.
    pub fn leave(&mut self, flow: u64, seq: u64) {
        self.leave_by(0, flow, seq);
    }

    /// Frame `seq` of `flow`, or a copy of it, leaves by `exit`. There is no order between exits.
    pub fn leave_by(&mut self, exit: u64, flow: u64, seq: u64) {
        self.left += 1;
        let entered = self.flows.get(&flow).copied().unwrap_or_default();
        let state = self.exits.entry((flow, exit)).or_default();
        let broken = if seq >= entered {
            Some(Violation::Unknown { flow, seq, entered })
        } else if seq >= state.next_out {
            state.missing.extend(state.next_out..seq);
            state.next_out = seq + 1;
            None
        } else if !state.missing.remove(&seq) {
            Some(Violation::Twice { flow, seq })
        } else {
            self.reordered += 1;
            let after = state.next_out - 1;
            (!self.any_order).then_some(Violation::Order { flow, seq, after })
        };
        if self.first.is_none() {
            self.first = broken;
        }
    }

    /// `copies` copies of frames were made; each must leave, be dropped or be held.
    pub const fn copy(&mut self, copies: u64) {
        self.copied += copies;
    }

    /// A frame is dropped for `reason`.
    pub fn drop(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    /// The result, if the code under test still holds `held` frames.
    ///
    /// # Errors
    /// The first violation.
    pub fn finish(self, held: u64) -> Result<Summary, Violation> {
        let Self { entered, copied, left, reordered, dropped, .. } = self;
        if let Some(violation) = self.first {
            return Err(violation);
        }
        let drops = dropped.values().sum();
        if entered + copied != left + drops + held {
            return Err(Violation::Conservation { entered, copied, left, dropped: drops, held });
        }
        Ok(Summary { entered, left, dropped, held, reordered, flows: self.flows.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three frames of each of two flows enter, then `leaves` leave and one frame is dropped.
    fn run(mut checker: Checker, leaves: &[(u64, u64)], held: u64) -> Result<Summary, Violation> {
        for _ in 0..3 {
            checker.enter(1);
            checker.enter(2);
        }
        leaves.iter().for_each(|&(flow, seq)| checker.leave(flow, seq));
        checker.drop("queue full");
        checker.finish(held)
    }

    #[test]
    fn order_and_conservation_hold() {
        let summary = run(Checker::new(), &[(2, 0), (1, 0), (1, 2), (2, 1)], 1).unwrap();
        let dropped = BTreeMap::from([("queue full", 1)]);
        assert_eq!(
            summary,
            Summary { entered: 6, left: 4, dropped, held: 1, reordered: 0, flows: 2 }
        );
    }

    #[test]
    fn each_violation_is_found() {
        let first = |leaves: &[(u64, u64)]| run(Checker::new(), leaves, 0).unwrap_err();
        assert_eq!(first(&[(1, 2), (1, 0)]), Violation::Order { flow: 1, seq: 0, after: 2 });
        assert_eq!(first(&[(1, 0), (1, 0)]), Violation::Twice { flow: 1, seq: 0 });
        assert_eq!(first(&[(1, 3)]), Violation::Unknown { flow: 1, seq: 3, entered: 3 });
        assert_eq!(first(&[(9, 0)]), Violation::Unknown { flow: 9, seq: 0, entered: 0 });
        let lost = Violation::Conservation { entered: 6, copied: 0, left: 1, dropped: 1, held: 0 };
        assert_eq!(first(&[(1, 0)]), lost);
        assert!(lost.to_string().starts_with("6 frames entered and 0 were copied, but 1 left"));
    }

    #[test]
    fn copies_leave_by_other_exits() {
        let copies = |copies, leaves: &[(u64, u64)]| {
            let mut checker = Checker::new();
            assert_eq!([0, 1, 2].map(|_| checker.enter(1)), [0, 1, 2]);
            checker.copy(copies);
            leaves.iter().for_each(|&(exit, seq)| checker.leave_by(exit, 1, seq));
            checker.finish(0).map(|summary| summary.left)
        };
        let both = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (0, 2)];
        assert_eq!(copies(3, &both), Ok(6));
        let lost = Violation::Conservation { entered: 3, copied: 2, left: 6, dropped: 0, held: 0 };
        assert_eq!(copies(2, &both), Err(lost));
        let late = [(0, 0), (1, 1), (1, 0)];
        assert_eq!(copies(0, &late), Err(Violation::Order { flow: 1, seq: 0, after: 1 }));
        let twice = [(0, 0), (1, 0), (1, 0)];
        assert_eq!(copies(0, &twice), Err(Violation::Twice { flow: 1, seq: 0 }));
    }

    #[test]
    fn any_order_still_conserves() {
        let all = [(1, 2), (1, 0), (2, 1), (2, 0), (2, 2)];
        assert_eq!(run(Checker::any_order(), &all, 0).unwrap().reordered, 2);
        let twice = [(1, 2), (1, 0), (1, 0)];
        assert_eq!(run(Checker::any_order(), &twice, 0), Err(Violation::Twice { flow: 1, seq: 0 }));
    }
}
