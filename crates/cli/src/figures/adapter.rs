//! Tables and figures of the programmable adapter, simulated by `nicsim`.

use flowyard_hostsim::figure::{Bound, Figure, File, Kind, Row};
use flowyard_nicsim::paper::Study;

const FILES: [(&str, bool, u32, &str); 9] = [
    ("nic-table-1", true, 1, include_str!("../../../../figures/nic-table-1.toml")),
    ("nic-table-2", true, 2, include_str!("../../../../figures/nic-table-2.toml")),
    ("nic-table-3", true, 3, include_str!("../../../../figures/nic-table-3.toml")),
    ("nic-table-4", true, 4, include_str!("../../../../figures/nic-table-4.toml")),
    ("nic-table-5", true, 5, include_str!("../../../../figures/nic-table-5.toml")),
    ("nic-table-6", true, 6, include_str!("../../../../figures/nic-table-6.toml")),
    ("nic-figure-3", false, 3, include_str!("../../../../figures/nic-figure-3.toml")),
    ("nic-figure-7", false, 7, include_str!("../../../../figures/nic-figure-7.toml")),
    ("nic-figure-8", false, 8, include_str!("../../../../figures/nic-figure-8.toml")),
];

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, ..)| *name)
}

/// The table or figure `name`; `None` if it is not one of this module's.
pub(super) fn make(name: &str) -> Option<anyhow::Result<Figure>> {
    let (name, is_table, number, text) = FILES.iter().find(|(known, ..)| *known == name)?;
    // One thread: the figures are made in parallel already.
    let study = Study { threads: 1, measure_us: 2000, progress: &|_, _| () };
    let made = if *is_table { study.table(*number) } else { study.figure(*number) }?;
    Some(made.map_err(anyhow::Error::from).and_then(|exhibit| {
        let file = File::parse(name, text)?;
        let row = |row: &flowyard_nicsim::paper::Row| {
            let paper = row.paper.map(|paper| (paper, Bound::Equal));
            Row::new(row.name.clone(), paper, row.ours, Kind::Simulated, file.tolerance)
        };
        let rows = exhibit.rows.iter().map(row).collect();
        Ok(file.filled(rows, exhibit.plot.into_iter().collect(), exhibit.notes))
    }))
}
