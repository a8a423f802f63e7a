//! Where a received frame lands under a policy, and which stage decided that.

/// The stage that decided where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// No stage: the frame has no hash and goes to queue 0.
    NoHash,
    /// Hash and indirection table.
    Rss,
    /// A rule of the user that steers.
    Rule,
    /// A rule of the user that drops.
    Dropped,
    /// A filter that was learned from transmitted frames.
    Filter,
    /// The CPU map of receive packet steering.
    Rps,
    /// The tables of receive flow steering.
    Rfs,
    /// `settle`: the flow stays on its core, because a move is not yet safe.
    Settling,
}

impl Stage {
    pub(crate) const ALL: [Self; 8] = [
        Self::NoHash,
        Self::Rss,
        Self::Rule,
        Self::Dropped,
        Self::Filter,
        Self::Rps,
        Self::Rfs,
        Self::Settling,
    ];

    /// The name in reports and JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoHash => "no_hash",
            Self::Rss => "rss",
            Self::Rule => "rule",
            Self::Dropped => "dropped",
            Self::Filter => "filter",
            Self::Rps => "rps",
            Self::Rfs => "rfs",
            Self::Settling => "settling",
        }
    }
}

/// The queue that the adapter selects, and the stage that selected it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Steered {
    pub(crate) queue: u16,
    pub(crate) stage: Stage,
}

impl Steered {
    /// The decision of RSS.
    pub(crate) const fn by_rss(hash: Option<u32>, queue: u16) -> Self {
        Self { queue, stage: if hash.is_some() { Stage::Rss } else { Stage::NoHash } }
    }
}

/// Where a frame landed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Landing {
    pub(crate) queue: u16,
    pub(crate) core: u16,
    pub(crate) stage: Stage,
}
