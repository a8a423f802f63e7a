//! Where a received frame lands under a policy, and which stage decided that.

/// The stage that decided where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// No hash, so queue 0.
    NoHash,
    /// Hash and indirection table.
    Rss,
    /// A rule of the user.
    Rule,
    /// A rule of the user that drops.
    Dropped,
    /// A filter learned from transmits.
    Filter,
    /// Receive packet steering's map.
    Rps,
    /// Receive flow steering's tables.
    Rfs,
    /// A flow that may not move yet.
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

/// Where a frame landed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Landing {
    pub(crate) queue: u16,
    pub(crate) core: u16,
    pub(crate) stage: Stage,
}
