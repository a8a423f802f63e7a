//! The rules of an interface, as its driver tells them.

use flowyard_adapter::rules::Rule;

use super::layout::{NotARule, Request};

/// The rules of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The number of locations; `None` if the driver does not tell.
    pub size: Option<u32>,
    /// Whether the driver can choose a location.
    pub chooses: bool,
    /// The rules, by location.
    pub rules: Vec<Listed>,
}

/// A rule that an interface has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its location.
    pub loc: u32,
    /// The rule as the driver told it.
    pub bytes: Request,
    /// The rule in ethtool's words, or why it has none.
    pub rule: Result<Rule, NotARule>,
}

/// Rules of an interface (`ETHTOOL_GRXCLSRLCNT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// Number of rules that are installed.
    pub installed: u32,
    /// Whether the driver chooses locations itself (`RX_CLS_LOC_ANY`).
    pub chooses_locations: bool,
}
