//! Options that describe the simulated adapter, shared by the subcommands of `nic`.

use std::path::{Path, PathBuf};

use flowyard_nicsim::config::{Config, ConfigError};
use flowyard_nicsim::engine::Parts;
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::run::image;

use crate::stop::{Stop, bad_input};

/// Template of the progress bar over simulations.
pub(super) const BAR: &str = "{wide_bar} {pos} of {len} simulations, {eta} left";

/// The number of simulations to run in parallel.
pub(super) fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(flowyard_bench::processors)
}

/// The simulated adapter.
#[derive(clap::Args, Clone)]
pub(super) struct MachineArgs {
    /// Firmware to run: ideal, swonly, rmw, task, steer, or an ELF file (see docs/nic.md)
    #[arg(long, value_name = "NAME|FILE", default_value = "rmw", help_heading = "Adapter")]
    firmware: String,

    /// Configuration file (TOML); keys that it does not contain keep their defaults
    #[arg(long, value_name = "FILE", help_heading = "Adapter")]
    config: Option<PathBuf>,

    /// Set one configuration key, such as chip.cores=8, chip.mhz=500/3 or load.flows=64 (may be
    /// repeated); `flowyard nic keys` lists the keys
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Adapter")]
    sets: Vec<String>,
}

impl MachineArgs {
    /// The files that are read. A built-in firmware has no file.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let is_file = Builtin::find(&self.firmware).is_none();
        let firmware = is_file.then(|| Path::new(&self.firmware));
        self.config.as_deref().into_iter().chain(firmware)
    }

    pub(super) fn config(&self) -> Result<Config, Stop> {
        // This firmware supports no other number of cores.
        let one_core =
            Builtin::find(&self.firmware) == Some(Builtin::Ideal) && !self.has_key("chip.cores")?;
        let mut config = match &self.config {
            None => Config::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    bad_input(format!(
                        "{}: {error}; --config needs a readable file",
                        path.display()
                    ))
                })?;
                Config::parse(&text).map_err(|error| match error {
                    // The error begins with the line and the column.
                    ConfigError::At { .. } => bad_input(format!("{}:{error}", path.display())),
                    error => bad_input(format!("{}: {error}", path.display())),
                })?
            }
        };
        if one_core {
            config.chip.cores = 1;
        }
        for set in &self.sets {
            config.set(set).map_err(|error| bad_input(format!("--set: {error}")))?;
        }
        config.check().map_err(|error| bad_input(format!("--set: {error}")))?;
        Ok(config)
    }

    /// Whether the user set the key `path`, on the command line or in the configuration file.
    pub(super) fn has_key(&self, path: &str) -> Result<bool, Stop> {
        let named = |set: &String| set.split('=').next().is_some_and(|key| key.trim() == path);
        if self.sets.iter().any(named) {
            return Ok(true);
        }
        let Some(file) = &self.config else { return Ok(false) };
        let text = std::fs::read_to_string(file)
            .map_err(|error| bad_input(format!("{}: {error}", file.display())))?;
        Ok(Config::has_key(&text, path))
    }

    /// The firmware file's bytes.
    pub(super) fn elf(&self) -> Result<Vec<u8>, Stop> {
        if let Some(builtin) = Builtin::find(&self.firmware) {
            return Ok(builtin.elf().to_vec());
        }
        let names: Vec<_> = Builtin::ALL.iter().map(|builtin| builtin.name()).collect();
        std::fs::read(&self.firmware).map_err(|error| {
            bad_input(format!(
                "--firmware {}: {error}; give a readable ELF file or one of {}",
                self.firmware,
                names.join(", ")
            ))
        })
    }

    pub(super) fn parts(&self) -> Result<Parts, Stop> {
        let config = self.config()?;
        let image = image(&config, &self.elf()?)
            .map_err(|error| bad_input(format!("--firmware {}: {error}", self.firmware)))?;
        Ok(Parts { config, image, ..Parts::default() })
    }
}
