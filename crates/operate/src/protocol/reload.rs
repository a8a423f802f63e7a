//! What a reload would do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What SIGHUP would do now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reload {
    /// The file of the configuration.
    pub config: String,
    /// What SIGHUP would do.
    pub does: ReloadDoes,
    /// Why SIGHUP would change nothing, if it is refused.
    pub refused: Option<String>,
    /// What applies the changes instead, if SIGHUP is refused because of keys that need a new process.
    pub fix: Option<String>,
    /// The keys that differ from the configuration in use.
    pub changes: Vec<ReloadChange>,
}

/// What SIGHUP would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReloadDoes {
    /// Nothing: the file is the same.
    Nothing,
    /// The instance applies all changes.
    Reloads,
    /// The instance starts a process with the new configuration, which takes over.
    TakesOver,
    /// Nothing is changed.
    Refuses,
}

/// A key that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReloadChange {
    /// The key and its section.
    pub key: String,
    /// The value in use; null for a secret.
    pub old: Option<String>,
    /// The new value; null for a secret.
    pub new: Option<String>,
    /// What applies the change.
    pub how: ReloadHow,
}

/// What applies a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReloadHow {
    /// A reload.
    Reload,
    /// A process that takes over.
    TakeOver,
    /// A restart.
    Restart,
}
