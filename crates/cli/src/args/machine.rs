//! The arguments that say who has the adapter's pools and virtual functions, and how the adapter interrupts.

use std::path::Path;
use std::time::Duration;

use flowyard_adapter::interrupt::{DimMode, Moderation, VECTORS, eitr_interval};
use flowyard_adapter::profile::Profile;
use flowyard_adapter::tenants::{self, Tenants};
use flowyard_analyze::Interrupting;

use super::nanos;
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
pub(super) struct MachineArgs {
    /// Sort frames among the tenants of this file, by pools (VMDq) or virtual functions (SR-IOV), as x520, x540 and x550 do;
    /// docs/tenants.md describes the file
    #[arg(long, value_name = "FILE", help_heading = "Virtual machines")]
    tenants: Option<String>,

    /// Report interrupts, moderated by this interval: a time such as 50us, off, ixgbe (adaptive), dim-eqe or dim-cqe (adaptive)
    #[arg(long, value_name = "INTERVAL", help_heading = "Interrupts")]
    itr: Option<String>,

    /// Number of MSI-X vectors for queues; queue Q has vector Q modulo N [default: one for each queue]
    #[arg(long, value_name = "N", requires = "itr", help_heading = "Interrupts")]
    vectors: Option<u16>,

    /// Give a vector one credit for a low-latency interrupt in each such time, such as 1ms [default: no limit]
    #[arg(long, value_name = "TIME", requires = "itr", value_parser = humantime::parse_duration, help_heading = "Interrupts")]
    low_latency_every: Option<Duration>,
}

impl MachineArgs {
    /// The file that is read, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.tenants.as_deref().map(Path::new)
    }

    /// The tenants, if there are any.
    pub(super) fn tenants(&self) -> Result<Option<Tenants>, Stop> {
        let Some(name) = &self.tenants else { return Ok(None) };
        let text = std::fs::read_to_string(name).map_err(|error| {
            bad_input(format!("{name}: {error}; --tenants needs a readable file of tenants"))
        })?;
        let read = tenants::parse(name, &text).map_err(|errors| {
            let first = errors.first().map(ToString::to_string).unwrap_or_default();
            bad_input(match errors.len() - 1 {
                0 => first,
                more => format!("{first} (and {more} more in this file)"),
            })
        })?;
        Ok(Some(read))
    }

    /// How the adapter interrupts, if that is wanted.
    pub(super) fn interrupts(
        &self,
        adapter: &Profile,
        queues: u16,
    ) -> Result<Option<Interrupting>, Stop> {
        let Some(itr) = &self.itr else { return Ok(None) };
        let vectors = self.vectors.unwrap_or(queues.min(VECTORS));
        if vectors == 0 {
            return Err(bad_input("--vectors: must be at least 1"));
        }
        if let Some(most) = adapter.capabilities().vectors.filter(|most| vectors > *most) {
            return Err(bad_input(format!(
                "--vectors: {} has at most {most} vectors; use fewer",
                adapter.name
            )));
        }
        let moderation = match itr.as_str() {
            "off" => Moderation::Fixed(0),
            "ixgbe" => Moderation::Ixgbe,
            "dim-eqe" => Moderation::Dim(DimMode::Eqe),
            "dim-cqe" => Moderation::Dim(DimMode::Cqe),
            time => Moderation::Fixed(interval(time, adapter)?),
        };
        let credits = self.low_latency_every.map(nanos);
        Ok(Some(Interrupting { moderation, vectors, credits }))
    }
}

/// The interval that the adapter can have nearest below `time`.
fn interval(time: &str, adapter: &Profile) -> Result<u64, Stop> {
    let wanted = humantime::parse_duration(time).map(nanos).map_err(|_| {
        bad_input(format!(
            "--itr: '{time}' is not an interval; write a time such as 50us, or off, ixgbe, dim-eqe, dim-cqe"
        ))
    })?;
    if wanted > 1_000_000_000 {
        return Err(bad_input("--itr: must be at most 1s"));
    }
    Ok(match adapter.capabilities().moderation_unit_ns {
        Some(2048) => eitr_interval(wanted),
        Some(unit) => wanted / u64::from(unit) * u64::from(unit),
        None => wanted,
    })
}
