//! Watchdog of the OpenFlow agent: notices that the agent's thread does not respond, and closes its
//! connections.
//!
//! ```text
//!   agent ── beat, for each turn and each message ──> Heartbeat <── watch, several times in `patience` ── watchdog
//!                                                                  no beat? logged, counted, connections closed
//! ```
//!
//! The agent works for microseconds between two beats. An agent without a beat for `patience` is stuck: either a
//! message takes too long, or a core does not accept its changes. Rust cannot end a thread from outside, and a new
//! agent would lose the tables, so the agent is not replaced. Its connections are closed, so that controllers notice
//! and no messages wait; new connections are refused until the agent works again. The cores continue to forward with
//! the flows that they have.
//!
//! Thread-safety: the agent's thread calls `beat` and `begins`, the watchdog's thread calls `watch`, and any thread
//! reads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::sync::lock;

/// Number of checks without a beat after which the agent is stuck.
const CHECKS: u32 = 10;

/// Counts the beats of the agent, and records what it does.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    beats: AtomicU64,
    /// The controller whose message is handled, or another description of what the agent does.
    doing: Mutex<String>,
    is_stuck: AtomicBool,
    times: AtomicU64,
    /// Whether the channel ends.
    ends: AtomicBool,
}

impl Heartbeat {
    /// Records that the agent works.
    pub(super) fn beat(&self) {
        self.beats.store(self.beats.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Records what the agent begins to do.
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
    heartbeat: &Heartbeat,
    close_all: impl Fn(&'static str),
    stop: &Receiver<()>,
    patience: Duration,
) {
    // Checks are counted, and not time, because the whole process may have been stopped meanwhile.
    let (mut last, mut missed) = (0, 0);
    while stop.recv_timeout(patience / CHECKS) == Err(RecvTimeoutError::Timeout) {
        let beats = heartbeat.beats.load(Ordering::Relaxed);
        if beats != std::mem::replace(&mut last, beats) {
            missed = 0;
            if heartbeat.is_stuck.swap(false, Ordering::Relaxed) {
                tracing::info!("the OpenFlow agent works again; controllers may connect");
            }
            continue;
        }
        missed += 1;
        if missed < CHECKS {
            continue;
        }
        if !heartbeat.is_stuck.swap(true, Ordering::Relaxed) {
            heartbeat.times.fetch_add(1, Ordering::Relaxed);
            let doing = lock(&heartbeat.doing).clone();
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
