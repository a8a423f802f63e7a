//! Figures that compare a model with a measurement on this machine.

use flowyard_hostsim::paper::Context;
use flowyard_report::exhibit::Exhibit;
use flowyard_yard::Clock;

use crate::calibrate::Wants;

mod host;
mod lookup;
mod yard;

/// The names of these figures, in the order of the report.
pub const NAMES: [&str; 5] = [lookup::NAME, yard::CORES, yard::WORKERS, yard::NAME, host::NAME];

/// Whether the figure needs the machine to itself: nothing may run beside it.
#[must_use]
pub fn is_alone(name: &str) -> bool {
    [yard::NAME, lookup::NAME, host::NAME].contains(&name)
}

/// The costs of this machine that the figures `names` need.
#[must_use]
pub fn wants(names: &[&str]) -> Wants {
    let any = |of: &[&str]| names.iter().any(|name| of.contains(name));
    Wants {
        yard: any(&[yard::NAME, yard::WORKERS, yard::CORES, "dlb-workers"]),
        host: any(&[host::NAME]) && crate::live::obstacle().is_none(),
    }
}

/// Makes the figure `name`; `None` if it is not one of [`NAMES`].
#[must_use]
pub fn make(name: &str, context: &Context, clock: &Clock) -> Option<anyhow::Result<Exhibit>> {
    match name {
        lookup::NAME => Some(lookup::make(clock)),
        host::NAME => Some(host::make(context, clock)),
        _ => yard::make(name, context, clock),
    }
}
