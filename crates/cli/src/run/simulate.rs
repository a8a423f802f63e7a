//! `flowyard run --simulate`: a scenario in virtual time, once for each of its seeds.

use std::path::Path;

use flowyard_scenario::Scenario;
use schemars::JsonSchema;
use serde::Serialize;

use super::SIMULATE;
use crate::output;
use crate::stop::{Stop, bad_input};

/// Whether the results of a scenario are as its section `[expect]` says.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Simulated {
    /// The file.
    config: String,
    /// The number of seeds with which the scenario is simulated.
    seeds: u64,
    /// The first difference; null if the results are as expected with all seeds. With one, the exit status is 1.
    difference: Option<String>,
}

/// Simulates a scenario and compares the results with its expectations.
pub(super) fn run(path: &Path, json: bool) -> Result<(), Stop> {
    let config = path.display().to_string();
    let scenario = Scenario::read(&config, path).map_err(bad_input)?;
    let (seeds, difference) = (scenario.seeds(), scenario.run().err());
    let verdict = match &difference {
        None => Ok(()),
        Some(what) => Err(Stop::Failed(anyhow::anyhow!("{what}"))),
    };
    if json {
        output::json(SIMULATE, Simulated { config, seeds, difference })?;
    } else if verdict.is_ok() {
        let said = format!("{config}: the results are as expected with all {seeds} seeds\n");
        output::text(&said)?;
    }
    verdict
}
