//! Notifications to systemd (sd_notify(3)), and its watchdog.
//!
//! If the process was not started by systemd (`NOTIFY_SOCKET` is not set), nothing is sent.
//!
//! Thread-safety: used by one thread.

use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_yard::Handle;
use flowyard_yard::ask::Question;
use sd_notify::NotifyState;

/// The longest wait for the cores to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The connection to the service manager.
#[derive(Debug, Default)]
pub struct Service {
    watchdog: Option<Watchdog>,
}

#[derive(Debug)]
struct Watchdog {
    /// The time between two notifications: half of the watchdog's timeout.
    interval: Nanos,
    /// When the last notification was due.
    last: Nanos,
}

impl Service {
    /// Reads the watchdog's timeout from the environment.
    #[must_use]
    pub fn new() -> Self {
        let timeout = sd_notify::watchdog_enabled();
        let interval = |timeout: Duration| timeout.as_nanos() as Nanos / 2;
        Self { watchdog: timeout.map(|timeout| Watchdog { interval: interval(timeout), last: 0 }) }
    }

    /// Reports that all ports are open and the cores run.
    pub fn ready(&self, status: &str) {
        notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Reports that a reload begins; [`Service::ready`] reports its end.
    pub fn reloading(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            notify(&[NotifyState::Reloading, now]);
        }
    }

    /// Reports that the engine stops receiving and transmits its remaining frames.
    pub fn stopping(&self) {
        notify(&[NotifyState::Stopping]);
    }

    /// Reports that the process `id` has taken over: it is the main process of the service now.
    ///
    /// Both states are in one message, because the service manager accepts READY from the main process only, and it may
    /// wait for that at the end of a reload.
    pub fn taken_by(&self, id: u32) {
        notify(&[NotifyState::MainPid(id), NotifyState::Ready]);
    }

    /// Whether the service manager follows a process that takes over from this one: this is the main process of a
    /// service of systemd that notifies.
    ///
    /// Elsewhere, the parent of this process would see it end: a shell, or a container of which it is the first process.
    #[must_use]
    pub fn follows() -> bool {
        let has = |name: &str| std::env::var_os(name).is_some();
        // A process that took over has no such variable; see `successor`.
        let main = std::env::var("SYSTEMD_EXEC_PID").ok();
        let is_main = main.is_none_or(|id| id.parse() == Ok(std::process::id()));
        has("NOTIFY_SOCKET") && has("INVOCATION_ID") && is_main && std::process::id() != 1
    }

    /// Notifies the watchdog if that is due and every core answers. If a core died or hangs in its
    /// work, the watchdog is not notified, so that the service manager restarts the process.
    pub fn watch(&mut self, yard: &Handle) {
        let now = yard.now();
        if let Some(watchdog) = &mut self.watchdog
            && now.saturating_sub(watchdog.last) >= watchdog.interval
        {
            watchdog.last = now;
            let answers = yard.ask(&Question::Alive, PATIENCE);
            let silent: Vec<_> =
                (0..answers.len()).filter(|&core| answers[core].is_none()).collect();
            if silent.is_empty() || yard.is_over() {
                notify(&[NotifyState::Watchdog]);
            } else {
                tracing::warn!(?silent, "cores do not answer; the watchdog is not notified");
            }
        }
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}
