//! An engine in a namespace, and its counters.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowyard_config::Config;
use flowyard_yard::run::{Outcome, Running};
use flowyard_yard::{Clock, DropReason, Parts, Yard};

use flowyard_livekit::Line;
use flowyard_livekit::net::Net;

/// The log messages of ports.
pub(crate) type Said = Arc<Mutex<Vec<String>>>;

/// A running engine.
pub(crate) struct Live {
    pub(crate) running: Running,
    pub(crate) log: Said,
}

#[allow(clippy::disallowed_methods, reason = "a live port needs a real clock")]
pub(crate) fn clock() -> Clock {
    let start = Instant::now();
    Arc::new(move || start.elapsed().as_nanos() as u64)
}

/// Builds an engine in `net`, or returns the error.
pub(crate) fn build(net: &Net, text: &str) -> Result<(Yard, Said), String> {
    let text = text.to_owned();
    net.within(move || {
        let log = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&log);
        let log_to: flowyard_ports::port::Log =
            Arc::new(move |port, what| to.lock().unwrap().push(format!("{port}: {what}")));
        let config = Config::parse("y.toml", &text).map_err(|error| error.to_string())?;
        let yard =
            config.build_logged(Parts::default(), &log_to).map_err(|error| error.to_string())?;
        Ok((yard, log))
    })
}

impl Live {
    /// Builds and starts the engine of `line`.
    pub(crate) fn on(line: &Line) -> Self {
        let live = Self::start(line.yard(), &line.plan.text());
        line.set_up_tap();
        live
    }

    pub(crate) fn start(net: &Net, text: &str) -> Self {
        let (yard, log) = build(net, text).unwrap();
        Self::of(net, yard, log)
    }

    pub(crate) fn of(net: &Net, yard: Yard, log: Said) -> Self {
        // Threads inherit the namespace of the thread that starts them.
        Self { running: net.within(move || yard.start(clock()).unwrap()), log }
    }

    /// Stops the engine, and checks that the counters balance and the pool has all its buffers.
    pub(crate) fn stop(self) -> Outcome {
        std::thread::sleep(Duration::from_millis(80)); // the kernel's counters are read meanwhile
        self.running.stop();
        let outcome = self.running.join();
        assert!(outcome.cores.iter().all(|core| core.died.is_none()), "{outcome:?}");
        assert!(outcome.is_balanced(), "{outcome:?}");
        assert_eq!(outcome.held, 0, "{outcome:?}");
        outcome
    }

    pub(crate) fn logged(&self, what: &str) -> bool {
        self.told(what) > 0
    }

    /// The number of log messages.
    pub(crate) fn told(&self, what: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.contains(what)).count()
    }

    /// Waits for this number of log messages. The time limit is long, because the machine may be
    /// busy.
    pub(crate) fn until_told(&self, what: &str, times: usize) {
        let clock = clock();
        while self.told(what) < times {
            let log = || self.log.lock().unwrap().join("\n");
            assert!(clock() < MINUTE, "not {times} times within a minute: {what}; log:\n{}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The longest wait of a test, in nanoseconds.
const MINUTE: u64 = 60_000_000_000;

/// Waits for a condition.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = clock();
    while !is_so() {
        assert!(clock() < MINUTE, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Drops, without those that the test causes.
pub(crate) fn drops_but(outcome: &Outcome, about: &[DropReason]) -> u64 {
    let total = outcome.total();
    total.drops.iter().filter(|(reason, _)| !about.contains(reason)).map(|(_, frames)| frames).sum()
}
