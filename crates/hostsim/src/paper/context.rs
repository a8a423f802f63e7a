//! What every figure is computed from, and why that may fail.

use flowyard_report::exhibit::{Bound, End, ExhibitError, Spec};

use crate::profile::{Profile, ProfileError};
use crate::server::SetupError;

/// What figures are computed from, besides the profiles of the papers' machines.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The profile of this machine, as `flowyard calibrate` measured it.
    pub here: Option<Profile>,
    /// Profiles that replace the built-in ones of the same names.
    pub given: Vec<Profile>,
}

impl Context {
    /// The profile `name` of a paper's machine: the given one, or else the built-in one.
    ///
    /// # Errors
    /// When there is no profile of that name.
    pub fn profile(&self, name: &str) -> Result<Profile, ProfileError> {
        let given = self.given.iter().find(|given| given.name == name);
        given.map_or_else(|| Profile::named(name), |given| Ok(given.clone()))
    }

    /// This context with all measured constants at one end of their intervals.
    #[must_use]
    pub fn at(&self, end: End) -> Self {
        Self {
            here: self.here.clone().map(|here| here.at(end)),
            given: self.given.iter().map(|given| given.clone().at(end)).collect(),
        }
    }

    /// This context with one input, as in `kth.map_ns`, multiplied by `factor`.
    ///
    /// # Errors
    /// When there is no such profile.
    pub fn times(&self, input: &str, factor: f64) -> Result<Self, ProfileError> {
        let (profile, constant) = input.split_once('.').unwrap_or((input, ""));
        let mut changed = self.clone();
        if let Some(here) = changed.here.take_if(|here| here.name == profile) {
            changed.here = Some(here.times(constant, factor));
            return Ok(changed);
        }
        let scaled = self.profile(profile)?.times(constant, factor);
        changed.given.retain(|given| given.name != profile);
        changed.given.push(scaled);
        Ok(changed)
    }
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
    /// The machine of a profile has too few processors.
    #[error("profile '{profile}': the figure needs a machine with {needs}")]
    Machine {
        /// The name of the profile.
        profile: String,
        /// What the machine must have.
        needs: &'static str,
    },
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
