//! What was decided, for whom, why, with what expectation and what outcome: plain data, one line of
//! a log each.

use std::fmt;

use flowyard_frame::{Action, Edit, FlowKey, Nanos, To};

use super::costs::Estimate;

/// What a core had to do in one window.
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
    /// When.
    pub at: Nanos,
    /// The core concerned: the flow's or the entry's home.
    pub core: u16,
    /// The load of that core in the window that ended.
    pub load: Load,
    /// What is to be done.
    pub what: What,
}

/// What is to be done, or was found.
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
        /// At least this part of the core's bytes is the flow's, 0 to 1.
        share: f64,
        /// What it should bring.
        estimate: Estimate,
    },
    /// A promoted flow's dwell is over: what the promotion brought.
    Outcome {
        /// The flow.
        key: FlowKey,
        /// What the promotion should have brought at most, as a factor.
        expected: f64,
        /// The flow's rate now over its rate when it was promoted.
        gain: f64,
    },
    /// Bring a flow back to one core.
    Demote {
        /// The flow.
        key: FlowKey,
        /// The part of its home core that it would take, 0 to 1.
        share: f64,
        /// How long it was promoted, in nanoseconds.
        after: Nanos,
    },
    /// The core is overloaded and nothing is done about it.
    Refuse {
        /// The largest flow of the core.
        key: Option<FlowKey>,
        /// Why nothing is done.
        reason: Refused,
    },
}

/// Why an overloaded core is left as it is.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum Refused {
    /// The benefit estimate is not positive.
    #[error(
        "splitting pays from {:.0} ns of work a frame on, this flow has {work_ns:.0} (gain {:.2}, spare cores {:.1}): spare cores or dearer work would change that",
        .estimate.break_even_ns, .estimate.gain(), .estimate.room.cores
    )]
    NotWorthIt {
        /// The work now, in nanoseconds a frame.
        work_ns: f64,
        /// What splitting would bring.
        estimate: Estimate,
    },
    /// No flow has a share that would make a difference.
    #[error(
        "the largest flow has {:.0} % of the core, an elephant {:.0} % or more, and no entry fits on another core: add cores",
        share * 100.0, wanted * 100.0
    )]
    NoElephant {
        /// The largest flow's share, 0 to 1.
        share: f64,
        /// The share of an elephant, 0 to 1.
        wanted: f64,
    },
    /// As many flows are promoted as may be.
    #[error("{promoted} flows are promoted, which is the most; raise the bound or add cores")]
    Full {
        /// How many.
        promoted: usize,
    },
    /// The user has said where the flow goes.
    #[error(
        "an exact entry or a rule of the configuration says where it goes: take it out of there to have it split"
    )]
    User,
    /// The flow was demoted, or its promotion failed, a moment ago.
    #[error("the flow came back to its core a moment ago: it stays for {} ms", left / 1_000_000)]
    Resting {
        /// For so long, in nanoseconds.
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
            What::Demote { key, .. } => Some(Edit::Del(key)),
            _ => None,
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

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rebalance { entry, to, share } => {
                write!(f, "rebalance: entry {entry} ({:.1} % of the core) to {to}", share * 100.0)
            }
            Self::Promote { key, share, estimate } => {
                write!(f, "promote {key} ({:.0} % of the core): ", share * 100.0)?;
                write!(f, "{:.2} times the rate of one core expected", estimate.gain())?;
                write!(f, ", break-even at {:.0} ns of work", estimate.break_even_ns)
            }
            Self::Outcome { key, expected, gain } => {
                write!(f, "outcome of {key}: {gain:.2} times its rate, {expected:.2} was the most")
            }
            Self::Demote { key, share, after } => {
                write!(f, "demote {key} after {} ms: ", after / 1_000_000)?;
                write!(f, "it would take {:.0} % of the core", share * 100.0)
            }
            Self::Refuse { key: Some(key), reason } => write!(f, "{key} is not split: {reason}"),
            Self::Refuse { key: None, reason } => write!(f, "nothing to split: {reason}"),
        }
    }
}
