//! Tables and figures of the programmable adapter, simulated by `nicsim`.

use flowyard_nicsim::paper::{self, Study};
use flowyard_report::exhibit::Exhibit;

pub(super) use paper::names;

/// The exhibit `name`; `None` if `nicsim` has no such exhibit.
pub(super) fn make(name: &str) -> Option<anyhow::Result<Exhibit>> {
    // One thread: the figures already share the processors.
    let study = Study { threads: 1, measure_us: 2000, progress: &|_, _| () };
    Some(paper::make(name, &study)?.map_err(anyhow::Error::from))
}
