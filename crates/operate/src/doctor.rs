//! Checks of the machine: finds settings that prevent or slow down a configuration, and how to fix them.
//!
//! ```text
//!  Machine (files of /proc and /sys, ethtool, probes) ──> checks ──> Finding: level, what, why, fix
//! ```
//!
//! The checks only read. Commands that fix a problem are printed and never executed.
//!
//! Thread-safety: plain functions over a [`Machine`].

mod checks;
mod config;
mod finding;
mod machine;

pub use config::{Port, Wanted};
pub use finding::{Finding, Level};
pub use flowyard_host::Offload;
pub use machine::{Here, Machine, QueueCounts};

/// Runs all checks of `machine` that matter for `wanted`.
#[must_use]
pub fn examine(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    checks::all(machine, wanted)
}

/// The CPUs that cores are pinned to and that are not online; none if the CPUs that are online are unknown.
#[must_use]
pub fn offline(machine: &dyn Machine, wanted: &Wanted) -> Vec<usize> {
    checks::offline(machine, wanted)
}
