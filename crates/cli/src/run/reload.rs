//! Reload: the configuration is read again, or composed with new services of a provider, and everything that can change
//! while an instance runs is replaced, on a thread of its own, so that the run handles signals meanwhile.
//!
//! ```text
//!  read ──> compare key by key ──all can change──> prepare ──> apply between two batches
//!              │                                      └─error─> nothing has changed
//!              └─a key needs a new process ──> start one that takes over (a service of systemd), or refuse and say what to do
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flowyard_config::{Changes, Config, Needs};
use flowyard_operate::cluster::{Cluster, Snapshot};
use flowyard_operate::reload::Current;

use super::settings::Settings;
use super::successor::Successor;
use super::{Args, cluster};
use crate::stop::{Stop, bad_input};

/// Memory for the parser of a large file, as much as the first thread has.
const STACK: usize = 8 << 20;

/// Why the configuration is replaced.
pub(super) enum Cause {
    /// The file has changed.
    File,
    /// The services of the provider have changed.
    Services(Snapshot),
}

/// What a reload is made with.
#[derive(Clone)]
pub(super) struct With {
    pub(super) current: Arc<Current>,
    pub(super) settings: Arc<Settings>,
    /// The services of a provider, if the configuration names one.
    pub(super) services: Option<Arc<Cluster>>,
}

/// How a reload has ended.
enum Done {
    /// The new configuration is in use; the keys that have changed.
    Used(Vec<String>),
    /// These keys need a new process.
    NeedsSuccessor(String),
}

/// The reload in progress, if there is one.
#[derive(Default)]
pub(super) struct Reload {
    /// Returns the keys that need a new process, if one is to be started.
    thread: Option<JoinHandle<Option<String>>>,
    /// The process that is to take over.
    successor: Option<Successor>,
    /// Set when the run ends: then a reload in progress changes nothing.
    is_over: Arc<AtomicBool>,
}

impl Reload {
    /// Whether a reload is in progress.
    pub(super) const fn is_busy(&self) -> bool {
        self.thread.is_some() || self.successor.is_some()
    }

    /// Begins a reload.
    pub(super) fn begin(&mut self, cause: Cause, with: &With) {
        let (with, is_over) = (with.clone(), Arc::clone(&self.is_over));
        let unstarted = match &cause {
            Cause::Services(snapshot) => with.services.clone().zip(Some(snapshot.clone())),
            Cause::File => None,
        };
        let work = move || {
            let done = with.replace(&cause, &is_over);
            with.report(cause, done, &is_over)
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

    /// Goes on with a reload: starts a process that takes over, or notices that it has ended. Returns whether the reload has
    /// ended since the last call.
    pub(super) fn step(&mut self) -> bool {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let Ok(Some(keys)) = thread.join() else { return true };
            match Successor::start() {
                Ok(successor) => {
                    let process = successor.id();
                    tracing::info!(process, "{keys}: a new process was started, which takes over");
                    self.successor = Some(successor);
                    return false;
                }
                Err(error) => {
                    tracing::error!(
                        "reload refused, nothing changed: {keys}; a new process could not be started: {error}"
                    );
                    return true;
                }
            }
        }
        let Some(ended) = self.successor.as_mut().and_then(Successor::ended) else { return false };
        self.successor = None;
        tracing::error!(
            "reload refused, nothing changed: the process that was to take over has ended ({ended}); its messages are above"
        );
        true
    }

    /// Ends a reload in progress without waiting for it.
    pub(super) fn cancel(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(successor) = self.successor.take() {
            successor.end();
        }
    }

    /// Another process has taken over: it is left alone if it is the successor.
    pub(super) fn taken_by(&mut self, id: u32) {
        self.is_over.store(true, Ordering::Release);
        if let Some(successor) = self.successor.take().filter(|successor| successor.id() != id) {
            successor.end();
        }
    }
}

impl With {
    /// Reads or composes the new configuration and applies it.
    fn replace(&self, cause: &Cause, is_over: &AtomicBool) -> Result<Done, String> {
        let old = self.current.get();
        let mut new = match cause {
            Cause::File => self.current.read()?,
            Cause::Services(snapshot) => {
                cluster::compose(&old, snapshot).map_err(|error| error.to_string())?
            }
        };
        new.keep_offloads(&old);
        let changes = old.changes(&new);
        if changes.needs() > Needs::Reload {
            return self.needs_process(&changes).map(Done::NeedsSuccessor);
        }
        let plan = old.reload(&new).map_err(|error| error.to_string())?;
        let next = self.settings.prepare(&old, &new)?;
        if is_over.load(Ordering::Acquire) {
            return Err("the instance ends".into());
        }
        plan.apply(&self.settings.handle).map_err(|error| error.to_string())?;
        self.settings.change(next, &new);
        self.current.set(new);
        Ok(Done::Used(changes.keys.into_iter().map(|change| change.key).collect()))
    }

