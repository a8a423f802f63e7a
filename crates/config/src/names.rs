//! Checks of names and numbers that refer to other sections.

use std::collections::HashSet;

use toml::Spanned;

use super::{Config, ConfigError};

/// The result of a check.
pub type Checked = Result<(), ConfigError>;

pub(super) fn unique<'a>(
    config: &Config,
    names: &mut HashSet<&'a str>,
    name: &'a Spanned<String>,
    kind: &str,
) -> Checked {
    if names.insert(name.get_ref()) {
        return Ok(());
    }
    let what = format!("there is a {kind} '{}' already", name.get_ref());
    Err(config.error(name.span(), what, "give each its own name"))
}

pub(super) fn core(config: &Config, core: &Spanned<u16>) -> Checked {
    let cores = *config.yard.cores.get_ref();
    if *core.get_ref() < cores {
        return Ok(());
    }
    let what = format!("there is no core {}", core.get_ref());
    let fix = format!("cores are 0 to {}; or raise 'cores' in [yard]", cores - 1);
    Err(config.error(core.span(), what, fix))
}

///
/// # Errors
/// When there is no such queue.
pub fn queue_name(config: &Config, name: &Spanned<String>) -> Checked {
    if config.queue_number(name.get_ref()).is_some() {
        return Ok(());
    }
    let names: Vec<_> = config.queues().map(|queue| queue.name.get_ref().as_str()).collect();
    let what = format!("there is no queue '{}'", name.get_ref());
    Err(config.error(name.span(), what, format!("the queues are {}", names.join(", "))))
}

///
/// # Errors
/// When there is no such port.
pub fn port_name(config: &Config, name: &str, span: std::ops::Range<usize>) -> Checked {
    if config.port_number(name).is_some() {
        return Ok(());
    }
    let names: Vec<_> = config.ports().map(|port| port.name.get_ref().as_str()).collect();
    let fix = format!("the ports are {}", names.join(", "));
    Err(config.error(span, format!("there is no port '{name}'"), fix))
}
