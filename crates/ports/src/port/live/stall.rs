//! Finds stalled ports: a port is stalled if its interface counts frames for it while it receives
//! none. It is then opened again.
//!
//! ```text
//!  receives nothing │ 250 ms │ the interface counts more frames │ 250 ms │ still nothing: stalled
//!                   └ baseline                                  └ a frame on its way had time
//! ```
//!
//! [`super::watch`] asks the kernel whether the port is bound, which is exact and answers within
//! 20 ms. This module also finds a port that is bound and receives nothing, whatever the cause is. The
//! counters of the interface are read only while no core of the port receives anything, so a busy port
//! does not pay for these reads.
//!
//! A frame that the interface counts may be taken by another program, such as an XDP program. Opening
//! the port again then changes nothing; the time until the next attempt doubles each time, up to a
//! minute, until the port receives a frame.
//!
//! Thread-safety: each core writes its own cell of [`Progress`]; the first core decides, and the
//! others read its decision. All do this when their watch looks at the interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowyard_frame::Nanos;

use super::calls::Link;
use crate::live::Counts;

/// What the cores of a port have received, and how often the port stalled; shared by the cores.
#[derive(Debug)]
pub(super) struct Progress {
    cells: Box<[Cell]>,
    /// How often the port was found stalled.
    stalls: AtomicU64,
}

/// What a core reports.
#[derive(Debug, Default)]
struct Cell {
    /// Frames received so far.
    received: AtomicU64,
    /// When the core last found that nothing waited.
    idle_at: AtomicU64,
}

/// One core's part.
pub(super) struct StallDetector {
    progress: Arc<Progress>,
    at: usize,
    received: u64,
    idle_at: Nanos,
    /// The stalls that this core has handled.
    handled: u64,
    decision: Option<Decision>,
}

/// Decides whether the port is stalled; present on the first core only.
struct Decision {
    /// The counter of the interface that counts frames for the port.
    counter: fn(&Counts) -> u64,
    received: u64,
    since: Nanos,
    counted: Option<u64>,
    is_suspect: bool,
    /// The time to wait after the next reopening, and the earliest time of that reopening.
    wait: Nanos,
    not_before: Nanos,
}

/// How long a port must receive nothing, before and after the counter of the interface grew.
const WINDOW: Nanos = 250_000_000;
/// A core that found its queue empty within this time is idle.
const RECENT: Nanos = 100_000_000;
/// The shortest and the longest time between two reopenings of a stalled port.
const WAIT: (Nanos, Nanos) = (1_000_000_000, 64_000_000_000);

impl Progress {
    pub(super) fn new(cores: usize) -> Arc<Self> {
        let cells = (0..cores).map(|_| Cell::default()).collect();
        Arc::new(Self { cells, stalls: AtomicU64::new(0) })
    }

    fn received(&self) -> u64 {
        self.cells.iter().map(|cell| cell.received.load(Ordering::Relaxed)).sum()
    }

    fn is_idle(&self, now: Nanos) -> bool {
        let recent = |cell: &Cell| cell.idle_at.load(Ordering::Relaxed) + RECENT >= now;
        now < RECENT || self.cells.iter().all(recent)
    }
}

impl StallDetector {
    /// The part of the core at position `at`. `counter` is the counter of the interface that counts
    /// the port's frames, if there is one that counts no others.
    pub(super) fn new(
        progress: &Arc<Progress>,
        at: usize,
        counter: Option<fn(&Counts) -> u64>,
    ) -> Self {
        let decision = counter.filter(|_| at == 0).map(|counter| Decision {
            counter,
            received: 0,
            since: 0,
            counted: None,
            is_suspect: false,
            wait: WAIT.0,
            not_before: 0,
        });
        Self { progress: Arc::clone(progress), at, received: 0, idle_at: 0, handled: 0, decision }
    }

    /// Counts what a call received: some frames, or none because none waited.
    #[inline]
    pub(super) const fn note(&mut self, frames: u32, is_idle: bool, now: Nanos) {
        self.received += frames as u64;
        if is_idle {
            self.idle_at = now;
        }
    }

