//! What every figure is computed from, and why that may fail.

use flowyard_report::exhibit::{Bound, ExhibitError, Spec};

use crate::profile::{Profile, ProfileError};
use crate::server::SetupError;

/// What figures are computed from, besides the profiles of the papers' machines.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The profile of this machine, as `flowyard calibrate` measured it.
    pub here: Option<Profile>,
}

/// Why a figure cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// Its file is wrong, or does not fit the numbers.
    #[error(transparent)]
    Exhibit(#[from] ExhibitError),
    /// A profile lacks a constant.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The model refused its setup.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A defect of a model: a frame or request was lost without being counted.
    #[error("the counters of a run do not balance; this is a defect of flowyard")]
    Unbalanced,
}

/// The paper's numbers in the rows of `spec` whose names begin with `begin` and end with `end`; the text
/// between is the position on the axis. Limits are left out, because they are not points.
pub(super) fn printed(spec: &Spec, begin: &str, end: &str) -> Vec<(f64, f64)> {
    let rows = spec.rows.iter().filter(|row| row.bound == Bound::Equal);
    rows.filter_map(|row| {
        let place = row.name.strip_prefix(begin)?.strip_suffix(end)?;
        Some((place.parse().ok()?, row.paper?))
    })
    .collect()
}
