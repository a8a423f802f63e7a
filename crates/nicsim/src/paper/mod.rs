//! Every table and figure of the paper, from runs made here.
//!
//! The paper's numbers and the accepted ranges are in `figures/nic-*.toml` (see
//! [`flowyard_report::exhibit`]). Where the paper contradicts itself, the notes in those files say so (see
//! also docs/nic.md, "Inconsistencies in the paper"). No constant of the model is fitted.

mod figures;
mod study;
mod tables;

use flowyard_report::exhibit::{Exhibit, How, Input, Kind, Made, Spec};

use crate::config::{Key, keys};
use crate::elf::Image;
use crate::engine::Access;
use crate::run::RunError;

pub use study::{Study, StudyError};

/// How an exhibit is computed.
type Make = fn(&Study<'_>) -> Result<Made, RunError>;

/// The exhibits in the order of the paper: name, file, and how. The paper's other figures are drawings.
const EXHIBITS: [(&str, &str, Make); 9] = [
    ("nic-table-1", include_str!("../../../../figures/nic-table-1.toml"), tables::table1),
    ("nic-table-2", include_str!("../../../../figures/nic-table-2.toml"), tables::table2),
    ("nic-table-3", include_str!("../../../../figures/nic-table-3.toml"), tables::table3),
    ("nic-table-4", include_str!("../../../../figures/nic-table-4.toml"), tables::table4),
    ("nic-table-5", include_str!("../../../../figures/nic-table-5.toml"), tables::table5),
    ("nic-table-6", include_str!("../../../../figures/nic-table-6.toml"), tables::table6),
    ("nic-figure-3", include_str!("../../../../figures/nic-figure-3.toml"), figures::figure3),
    ("nic-figure-7", include_str!("../../../../figures/nic-figure-7.toml"), figures::figure7),
    ("nic-figure-8", include_str!("../../../../figures/nic-figure-8.toml"), figures::figure8),
];

/// The names of the exhibits.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXHIBITS.iter().map(|(name, ..)| *name)
}

/// Computes the exhibit `name`; `None` if there is no such exhibit.
///
/// # Errors
/// When a run fails.
pub fn make(name: &str, study: &Study<'_>) -> Option<Result<Exhibit, StudyError>> {
    let (name, text, make) = EXHIBITS.iter().find(|(known, ..)| *known == name)?;
    let exhibit = || {
        let mut made = make(study)?;
        inputs(&mut made);
        Ok(Spec::parse(name, text)?.with(made)?)
    };
    Some(exhibit())
}

/// Figure 3 of any access trace, which ran `image`.
///
/// # Errors
/// When the exhibit's file does not fit.
pub fn caches(image: &Image, trace: &[Access]) -> Result<Exhibit, StudyError> {
    let (name, text, _) = EXHIBITS[6];
    let mut made = figures::caches(image, trace);
    inputs(&mut made);
    Ok(Spec::parse(name, text)?.with(made)?)
}

/// The sections of the configuration that describe the machine; the others describe a run.
pub(crate) const MACHINE: [&str; 7] = ["chip", "assist", "sdram", "pci", "mac", "host", "firmware"];

/// Gives every predicted number the settings of the machine as inputs. Exhibits that change one of them (the
/// cores, the clock) name it in the row.
fn inputs(made: &mut Made) {
    let number = |text: &str| match text.trim_matches('"').split_once('/') {
        Some((n, d)) => Some(n.parse::<f64>().ok()? / d.parse::<f64>().ok()?),
        None => text.parse().ok(),
    };
    let settings = keys().into_iter().filter_map(|described| {
        let how = if described.is_published() { How::Published } else { How::Assumed };
        let Key { key, default, about } = described;
        let (section, _) = key.split_once('.')?;
        let is_machine = MACHINE.contains(&section);
        let value = number(&default)?;
        is_machine.then_some(Input { value, name: key, how, source: about, interval: None })
    });
    made.inputs = settings.collect();
    let names: Vec<String> = made.inputs.iter().map(|input| input.name.clone()).collect();
    for value in made.values.iter_mut().filter(|value| value.kind == Kind::Predicted) {
        value.inputs.clone_from(&names);
    }
}
