//! Plans: documents of the changes of an interface's settings, for one state of the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::setting::{Setting, Settings};

/// A plan. The command that applies it refuses unless every setting still has the value in `made_for`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The interface.
    pub interface: String,
    /// The driver.
    pub driver: String,
    /// The goal, as it was given.
    pub goal: String,
    /// The traffic that the plan was made for.
    pub traffic: Observed,
    /// The changes, in the order in which they are made.
    pub steps: Vec<Step>,
    /// What would serve the goal, but is not possible.
    pub refusals: Vec<Refusal>,
    /// The predicted effect with today's settings.
    pub today: Effect,
    /// The predicted effect with the settings of the plan.
    pub planned: Effect,
    /// What the change does to flows while it is made.
    pub change: Change,
    /// Remarks for the person who reviews the plan.
    pub notes: Vec<String>,
    /// The same changes as commands of a shell.
    pub commands: Vec<String>,
    /// Every known setting of the interface and its value when the plan was made.
    pub made_for: Settings,
}

impl Plan {
    /// Reads a plan as `flowyard plan -o FILE` writes it: JSON whose key `schema` is `schema`.
    ///
    /// # Errors
    /// In words: what is not as it is in a plan.
    pub fn parse(text: &str, schema: &str) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let found = value.get("schema").and_then(|schema| schema.as_str());
        if found != Some(schema) {
            return Err(format!("its schema is {}, not {schema}", found.unwrap_or("missing")));
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The setting.
    pub setting: Setting,
    /// The value that it has.
    pub from: String,
    /// The value that it gets.
    pub to: String,
    /// The reason.
    pub why: String,
}

/// Something that would serve the goal and is not possible.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// What would have been changed.
    pub what: String,
    /// The limit that prevents it.
    pub limit: String,
    /// Where the limit is known from: the call that failed, or the document that states it.
    pub source: String,
}

/// The traffic of a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Observed {
    /// The captures, or `live`.
    pub source: String,
    /// Received frames.
    pub frames: u64,
    /// Received flows.
    pub flows: u64,
    /// Time from the first frame to the last, in seconds.
    pub seconds: f64,
}

/// What a change does to flows.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Flows that another core processes afterwards; `null` if the core of flows is not predictable.
    pub moved_flows: Option<u64>,
    /// Frames that later frames of their flow could overtake while the settings change: those that moved flows
    /// receive in the time for which a frame may wait in its old queue, one millisecond.
    pub frames_at_risk: Option<f64>,
}
