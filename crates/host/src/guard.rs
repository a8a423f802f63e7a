//! Whether a plan could cut the connection over which the machine is managed.

use crate::machine::Machine;
use crate::plan::Plan;

/// Why the plan could move or interrupt the connection over which the machine is managed: its interface carries
/// that connection or the default route. Empty if it does not.
#[must_use]
pub fn dangers(machine: &dyn Machine, plan: &Plan) -> Vec<String> {
    if plan.steps.is_empty() { Vec::new() } else { machine.management(&plan.interface) }
}
