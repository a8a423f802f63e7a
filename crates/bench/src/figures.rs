//! Figures that compare a model with a measurement on this machine.

use flowyard_hostsim::Profile;
use flowyard_hostsim::paper::Context;
use flowyard_report::exhibit::Exhibit;
use flowyard_yard::Clock;

use crate::calibrate::Wants;

mod host;
pub(crate) mod lookup;
mod switch;
mod yard;

/// The names of these figures, in the order of the report.
pub const NAMES: [&str; 6] =
    [lookup::NAME, switch::NAME, yard::CORES, yard::WORKERS, yard::NAME, host::NAME];

/// Whether the figure needs the machine to itself, because it measures: nothing may run beside it. These are
/// exactly [`NAMES`].
#[must_use]
pub fn is_alone(name: &str) -> bool {
    NAMES.contains(&name)
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
        switch::NAME => Some(switch::make(clock)),
        host::NAME => Some(host::make(context, clock)),
        _ => yard::make(name, context, clock),
    }
}

/// The rows of the figure `name` that its model predicts from the costs `here`, without any measurement; `None` if
/// it is not one of [`NAMES`] or has no model.
#[must_use]
pub fn predict(name: &str, here: &Profile) -> Option<anyhow::Result<Vec<(String, f64)>>> {
    match name {
        host::NAME => Some(host::predicted(here)),
        _ => yard::predicted(name, here),
    }
}

/// Whether [`predict`] knows the figure `name`.
#[must_use]
pub fn predicts(name: &str) -> bool {
    NAMES.contains(&name) && ![lookup::NAME, switch::NAME].contains(&name)
}
