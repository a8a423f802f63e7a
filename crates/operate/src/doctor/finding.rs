//! The result of a check.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The severity of a finding.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
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
    pub(super) fn new(about: &str, what: impl Into<String>, why: &str) -> Self {
        let (about, what, why) = (about.into(), what.into(), why.into());
        Self { level: Level::Ok, about, what, why, fix: None }
    }

    pub(super) fn warn(self, fix: impl Into<String>) -> Self {
        Self { level: Level::Warning, fix: Some(fix.into()), ..self }
    }

    pub(super) fn problem(self, fix: impl Into<String>) -> Self {
        Self { level: Level::Problem, fix: Some(fix.into()), ..self }
    }
}
