//! How the paper's machines are run.

use flowyard_report::exhibit::ExhibitError;

use crate::config::Config;
use crate::firmware::Builtin;
use crate::run::{Outcome, RunError};
use crate::sweep::{Job, sweep};
use crate::time::Freq;

/// Why an exhibit cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The exhibit's file is wrong, or does not fit the run.
    #[error(transparent)]
    Exhibit(#[from] ExhibitError),
}

/// How a study is run.
pub struct Study<'a> {
    /// Host cores to use.
    pub threads: usize,
    /// Measured time of each run, in microseconds.
    pub measure_us: u64,
    /// Called after every run with the number of runs that are done and the number of all.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

impl Study<'_> {
    /// The machine on which the paper measures this firmware: 6 x 200 MHz or 6 x 166 MHz. For the ideal
    /// firmware: one core of 650 MHz, the slowest in steps of 50 MHz that carries line rate, so that it
    /// is never idle.
    pub(super) fn job(&self, firmware: Builtin) -> Job {
        let mut config = Config::default();
        // The transmit buffer must fill, and the receive descriptors that the host posted at the start must be
        // fetched; until then a profile counts more descriptors than frames.
        config.run.warmup_us = 4000;
        config.run.measure_us = self.measure_us;
        match firmware {
            Builtin::SwOnly | Builtin::Task => config.chip.mhz = Freq::mhz(200),
            Builtin::Ideal => (config.chip.cores, config.chip.mhz) = (1, Freq::mhz(650)),
            _ => {}
        }
        Job { firmware, config }
    }

    /// The outcomes of the jobs. A run with wrong frames is an error.
    pub(super) fn run(&self, jobs: &[Job]) -> Result<Vec<Outcome>, RunError> {
        let outcomes = sweep(jobs, self.threads, self.progress)?;
        outcomes.iter().try_for_each(Outcome::verdict)?;
        Ok(outcomes)
    }
}
