//! The papers' tables and figures, computed by the models of this crate.
//!
//! Each function takes the profiles that it needs and returns its numbers by name; [`Spec::with`] puts the
//! paper's numbers beside them.

mod context;
mod dlb;
mod fdir;
mod fdir_wall;
mod kth;
mod lanner;
#[cfg(test)]
mod perturbed;
#[cfg(test)]
mod tests;

pub use context::{Context, FigureError};
use flowyard_report::exhibit::{Exhibit, Made, Spec};

/// How a figure is computed.
type Make = fn(&Context, &Spec) -> Result<Made, FigureError>;

/// The figures that this crate computes: name, file, and how.
const FIGURES: [(&str, &str, Make); 15] = [
    ("fdir-memcached", include_str!("../../../../figures/fdir-memcached.toml"), fdir::memcached),
    ("fdir-table", include_str!("../../../../figures/fdir-table.toml"), fdir::table),
    ("fdir-atr-ep", include_str!("../../../../figures/fdir-atr-ep.toml"), fdir::atr_ep),
    (
        "fdir-connections",
        include_str!("../../../../figures/fdir-connections.toml"),
        fdir::connections,
    ),
    ("fdir-reordering", include_str!("../../../../figures/fdir-reordering.toml"), fdir::reordering),
    ("fdir-rfs-wall", include_str!("../../../../figures/fdir-rfs-wall.toml"), fdir_wall::rfs_wall),
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
/// When its file or a profile is wrong.
pub fn make(name: &str, context: &Context) -> Option<Result<Exhibit, FigureError>> {
    let (name, text, make) = FIGURES.iter().find(|(known, ..)| *known == name)?;
    let exhibit = || {
        let spec = Spec::parse(name, text)?;
        let made = make(context, &spec)?;
        Ok(spec.with(made)?)
    };
    Some(exhibit())
}
