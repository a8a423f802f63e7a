//! Measurements: the engine on this machine, the costs that the host models need, memcached, and network
//! devices between interfaces.
//!
//! ```text
//!  engine ──────────> rounds ──> the engine with ports in memory
//!  calibrate ───────> rounds, micro, live: costs of this machine, as a profile for the models of `hostsim`
//!  figures ─────────> rounds, live, and the models: measured and predicted numbers side by side
//!  eventdev ────────> the rules of event schedulers, against DPDK's event devices and our queues
//!  history ─────────> the record of ratios to other programs
//!  latency ─────────> the engine under loads that do not wait for it
//!  memcached ───────> load, live, and `flowyard run` between the hosts: latency against the offered rate
//!  peers ───────────> rounds, and programs of DPDK in turn with the engine
//!  tester ──────────> real ports for the test bench of `rfc2544`
//! ```
//!
//! The command line parses arguments and prints results; this crate measures. It reads no clock: callers
//! pass a [`Clock`](flowyard_yard::Clock).
//! Thread-safety: plain functions; those that measure start their own threads and join them.

use std::fmt;

pub mod calibrate;
pub mod engine;
pub mod eventdev;
pub mod figures;
pub mod history;
pub mod latency;
pub mod live;
mod load;
pub mod machine;
pub mod memcached;
pub mod peers;
mod rounds;
mod stats;
pub mod steer;
mod sys;
pub mod tester;

/// Why a measurement was not made.
#[derive(Debug)]
pub enum Error {
    /// An interface, file or option of the user cannot be used. The text names it and the fix.
    Input(String),
    /// The measurement itself failed.
    Failed(anyhow::Error),
}

impl Error {
    #[allow(
        clippy::needless_pass_by_value,
        reason = "so that `map_err(Error::input)` needs no closure"
    )]
    pub(crate) fn input(error: impl ToString) -> Self {
        Self::Input(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(text) => f.write_str(text),
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<flowyard_rfc2544::MeasureError> for Error {
    fn from(error: flowyard_rfc2544::MeasureError) -> Self {
        Self::Failed(error.into())
    }
}

/// The number of CPUs that this process may use.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The program `name` in the search path.
#[must_use]
pub fn in_path(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
