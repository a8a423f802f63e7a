//! Taking over from a running instance (`--take-over`), and ending when another one has taken over.

use std::path::Path;

use flowyard_config::Config;
use flowyard_operate::control;
use flowyard_operate::take_over::Running;
use flowyard_yard::{Clock, Parts, Yard};

use super::Args;
use crate::stop::{Stop, bad_input};

/// Asks the running instance, if the arguments say so.
pub(super) fn ask(args: &Args) -> Result<Option<Running>, Stop> {
    if !args.take_over {
        return Ok(None);
    }
    let path = match args.control.as_deref() {
        Some(path) if path == Path::new("none") => {
            let what = "--take-over needs the control socket of the running instance; leave out --control none";
            return Err(bad_input(anyhow::anyhow!(what)));
        }
        Some(path) => Some(path.to_owned()),
        None => control::default_path(&args.config),
    };
    let Some(path) = path else {
        let what = "--take-over: XDG_RUNTIME_DIR is not set; name the control socket of the running instance with --control PATH";
        return Err(bad_input(anyhow::anyhow!(what)));
    };
    Running::ask(&path).map(Some).map_err(cannot)
}

/// Puts its descriptors into `parts`: ports have those of ports with the same names.
pub(super) fn inherit(parts: &mut Parts, config: &Config, running: Option<&mut Running>) {
    let Some(running) = running else { return };
    parts.inherited_pool = running.pool();
    let all = running.ports().into_iter().filter_map(|(name, core, descriptors)| {
        let number = config.ports().position(|port| *port.name.get_ref() == name)?;
        Some(((number as u16, core), descriptors))
    });
    parts.inherited = all.collect();
}

/// Lets the running instance stop, and continues with its state.
pub(super) fn go_on(running: Option<Running>, mut yard: Yard, clock: &Clock) -> Result<Yard, Stop> {
    let Some(running) = running else { return Ok(yard) };
    let began = clock();
    let (frozen, state) = running.freeze().map_err(cannot)?;
    yard.go_on(&state, clock()).map_err(cannot)?;
    frozen.commit().map_err(cannot)?;
    let paused_us = clock().saturating_sub(began) / 1000;
    tracing::info!(paused_us, "took over from the running instance");
    Ok(yard)
}

fn cannot(error: impl std::error::Error + Send + Sync + 'static) -> Stop {
    Stop::Failed(anyhow::Error::new(error).context("--take-over"))
}

/// Ends this process without closing what another one uses now: its control socket, ports and programs of the kernel.
pub(super) fn leave() -> ! {
    std::process::exit(0)
}