    /// Whether the port must be opened again because it is stalled.
    pub(super) fn must_reopen(&self) -> bool {
        self.handled != self.progress.stalls.load(Ordering::Relaxed)
    }

    /// The port was opened again, for whatever reason.
    pub(super) fn reopened(&mut self) {
        self.handled = self.progress.stalls.load(Ordering::Relaxed);
    }

    /// Reports to the other cores, and decides. Returns whether it found the port stalled just now.
    pub(super) fn check(&mut self, now: Nanos, link: &mut impl Link, is_up: bool) -> bool {
        if let Some(cell) = self.progress.cells.get(self.at) {
            cell.received.store(self.received, Ordering::Relaxed);
            cell.idle_at.store(self.idle_at, Ordering::Relaxed);
        }
        let is_stalled = match &mut self.decision {
            Some(decision) => decision.is_stalled(now, &self.progress, link, is_up),
            None => false,
        };
        if is_stalled {
            self.progress.stalls.fetch_add(1, Ordering::Relaxed);
        }
        is_stalled
    }
}

impl Decision {
    fn is_stalled(
        &mut self,
        now: Nanos,
        progress: &Progress,
        link: &mut impl Link,
        is_up: bool,
    ) -> bool {
        let received = progress.received();
        if received != self.received {
            self.wait = WAIT.0;
        }
        if received != self.received || !is_up {
            (self.received, self.since, self.counted) = (received, now, None);
            self.is_suspect = false;
            return false;
        }
        if now.saturating_sub(self.since) < WINDOW {
            return false;
        }
        self.since = now;
        if self.is_suspect {
            if !progress.is_idle(now) || now < self.not_before {
                return false; // frames wait for a core that is busy, or it was opened a moment ago
            }
            (self.is_suspect, self.counted) = (false, None);
            self.not_before = now + self.wait;
            self.wait = (2 * self.wait).min(WAIT.1);
            return true;
        }
        let Some(counts) = link.counts() else { return false };
        let counted = (self.counter)(&counts);
        let before = self.counted.replace(counted);
        self.is_suspect = before.is_some_and(|before| counted > before);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::State;
    use std::io;

    #[derive(Default)]
    struct Fake(u64);

    impl Link for Fake {
        fn look(&mut self) -> io::Result<Option<State>> {
            Ok(None)
        }

        fn counts(&mut self) -> Option<Counts> {
            Some(Counts { received: self.0, unsent: 0 })
        }
    }

    const EVERY: Nanos = 20_000_000;

    /// Times in milliseconds at which the port is found stalled, while the interface counts a frame
    /// every look, `received` says at which looks the port receives, and `idle` when nothing waits.
    fn stalls(
        looks: u64,
        received: impl Fn(u64) -> bool,
        is_idle: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let progress = Progress::new(2);
        let mut all =
            [0, 1].map(|at| StallDetector::new(&progress, at, Some(|counts| counts.received)));
        let (mut link, mut found) = (Fake::default(), Vec::new());
        for look in 0..looks {
            let now = look * EVERY;
            link.0 += 1;
            all[0].note(0, true, now);
            all[1].note(received(look).into(), is_idle(look), now);
            all[1].check(now, &mut link, true);
            if all[0].check(now, &mut link, true) {
                assert!(all.iter().all(StallDetector::must_reopen));
                all.iter_mut().for_each(StallDetector::reopened);
                found.push(now / 1_000_000);
            }
        }
        found
    }

    #[test]
    fn a_stalled_port_is_found_in_time_and_then_less_often() {
        assert_eq!(stalls(1000, |_| false, |_| true), [780, 1820, 3900, 8060, 16120]);
    }

    #[test]
    fn a_port_that_receives_or_whose_frames_wait_is_not_stalled() {
        assert_eq!(stalls(500, |look| look % 10 == 0, |_| true), [0_u64; 0]);
        assert_eq!(stalls(500, |_| false, |_| false), [0_u64; 0]);
    }

    #[test]
    fn without_a_counter_no_port_is_found_stalled() {
        let mut detector = StallDetector::new(&Progress::new(1), 0, None);
        for look in 0..100 {
            assert!(
                !detector.check(look * EVERY, &mut Fake(look), true) && !detector.must_reopen()
            );
        }
    }
}
