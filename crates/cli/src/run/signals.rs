//! Signals of `flowyard run`.
//!
//! ```text
//!  while it starts   SIGINT, SIGTERM: the process ends at once, with status 128 + the signal's number
//!  while it runs     SIGINT, SIGTERM: drain; the second one ends the process at once, with status 130
//!  always            SIGHUP is noted, and handled when the instance runs
//! ```
//!
//! The handlers are installed before anything else is done. A process without them that has the number 1, as in a
//! container, would ignore these signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowyard_ports::pcap::Ender;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals that have arrived and are not handled yet.
pub(super) struct Signals {
    /// Ends captures that wait for a pipe.
    ender: Ender,
    starting: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// From now on, SIGINT and SIGTERM end the process at once.
    pub(super) fn catch() -> std::io::Result<Self> {
        let new = |value| Arc::new(AtomicBool::new(value));
        let (starting, stop, reload) = (new(true), new(false), new(false));
        for signal in [SIGINT, SIGTERM] {
            let while_it_starts = Arc::clone(&starting);
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                while_it_starts,
            )?;
            // In this order: the first signal finds the flag unset and sets it, the second one exits.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
        Ok(Self { ender: Ender::new()?, starting, stop, reload })
    }

    /// What ends captures that wait for a pipe.
    pub(super) fn ender(&self) -> Ender {
        self.ender.clone()
    }

    /// From now on, SIGINT and SIGTERM drain.
    pub(super) fn started(&self) {
        self.starting.store(false, Ordering::Relaxed);
    }

    /// Whether SIGINT or SIGTERM arrived.
    pub(super) fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether SIGHUP arrived since the last call.
    pub(super) fn reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}
