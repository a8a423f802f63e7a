//! What `flowyard run --check` prints about a valid configuration.

use std::io::{Write, stderr};

use flowyard_config::Config;
use flowyard_operate::doctor::{Here, Wanted, offline};
use schemars::JsonSchema;
use serde::Serialize;

use super::capacity::{self, Holds};
use super::cluster::Provided;
use super::{Args, CHECK};
use crate::output;
use crate::stop::{Stop, bad_input};

/// A valid configuration. For one that is not valid, the command prints no document: an error on standard error
/// names the place, and the exit status is 2.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Check {
    /// The file.
    config: String,
    /// What does not make the configuration invalid but was probably not intended.
    warnings: Vec<String>,
    /// What the balancer can hold; null for other works.
    balancer: Option<Holds>,
    /// The services of the provider in `[cluster]`; null without this section.
    provided: Option<Provided>,
}

/// Prints that the configuration is valid, and what it can hold.
pub(super) fn print(config: &Config, provided: Option<Provided>, args: &Args) -> Result<(), Stop> {
    let warnings: Vec<String> = pins(config)?.into_iter().collect();
    for warning in &warnings {
        let _closed = writeln!(stderr(), "flowyard: warning: {warning}");
    }
    let name = args.config.display().to_string();
    let balancer = capacity::of(config);
    if args.json {
        return output::json(CHECK, Check { config: name, warnings, balancer, provided });
    }
    let holds = balancer.as_ref().map(Holds::text).unwrap_or_default();
    let provided = provided.as_ref().map(Provided::text).unwrap_or_default();
    output::text(&format!("{name}: the configuration is valid\n{provided}{holds}"))
}

/// A warning of cores that would not be pinned on this machine. The configuration is valid: they run without.
fn pins(config: &Config) -> Result<Option<String>, Stop> {
    let setup = config.resolve().map_err(bad_input)?;
    let gone = offline(&Here, &Wanted::of(&setup));
    let warning = |cpu: &_| {
        let what =
            format!("CPU {cpu} is not online on this machine, so its core would not be pinned");
        let fix = "'flowyard doctor CONFIG' names the CPUs that are";
        config.error(config.yard.pin.span(), what, fix).to_string()
    };
    Ok(gone.first().map(warning))
}
