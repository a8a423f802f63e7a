//! The data of a result document.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compliance::Compliance;
use crate::qualify::Check;
use crate::suite::{AtSize, Results};

/// The kind of clock. Results of the two kinds are never shown in one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Time {
    /// A simulated clock: results are exactly repeatable.
    Virtual,
    /// The clock of this machine: its load influences the results.
    Real,
}

/// The machine of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Model name of the CPU.
    pub processor: String,
    /// Number of CPUs.
    pub processors: usize,
    /// Kernel release.
    pub kernel: String,
    /// Load averages before the run.
    pub load: String,
    /// CPU time that the hypervisor took during the run (steal), in hundredths of a second.
    pub steal_ticks: u64,
}

/// The complete description of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// The kind of clock.
    pub time: Time,
    /// The device under test and its configuration.
    pub device: String,
    /// The version of flowyard.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// The tester's qualification.
    pub tester: Vec<Check>,
    /// The results.
    pub results: Results,
    /// The run compared with the requirements of RFC 2544.
    pub compliance: Compliance,
    /// Frames that the device dropped, by its own reasons.
    pub drops: Vec<(String, u64)>,
    /// Deviations from the standards, and notes needed to interpret the results.
    pub deviations: Vec<String>,
}

/// The sizes at which the throughput was measured.
pub(crate) fn measured(results: &Results) -> impl Iterator<Item = &AtSize> {
    results.sizes.iter().filter(|at| at.throughput.is_some())
}
