//! The settings that a reload changes beside the engine: metrics, announcements of VIPs, health checks, and the connections of
//! a switch to controllers.
//!
//! ```text
//!  prepare: what can fail: bind addresses, read certificates  ──error──> nothing has changed
//!  change:  use it
//! ```
//!
//! Thread-safety: shared by the thread that runs the instance and the one that reloads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_config::Config;
use flowyard_operate::announce::Announcements;
use flowyard_operate::handover::Leaving;
use flowyard_operate::metrics::{self, Metrics};
use flowyard_operate::openflow::Prepared;
use flowyard_yard::Handle;

use super::open::serve_metrics;
use super::switch::Connections;

/// What runs beside the engine.
pub(super) struct Settings {
    pub(super) handle: Handle,
    pub(super) metrics: Mutex<Option<Metrics>>,
    /// Whether the arguments name the address of the metrics, so that the configuration does not count.
    pub(super) has_metrics_argument: bool,
    /// For a process that takes over, if one can.
    pub(super) leaving: Option<Arc<Leaving>>,
    pub(super) announcements: Option<Arc<Announcements>>,
    /// The largest number of health checks that begin in a second.
    pub(super) checks: Option<Arc<AtomicU32>>,
    /// The connections of a switch to its controllers.
    pub(super) switch: Option<Connections>,
}

/// New settings that are ready to be used.
pub(super) struct Next {
    /// The new server of metrics, which may be none; `None` keeps the one that runs.
    metrics: Option<Option<Metrics>>,
    switch: Option<Prepared>,
}

impl Settings {
    /// Prepares what `new` says differently. Nothing is changed yet.
    pub(super) fn prepare(&self, old: &Config, new: &Config) -> Result<Next, String> {
        let changed = self.switch.as_ref().filter(|_| old.switch != new.switch);
        let switch = changed.map(|switch| switch.prepare(new)).transpose()?;
        Ok(Next { metrics: self.prepare_metrics(old, new)?, switch })
    }

    fn prepare_metrics(
        &self,
        old: &Config,
        new: &Config,
    ) -> Result<Option<Option<Metrics>>, String> {
        if self.has_metrics_argument || old.metrics() == new.metrics() {
            return Ok(None);
        }
        let Some(text) = new.metrics() else { return Ok(Some(None)) };
        let address = metrics::address(text).map_err(|error| error.to_string())?;
        let running = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_some_and(|running| running.address() == address) {
            return Ok(None);
        }
        let bound = Metrics::bind(address).map_err(|error| error.to_string())?;
        Ok(Some(Some(bound)))
    }

    /// Uses what was prepared from `new`.
    pub(super) fn change(&self, next: Next, new: &Config) {
        let Next { metrics, switch } = next;
        if let Some(metrics) = metrics {
            self.change_metrics(metrics);
        }
        if let Some((connections, prepared)) = self.switch.as_ref().zip(switch) {
            connections.change(prepared, new);
        }
        if let Some((announcements, how)) = self.announcements.as_ref().zip(new.announce()) {
            announcements.wait_for(how.get_ref());
        }
        if let Some(checks) = &self.checks {
            checks.store(new.checks_per_second(), Ordering::Relaxed);
        }
    }

    fn change_metrics(&self, mut next: Option<Metrics>) {
        let duplicate = next.as_ref().map(Metrics::duplicate).transpose();
        let named = duplicate.ok().flatten().flatten();
        let named = next.as_ref().map(|metrics| metrics.address().to_string()).zip(named);
        let serves = next.as_mut().map(|metrics| serve_metrics(metrics, &self.handle)).transpose();
        if let Err(error) = serves {
            tracing::error!(%error, "serving metrics");
        }
        let mut running = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *running, next);
        if let Some(leaving) = &self.leaving {
            let old = old.as_ref().map(|metrics| metrics.address().to_string());
            leaving.replace(old.as_deref(), named);
        }
    }
}
