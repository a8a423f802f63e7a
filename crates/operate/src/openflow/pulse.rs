//! Whether the agent's thread still works, and what happens if it does not.
//!
//! ```text
//!   agent ── beat, for each turn and each message ──> Pulse <── watch, several times in `patience` ── watchdog
//!                                                                  no beat? logged, counted, connections closed
//! ```
//!
//! The agent works for microseconds between two beats. If it has not had one for `patience`, it is stuck: in a
//! message that takes too long, or because a core does not take its changes. A thread cannot be ended from outside,
//! and its tables would be lost, so it is not replaced. Its connections are closed, so that controllers notice and no
//! messages wait; new ones are refused until it works again. The cores forward meanwhile, with the flows that they
//! have.
//!
//! Thread-safety: the agent's thread beats, the watchdog's watches, any thread reads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::sync::lock;

/// The looks without a beat after which the agent is stuck.
const LOOKS: u32 = 10;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    beats: AtomicU64,
    /// The controller whose message is handled, or another description of what the agent does.
    doing: Mutex<String>,
    is_stuck: AtomicBool,
    times: AtomicU64,
    /// Whether the channel ends.
    ends: AtomicBool,
}

impl Pulse {
    /// The agent works.
    pub(super) fn beat(&self) {
        self.beats.store(self.beats.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The agent begins to do this.
    pub(super) fn begins(&self, what: &str) {
        self.beat();
        what.clone_into(&mut lock(&self.doing));
    }

    /// Whether the agent is stuck.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// How many times the agent was found stuck.
    pub(super) fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    pub(super) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

/// Watches until the channel ends. `close_all` closes all connections, with a reason.
pub(super) fn watch(
    pulse: &Pulse,
    close_all: impl Fn(&'static str),
    stop: &Receiver<()>,
    patience: Duration,
) {
    // Looks are counted, and not time, because the whole process may have been stopped meanwhile.
    let (mut last, mut missed) = (0, 0);
    while stop.recv_timeout(patience / LOOKS) == Err(RecvTimeoutError::Timeout) {
        let beats = pulse.beats.load(Ordering::Relaxed);
        if beats != std::mem::replace(&mut last, beats) {
            missed = 0;
            if pulse.is_stuck.swap(false, Ordering::Relaxed) {
                tracing::info!("the OpenFlow agent works again; controllers may connect");
            }
            continue;
        }
        missed += 1;
        if missed < LOOKS {
            continue;
        }
        if !pulse.is_stuck.swap(true, Ordering::Relaxed) {
            pulse.times.fetch_add(1, Ordering::Relaxed);
            let doing = lock(&pulse.doing).clone();
            tracing::error!(
                doing,
                "the OpenFlow agent has not responded for {} s: its connections are closed, and the cores forward \
                 with the flows that they have; if it does not respond again, restart flowyard, and report this",
                patience.as_secs_f64()
            );
        }
        close_all("the OpenFlow agent does not respond");
    }
}
