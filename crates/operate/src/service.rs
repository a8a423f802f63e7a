//! Service: what systemd is told (sd_notify(3)), and whether the yard is well.
//!
//! Outside of systemd (`NOTIFY_SOCKET` is not set) all of this does nothing.
//!
//! Thread-safety: one thread's.

use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_yard::Handle;
use flowyard_yard::ask::Question;
use sd_notify::NotifyState;

/// How long a core may take to show that it is alive.
const PATIENCE: Duration = Duration::from_millis(200);

/// The service manager's view of a yard.
#[derive(Debug, Default)]
pub struct Service {
    /// How often the watchdog wants a sign of life, and when the last was given.
    watchdog: Option<(Nanos, Nanos)>,
}

impl Service {
    /// Reads what the service manager wants.
    #[must_use]
    pub fn new() -> Self {
        let span = sd_notify::watchdog_enabled();
        Self { watchdog: span.map(|span| (span.as_nanos() as Nanos / 2, 0)) }
    }

    /// Everything is open, and frames move.
    pub fn ready(&self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// A reload begins; [`Service::ready`] ends it.
    pub fn reloading(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            tell(&[NotifyState::Reloading, now]);
        }
    }

    /// No more is received; what is inside goes out.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Gives a sign of life when one is due and every core answers. A core that died, or hangs in
    /// its work, has the service manager restart the yard.
    pub fn watch(&mut self, yard: &Handle) {
        let now = yard.now();
        if let Some((every, last)) = &mut self.watchdog
            && now.saturating_sub(*last) >= *every
        {
            *last = now;
            let answers = yard.ask(&Question::Alive, PATIENCE);
            let silent: Vec<_> =
                (0..answers.len()).filter(|&core| answers[core].is_none()).collect();
            if silent.is_empty() || yard.is_over() {
                tell(&[NotifyState::Watchdog]);
            } else {
                tracing::warn!(?silent, "cores do not answer: no sign of life for the watchdog");
            }
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager was not told");
    }
}
