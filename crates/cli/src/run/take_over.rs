//! Taking over from a running instance (`--take-over`), and ending when another one has taken over.

use std::path::Path;

use flowyard_config::Config;
use flowyard_operate::announce::Announcer;
use flowyard_operate::control;
use flowyard_operate::take_over::Running;
use flowyard_yard::{Clock, Handle, Parts, Yard};

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
pub(super) fn inherit(
    parts: &mut Parts,
    config: &Config,
    running: Option<&mut Running>,
) -> Result<(), Stop> {
    let Some(running) = running else { return Ok(()) };
    parts.inherited_pool = running.pool();
    if !running.opened().is_empty()
        && let Err(why) = config.unfit(running.opened())
    {
        let what = format!(
            "--take-over: {why}: stop the running instance and start this configuration instead"
        );
        return Err(bad_input(anyhow::anyhow!(what)));
    }
    let missing = running.names().iter().find(|name| number(config, name).is_none());
    if let (Some(name), true) = (missing, parts.inherited_pool.is_some()) {
        // The kernel would still write into buffers of the pool that it had for this port.
        let what = format!(
            "--take-over: the running instance has a port '{name}', which is not in the configuration; with ports of kind \
             \"af_xdp\", all must stay: stop that instance and start this configuration instead"
        );
        return Err(bad_input(anyhow::anyhow!(what)));
    }
    let stays = stays(running, config);
    let all = running.ports().into_iter();
    let all = all.filter_map(|(name, core, fds)| {
        Some(((number(config, &name).filter(|_| stays(&name))?, core), fds))
    });
    parts.inherited = all.collect();
    Ok(())
}

/// Whether this process goes on with a port of the running one. A port of the same name on another interface is opened.
fn stays(running: &Running, config: &Config) -> impl Fn(&str) -> bool + use<> {
    let (old, new) = (running.opened().to_vec(), config.opened());
    move |name| {
        let old = old.iter().find(|port| port.name == name);
        old.is_none_or(|old| new.iter().any(|new| old.is_continued_by(new)))
    }
}

/// The number of the port with this name.
fn number(config: &Config, name: &str) -> Option<u16> {
    let at = config.ports().position(|port| port.name.get_ref() == name)?;
    u16::try_from(at).ok()
}

/// Lets the running instance stop, and continues with its state.
pub(super) fn go_on(
    running: Option<Running>,
    config: &Config,
    mut yard: Yard,
    clock: &Clock,
) -> Result<Yard, Stop> {
    let Some(running) = running else { return Ok(yard) };
    let began = clock();
    let stays = stays(&running, config);
    let known = |name: &str| number(config, name).filter(|_| stays(name));
    let (frozen, state) = running.freeze(known).map_err(cannot)?;
    yard.go_on(&state, clock()).map_err(cannot)?;
    frozen.commit().map_err(cannot)?;
    let paused_us = clock().saturating_sub(began) / 1000;
    tracing::info!(paused_us, "took over from the running instance");
    Ok(yard)
}

fn cannot(error: impl std::error::Error + Send + Sync + 'static) -> Stop {
    Stop::Failed(anyhow::Error::new(error).context("--take-over"))
}

/// Leaves the engine to the process `id`, which has taken over.
pub(super) fn leave_to(id: u32, handle: &Handle, announcer: Option<Announcer>) {
    tracing::info!(process = id, "another process has taken over; this one ends");
    handle.leave();
    // The routes that it announced are the other process's.
    announcer.into_iter().for_each(std::mem::forget);
}

/// Ends this process without closing what another one uses now: its control socket, ports and programs of the kernel.
pub(super) fn leave() -> ! {
    std::process::exit(0)
}
