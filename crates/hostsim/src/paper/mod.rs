//! The papers' tables and figures, computed by the models of this crate.
//!
//! Each function takes the profiles it needs and returns its numbers by name; [`crate::figure::File`]
//! puts the paper's beside them.

mod dlb;
mod fdir;
mod kth;
mod lanner;
#[cfg(test)]
mod tests;

use crate::figure::{Figure, FigureError, File, Made};
use crate::profile::Profile;

/// How a figure is computed.
type Make = fn(&Context) -> Result<Made, FigureError>;

/// What figures are computed from, beside the profiles of the papers' machines.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// This machine, as `flowyard calibrate` measured it.
    pub here: Option<Profile>,
}

/// The figures that this crate computes: name, file, and how.
const FIGURES: [(&str, &str, Make); 14] = [
    ("fdir-memcached", include_str!("../../../../figures/fdir-memcached.toml"), fdir::memcached),
    ("fdir-table", include_str!("../../../../figures/fdir-table.toml"), fdir::table),
    ("fdir-atr-ep", include_str!("../../../../figures/fdir-atr-ep.toml"), fdir::atr_ep),
    (
        "fdir-connections",
        include_str!("../../../../figures/fdir-connections.toml"),
        fdir::connections,
    ),
    ("fdir-reordering", include_str!("../../../../figures/fdir-reordering.toml"), fdir::reordering),
    ("fdir-settings", include_str!("../../../../figures/fdir-settings.toml"), fdir::settings),
    ("kth-baseline", include_str!("../../../../figures/kth-baseline.toml"), kth::baseline),
    (
        "kth-modification",
        include_str!("../../../../figures/kth-modification.toml"),
        kth::modification,
    ),
    ("kth-caching", include_str!("../../../../figures/kth-caching.toml"), kth::caching),
    ("kth-multicore", include_str!("../../../../figures/kth-multicore.toml"), kth::multicore),
    ("lanner-gigabit", include_str!("../../../../figures/lanner-gigabit.toml"), lanner::gigabit),
    ("lanner-10g", include_str!("../../../../figures/lanner-10g.toml"), lanner::ten_gigabit),
    ("dlb-workers", include_str!("../../../../figures/dlb-workers.toml"), dlb::workers),
    ("dlb-mice", include_str!("../../../../figures/dlb-mice.toml"), dlb::mice),
];

/// The names of the figures that this crate computes.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(name, ..)| *name)
}

/// Computes the figure `name`; `None` if there is no such figure.
///
/// # Errors
/// When its file or a profile is at fault.
pub fn make(name: &str, context: &Context) -> Option<Result<Figure, FigureError>> {
    let (name, text, make) = FIGURES.iter().find(|(known, ..)| *known == name)?;
    Some(File::parse(name, text).and_then(|file| file.with(make(context)?)))
}

/// The numbers that the paper prints for the figure `name`, of rows whose names begin and end so; what
/// is between is the place on the axis.
fn printed(name: &str, begin: &str, end: &str) -> Result<Vec<(f64, f64)>, FigureError> {
    let Some((name, text, _)) = FIGURES.iter().find(|(known, ..)| *known == name) else {
        return Ok(Vec::new());
    };
    let point = |row: &crate::figure::Printed| {
        let place = row.name.strip_prefix(begin)?.strip_suffix(end)?;
        Some((place.parse().ok()?, row.paper))
    };
    let rows = File::parse(name, text)?.rows;
    // A bound is no point.
    let equal = rows.iter().filter(|row| row.bound == crate::figure::Bound::Equal);
    Ok(equal.filter_map(point).collect())
}

/// Any error of a model, as a figure's.
fn model(error: impl std::fmt::Display) -> FigureError {
    FigureError::Model(error.to_string())
}

fn profile(name: &str) -> Result<Profile, FigureError> {
    Profile::named(name).map_err(model)
}
