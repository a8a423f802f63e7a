//! What a reload would do: the configuration that runs, compared with the file as it is now.
//!
//! Thread-safety: shared by the thread that reloads and those that answer questions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_config::{Config, How, Needs};
use flowyard_yard::{ControlPlane, Handle};

use crate::protocol::{Reload, ReloadChange, ReloadDoes, ReloadHow};

/// Reads the configuration again.
type Read = Box<dyn Fn(&Config) -> Result<Config, String> + Send + Sync>;

/// The configuration that runs.
pub struct Current {
    config: Mutex<Arc<Config>>,
    name: String,
    /// The command that starts a process which takes over.
    command: String,
    read: Read,
    /// Whether a reload starts a process that takes over, if one is needed.
    has_successors: AtomicBool,
}

impl ControlPlane for Current {}

impl Current {
    /// The configuration of the file `name`, which `read` reads again. `command` starts a process that takes over.
    #[must_use]
    pub fn new(config: Config, (name, command): (String, String), read: Read) -> Self {
        let has_successors = AtomicBool::new(false);
        Self { config: Mutex::new(Arc::new(config)), name, command, read, has_successors }
    }

    /// The configuration.
    #[must_use]
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another configuration is in use.
    pub fn set(&self, config: Config) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// The configuration as it is in the file now.
    ///
    /// # Errors
    /// It has a mistake.
    pub fn read(&self) -> Result<Config, String> {
        (self.read)(&self.get())
    }

    /// Whether a reload starts a process that takes over, if one is needed and can.
    #[must_use]
    pub fn has_successors(&self) -> bool {
        self.has_successors.load(Ordering::Relaxed)
    }

    /// From now on, a reload starts a process that takes over if one is needed.
    pub fn allow_successors(&self) {
        self.has_successors.store(true, Ordering::Relaxed);
    }

    /// What a reload would do now.
    #[must_use]
    pub fn plan(&self) -> Reload {
        let old = self.get();
        let empty = Reload {
            config: self.name.clone(),
            does: ReloadDoes::Refuses,
            refused: None,
            fix: None,
            changes: Vec::new(),
        };
        let new = match self.read() {
            Ok(new) => new,
            Err(error) => return Reload { refused: Some(error), ..empty },
        };
        let changes = old.changes(&new);
        let one = |change: &flowyard_config::Change| {
            let how = match change.how {
                How::Scenario | How::Live => ReloadHow::Reload,
                How::TakeOver => ReloadHow::TakeOver,
                How::Restart => ReloadHow::Restart,
            };
            let (old, new) = change.values.clone().unzip();
            ReloadChange { key: change.key.clone(), old, new, how }
        };
        let all = Reload { changes: changes.keys.iter().map(one).collect(), ..empty };
        let refusal = changes.refusal(&self.command);
        let (does, fix) = match changes.needs() {
            Needs::Nothing => (ReloadDoes::Nothing, None),
            Needs::Reload => (ReloadDoes::Reloads, None),
            Needs::TakeOver if self.has_successors() => (ReloadDoes::TakesOver, None),
            Needs::TakeOver | Needs::Restart => {
                return Reload {
                    refused: refusal.as_ref().map(|(what, _)| what.clone()),
                    fix: refusal.map(|(_, fix)| fix),
                    ..all
                };
            }
        };
        // What a table or a service refuses.
        match (does, old.reload(&new)) {
            (ReloadDoes::Reloads, Err(error)) => Reload { refused: Some(error.to_string()), ..all },
            _ => Reload { does, fix, ..all },
        }
    }

    /// The name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The command that starts a process which takes over.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }
}

/// What a reload of the instance would do now.
pub(crate) fn plan(yard: &Handle) -> Result<Reload, String> {
    let current = yard.control_plane::<Current>();
    current.map(|current| current.plan()).ok_or_else(|| "this instance has no file".into())
}
