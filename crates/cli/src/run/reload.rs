//! Reload: the configuration is read again, or composed with new services of a provider, and the tables are replaced, on a
//! thread of its own, so that the run handles signals meanwhile. A wrong configuration changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flowyard_config::Config;
use flowyard_operate::cluster::{Cluster, Snapshot};
use flowyard_yard::Handle;

use super::Args;
use super::cluster;
use crate::stop::{Stop, bad_input};

/// Memory for the parser of a large file, as much as the first thread has.
const STACK: usize = 8 << 20;

/// Why the tables are replaced.
pub(super) enum Cause {
    /// The file has changed.
    File,
    /// The services of the provider have changed.
    Services(Snapshot),
}

/// The reload in progress, if there is one.
#[derive(Default)]
pub(super) struct Reload {
    /// Returns the new configuration if it is used.
    thread: Option<JoinHandle<Option<Config>>>,
    /// Set when the run ends: then a reload in progress changes nothing.
    is_over: Arc<AtomicBool>,
}

impl Reload {
    /// Whether a reload is in progress.
    pub(super) const fn is_busy(&self) -> bool {
        self.thread.is_some()
    }

    /// Begins a reload. `may_run_commands` tells whether health checks can run commands, and `services` has the
    /// services of a provider, if the configuration names one.
    pub(super) fn begin(
        &mut self,
        cause: Cause,
        yard: &Handle,
        old: &Config,
        args: &Args,
        (may_run_commands, services): (bool, Option<&Arc<Cluster>>),
    ) {
        let (path, pace) = (args.config.clone(), args.pace.clone());
        let (yard, old, is_over) = (yard.clone(), old.clone(), Arc::clone(&self.is_over));
        let services = services.cloned();
        let unstarted = match &cause {
            Cause::Services(snapshot) => services.clone().zip(Some(snapshot.clone())),
            Cause::File => None,
        };
        let work = move || {
            let new = match &cause {
                Cause::File => {
                    again(&old, (&path, pace.as_deref()), may_run_commands, services.as_deref())
                }
                Cause::Services(snapshot) => cluster::compose(&old, snapshot).map_err(bad_input),
            };
            let done = new.map_err(|stop| stop.to_string()).and_then(|mut new| {
                new.keep_offloads(&old);
                let reload = old.reload(&new).map_err(|error| error.to_string())?;
                if is_over.load(Ordering::Acquire) {
                    return Err("the instance ends".into());
                }
                reload.apply(&yard).map_err(|error| error.to_string())?;
                Ok(new)
            });
            match (&done, cause, services) {
                (Ok(_), Cause::Services(snapshot), Some(services)) => {
                    let from = services.name();
                    tracing::info!(
                        generation = snapshot.generation,
                        "services of {from} are in use"
                    );
                    services.used(snapshot);
                }
                (Err(_), Cause::Services(_), _) if is_over.load(Ordering::Acquire) => {}
                (Err(error), Cause::Services(snapshot), Some(services)) => {
                    services.refuse(snapshot, error.clone());
                }
                (Ok(new), _, services) => {
                    tracing::info!("{}: tables reloaded", path.display());
                    if let Some(services) = services {
                        services.look_up(new.lookups());
                        services.offer_again();
                    }
                }
                (Err(error), ..) => tracing::error!("reload refused, nothing changed: {error}"),
            }
            done.ok()
        };
        let thread = std::thread::Builder::new().name("reload".into()).stack_size(STACK);
        match thread.spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => match unstarted {
                Some((services, snapshot)) => services.refuse(snapshot, error.to_string()),
                None => tracing::error!("reload refused, nothing changed: {error}"),
            },
        }
    }

    /// Whether a reload has ended since the last call. `config` becomes the configuration in use.
    pub(super) fn has_ended(&mut self, config: &mut Config) -> bool {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else { return false };
        if let Ok(Some(new)) = thread.join() {
            *config = new;
        }
        true
    }

    /// Ends a reload in progress without waiting for it.
    pub(super) fn cancel(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// The configuration as it is in the file now.
fn again(
    old: &Config,
    (path, pace): (&PathBuf, Option<&str>),
    may_run_commands: bool,
    services: Option<&Cluster>,
) -> Result<Config, Stop> {
    let mut new = match services {
        None => read(path, pace)?,
        Some(services) => {
            let Snapshot { fragments, .. } = services.in_use();
            let new = Config::read_with(path, &cluster::place(old), &fragments);
            paced(new.map_err(bad_input)?, pace)?
        }
    };
    // The tables keep the secret of the start.
    new.keep_secret(old);
    if new.runs_commands() && !may_run_commands {
        return Err(bad_input(format!(
            "{}: health checks run commands as a user of their own, which root can change to only at the start; restart \
             to add a check of kind \"command\"",
            path.display()
        )));
    }
    Ok(new)
}

/// Reads the configuration.
pub(super) fn read(path: &Path, pace: Option<&str>) -> Result<Config, Stop> {
    paced(Config::read(path).map_err(bad_input)?, pace)
}

fn paced(mut config: Config, pace: Option<&str>) -> Result<Config, Stop> {
    if let Some(pace) = pace {
        config.set_pace(pace).map_err(|what| bad_input(format!("--pace: {what}")))?;
    }
    Ok(config)
}
