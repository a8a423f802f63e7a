//! Running a trial: the interface between searches and testers.

use crate::traffic::BadTraffic;
use crate::trial::{Trial, TrialResult};

/// Something that can run a trial: the tester under virtual time, in real time, or a model.
pub trait Measure {
    /// Runs the trial.
    ///
    /// # Errors
    /// When the trial cannot be run; the message says how to fix that.
    fn measure(&mut self, trial: &Trial) -> Result<TrialResult, MeasureError>;

    /// Frames that the device dropped so far, by its own reasons; empty if the device does not
    /// report any.
    fn drops(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// Why a trial could not be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MeasureError {
    /// The traffic specification is invalid.
    #[error(transparent)]
    Traffic(#[from] BadTraffic),
    /// The device has too few ports.
    #[error("the device has {has} ports, but the topology needs {wants}; choose another topology")]
    Ports {
        /// Ports of the device.
        has: u8,
        /// Ports that the topology needs.
        wants: u8,
    },
    /// The trial includes a reset, which the device does not support.
    #[error("{0} cannot be reset")]
    NoReset(String),
    /// The counters of the trial do not balance: a fault of the tester.
    #[error("the tester's counters do not balance: {0}; please report this as a bug")]
    Unbalanced(String),
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}
