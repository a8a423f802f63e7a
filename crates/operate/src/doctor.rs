//! Doctor: looks at the machine, and says what stands in a yard's way and how to mend it.
//!
//! ```text
//!  Machine (files of /proc and /sys, ethtool, probes) ──> checks ──> Finding: level, what, why, mend
//! ```
//!
//! Read only, always: the commands that mend are printed, never run.
//!
//! Thread-safety: plain functions over a [`Machine`].

use serde::{Deserialize, Serialize};

mod checks;
mod config;
mod machine;

pub use config::{Port, Wanted};
pub use machine::{Here, Machine, Offload};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but slower or less surely than it could.
    Warning,
    /// Something will not work.
    Problem,
}

/// What was found about one thing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at: `kernel`, `offload eth0`, `memlock`, ...
    pub about: String,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// A command that mends it, or what else to do; none where nothing is to be mended.
    pub mend: Option<String>,
}

impl Finding {
    fn new(about: &str, what: impl Into<String>, why: &str) -> Self {
        let (about, what, why) = (about.into(), what.into(), why.into());
        Self { level: Level::Ok, about, what, why, mend: None }
    }

    fn warn(self, mend: impl Into<String>) -> Self {
        Self { level: Level::Warning, mend: Some(mend.into()), ..self }
    }

    fn problem(self, mend: impl Into<String>) -> Self {
        Self { level: Level::Problem, mend: Some(mend.into()), ..self }
    }
}

/// Everything that was found about `machine`, for a yard that wants this.
#[must_use]
pub fn examine(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    checks::all(machine, wanted)
}
