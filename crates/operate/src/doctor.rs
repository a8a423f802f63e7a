//! Checks of the machine: finds settings that prevent or slow down a configuration, and how to fix them.
//!
//! ```text
//!  Machine (files of /proc and /sys, ethtool, probes) ──> checks ──> Finding: level, what, why, fix
//! ```
//!
//! The checks only read. Commands that fix a problem are printed and never executed.
//!
//! Thread-safety: plain functions over a [`Machine`].

use serde::{Deserialize, Serialize};

mod checks;
mod config;
mod machine;

pub use config::{Port, Wanted, wanted};
pub use machine::{Here, Machine, Offload, QueueCounts};

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The check passed.
    Ok,
    /// The configuration works, but slower or less reliably than possible.
    Warning,
    /// A part of the configuration will not work.
    Problem,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// What was checked: `kernel`, `offload eth0`, `locked memory`, ...
    pub about: String,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// A command that fixes it, or other advice; `None` if the check passed.
    pub fix: Option<String>,
}

impl Finding {
    fn new(about: &str, what: impl Into<String>, why: &str) -> Self {
        let (about, what, why) = (about.into(), what.into(), why.into());
        Self { level: Level::Ok, about, what, why, fix: None }
    }

    fn warn(self, fix: impl Into<String>) -> Self {
        Self { level: Level::Warning, fix: Some(fix.into()), ..self }
    }

    fn problem(self, fix: impl Into<String>) -> Self {
        Self { level: Level::Problem, fix: Some(fix.into()), ..self }
    }
}

/// Runs all checks of `machine` that matter for `wanted`.
#[must_use]
pub fn examine(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    checks::all(machine, wanted)
}