    /// The keys that need a new process, if this one starts it; otherwise what the user has to do.
    fn needs_process(&self, changes: &Changes) -> Result<String, String> {
        let Some((what, fix)) = changes.refusal(self.current.command()) else {
            return Err(String::new()); // not called without such keys
        };
        let can_take_over = self.settings.leaving.is_some();
        match changes.needs() {
            Needs::TakeOver if self.current.has_successors() => Ok(what),
            Needs::TakeOver if !can_take_over => Err(format!(
                "{what}; restart to apply them, because without a control socket no process can take over"
            )),
            _ => Err(format!("{what}; {fix}")),
        }
    }

    /// Reports how a reload has ended. Returns the keys that need a new process, if one is to be started.
    fn report(
        &self,
        cause: Cause,
        done: Result<Done, String>,
        is_over: &AtomicBool,
    ) -> Option<String> {
        match (done, cause, &self.services) {
            (Ok(Done::NeedsSuccessor(keys)), ..) => return Some(keys),
            (Ok(Done::Used(_)), Cause::Services(snapshot), Some(services)) => {
                let from = services.name();
                tracing::info!(generation = snapshot.generation, "services of {from} are in use");
                services.used(snapshot);
            }
            (Err(_), Cause::Services(_), _) if is_over.load(Ordering::Acquire) => {}
            (Err(error), Cause::Services(snapshot), Some(services)) => {
                services.refuse(snapshot, error);
            }
            (Ok(Done::Used(changed)), _, services) => {
                tracing::info!(
                    changed = changed.join(", "),
                    "{}: tables reloaded",
                    self.current.name()
                );
                if let Some(services) = services {
                    services.look_up(self.current.get().lookups());
                    services.offer_again();
                }
            }
            (Err(error), ..) => tracing::error!("reload refused, nothing changed: {error}"),
        }
        None
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

/// The configuration that runs, and how it is read again. `may_run_commands` tells whether health checks can run commands,
/// and `services` has the services of a provider, if the configuration names one.
pub(super) fn current(
    config: &Config,
    args: &Args,
    (may_run_commands, services): (&Arc<AtomicBool>, Option<&Arc<Cluster>>),
) -> Arc<Current> {
    let (path, pace) = (args.config.clone(), args.pace.clone());
    let (may_run, services) = (Arc::clone(may_run_commands), services.cloned());
    let read = move |old: &Config| {
        let may_run = may_run.load(Ordering::Relaxed);
        let new = again(old, (&path, pace.as_deref()), may_run, services.as_deref());
        new.map_err(|stop| stop.to_string())
    };
    let name = args.config.display().to_string();
    let control = args.control.as_ref().map(|path| format!(" --control {}", path.display()));
    let command = format!("flowyard run {name}{} --take-over", control.unwrap_or_default());
    Arc::new(Current::new(config.clone(), (name, command), Box::new(read)))
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
