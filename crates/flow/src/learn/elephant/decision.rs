//! Decisions about elephants, with reason, expectation and outcome: plain data that prints as one
//! line of a log.

use std::fmt;

use flowyard_frame::{Action, Edit, FlowKey, Nanos, To};

use super::costs::Estimate;

/// The load of a core in one window.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// The share of the window that the core spent on frames, 0 to 1.
    pub busy: f64,
    /// Frames that wait for the core at the window's end.
    pub queue_len: u64,
    /// Frames that were dropped in this window because the core did not keep up.
    pub drops: u64,
}

/// A decision, and the load that led to it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// The time of the decision.
    pub at: Nanos,
    /// The home core of the flow or the entry.
    pub core: u16,
    /// The load of that core in the window that ended.
    pub load: Load,
    /// The decision.
    pub what: What,
}

/// What was decided or measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    /// Send the flows of an entry of the indirection table to another core.
    Rebalance {
        /// The entry.
        entry: u32,
        /// The queue of the least loaded core.
        to: u16,
        /// The entry's part of the core's bytes, 0 to 1.
        share: f64,
    },
    /// Split a flow over cores: send it to an ordered queue.
    Promote {
        /// The flow.
        key: FlowKey,
        /// At least this share of the core's bytes is the flow's, 0 to 1.
        share: f64,
        /// The expected effect.
        estimate: Estimate,
    },
    /// The effect of a promotion, measured when the dwell time is over.
    Outcome {
        /// The flow.
        key: FlowKey,
        /// The predicted gain, which is an upper bound.
        expected: f64,
        /// The measured gain: the flow's rate now over its rate when it was promoted.
        gain: f64,
    },
    /// Return a flow to one core.
    Demote {
        /// The flow.
        key: FlowKey,
        /// The share of its home core that it would take, 0 to 1.
        share: f64,
        /// How long it was promoted, in nanoseconds.
        after: Nanos,
    },
    /// Return a flow to one core, because its rate fell when it was split.
    Undo {
        /// The flow.
        key: FlowKey,
        /// The measured gain, below 1.
        gain: f64,
        /// How long it was promoted, in nanoseconds.
        after: Nanos,
    },
    /// The core is overloaded, and no action is taken.
    Refuse {
        /// The largest flow of the core.
        key: Option<FlowKey>,
        /// Why no action is taken.
        reason: Refused,
    },
}

/// Why no action is taken for an overloaded core.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum Refused {
    /// The estimated gain is too small.
    #[error(
        "splitting pays from {:.0} ns of work per frame, and this flow takes {work_ns:.0} ns (gain {:.2}, spare cores {:.1}); it needs more spare cores or more work per frame",
        .estimate.break_even_ns, .estimate.gain(), .estimate.room.cores
    )]
    NotWorthIt {
        /// The measured work, in nanoseconds per frame.
        work_ns: f64,
        /// The estimated effect of splitting.
        estimate: Estimate,
    },
    /// No flow is large enough for a split to help.
    #[error(
        "the largest flow has {:.0} % of the core, which is less than an elephant's {:.0} %, and no entry fits on another core; add cores",
        share * 100.0, wanted * 100.0
    )]
    NoElephant {
        /// The largest flow's share, 0 to 1.
        share: f64,
        /// The least share of an elephant, 0 to 1.
        wanted: f64,
    },
    /// The limit of promoted flows is reached.
    #[error("{promoted} flows are promoted, which is the limit; raise promoted_max or add cores")]
    Full {
        /// The number of promoted flows.
        promoted: usize,
    },
    /// The user's configuration decides where the flow goes.
    #[error(
        "an exact entry or a rule of the configuration decides where the flow goes; remove it to allow the split"
    )]
    User,
    /// The flow was demoted, or its promotion failed, a moment ago.
    #[error("the flow was returned to its core recently and stays there for {} ms", left / 1_000_000)]
    Resting {
        /// The remaining time, in nanoseconds.
        left: Nanos,
    },
    /// The flow was split before, and its rate fell.
    #[error(
        "split, it had {gain:.2} times its rate on one core; it stays on one core for {:.1} s, then it may be split again",
        *left as f64 / 1e9
    )]
    Undone {
        /// The measured gain, below 1.
        gain: f64,
        /// The remaining time, in nanoseconds.
        left: Nanos,
    },
}

impl Decision {
    /// The edit for the exact table in front of the spread, if there is one; `to` is the ordered
    /// queue of promoted flows.
    #[must_use]
    pub const fn edit(&self, to: To) -> Option<Edit> {
        match self.what {
            What::Promote { key, .. } => Some(Edit::Put(key, Action { to, ..Action::queue(0) })),
            What::Demote { key, .. } | What::Undo { key, .. } => Some(Edit::Del(key)),
            _ => None,
        }
    }
}

impl What {
    /// The kind of decision as one word, for documents and logs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Rebalance { .. } => "rebalance",
            Self::Promote { .. } => "promote",
            Self::Outcome { .. } => "outcome",
            Self::Demote { .. } => "demote",
            Self::Undo { .. } => "undo",
            Self::Refuse { .. } => "refuse",
        }
    }

    /// The flow, if the decision is about one.
    #[must_use]
    pub const fn flow(&self) -> Option<&FlowKey> {
        match self {
            Self::Rebalance { .. } => None,
            Self::Promote { key, .. }
            | Self::Outcome { key, .. }
            | Self::Demote { key, .. }
            | Self::Undo { key, .. } => Some(key),
            Self::Refuse { key, .. } => key.as_ref(),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load { busy, queue_len, drops } = self.load;
        write!(f, "core {} ({:.0} % busy, {queue_len} waiting", self.core, busy * 100.0)?;
        write!(f, ", {drops} dropped): {}", self.what)
    }
}

/// A measured gain of more than this times the bound is no effect of the split.
const UNRELIABLE: f64 = 1.25;

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rebalance { entry, to, share } => {
                write!(
                    f,
                    "rebalance: entry {entry} ({:.1} % of the core) to queue {to}",
                    share * 100.0
                )
            }
            Self::Promote { key, share, estimate } => {
                write!(f, "promote {key} ({:.0} % of the core): ", share * 100.0)?;
                write!(f, "{:.2} times the rate of one core expected", estimate.gain())?;
                write!(f, ", break-even at {:.0} ns of work", estimate.break_even_ns)
            }
            Self::Outcome { key, expected, gain } => {
                write!(
                    f,
                    "outcome of {key}: measured gain {gain:.2}, predicted at most {expected:.2}"
                )?;
                match *gain > UNRELIABLE * *expected {
                    true => f.write_str(
                        " (unreliable: other programs used the processors, or the sender changed its rate)",
                    ),
                    false => Ok(()),
                }
            }
            Self::Demote { key, share, after } => {
                write!(f, "demote {key} after {} ms: ", after / 1_000_000)?;
                write!(f, "it would take {:.0} % of the core", share * 100.0)
            }
            Self::Undo { key, gain, after } => {
                write!(f, "undo the split of {key} after {} ms: ", after / 1_000_000)?;
                write!(f, "it has {gain:.2} times its rate on one core")
            }
            Self::Refuse { key: Some(key), reason } => write!(f, "{key} is not split: {reason}"),
            Self::Refuse { key: None, reason } => write!(f, "nothing to split: {reason}"),
        }
    }
}
