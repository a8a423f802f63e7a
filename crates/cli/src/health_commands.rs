//! `flowyard health-commands`: the process that runs the commands of health checks. Only `flowyard run` starts it.

use std::sync::Arc;

use flowyard_operate::health::commands;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::stop::Stop;

/// Runs commands until `flowyard run` has ended, which notices signals itself. A service manager sends signals to
/// both processes.
pub(crate) fn run() -> Result<(), Stop> {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // A handler without effect: unlike an ignored signal, it is not inherited by commands.
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let clock = crate::clock::new();
    commands::serve(&*clock).map_err(|why| Stop::Failed(anyhow::anyhow!(why)))
}
