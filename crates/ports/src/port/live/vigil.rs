//! The assertion that a port lives: if its interface counts frames for it while it receives none, it
//! is deaf, and is opened again.
//!
//! ```text
//!  receives nothing │ 250 ms │ the interface counts more frames │ 250 ms │ still nothing: deaf
//!                   └ baseline                                  └ a frame on its way had time
//! ```
//!
//! [`super::watch`] asks the kernel whether the port is bound, which is exact and answers within
//! 20 ms. The vigil needs no such knowledge: it also finds a port that is bound and receives nothing
//! for a reason that nobody thought of. The counters of the interface are read only while all cores
//! of the port receive nothing, so a busy port pays nothing for it.
//!
//! A frame that the interface counts may be taken by another program, such as an XDP program. Opening
//! the port again then changes nothing; the time until the next attempt doubles each time, up to a
//! minute, until the port receives a frame.
//!
//! Thread-safety: each core writes its own cell of the pulse, when its watch looks; the first core
//! decides, and the others obey when their watches look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowyard_frame::Nanos;

use super::calls::Link;
use crate::live::Counts;

/// What the cores of a port know of each other.
#[derive(Debug)]
pub(super) struct Pulse {
    cells: Box<[Cell]>,
    /// How often the port was found deaf.
    orders: AtomicU64,
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
pub(super) struct Vigil {
    pulse: Arc<Pulse>,
    at: usize,
    received: u64,
    idle_at: Nanos,
    /// The orders that this core has obeyed.
    obeyed: u64,
    judge: Option<Judge>,
}

/// On the first core: decides whether the port is deaf.
struct Judge {
    /// The counter of the interface that counts frames for the port.
    counter: fn(&Counts) -> u64,
    received: u64,
    since: Nanos,
    counted: Option<u64>,
    is_suspect: bool,
    /// Time until the next order, and the earliest time of it.
    wait: Nanos,
    not_before: Nanos,
}

/// A window of the judge.
const WINDOW: Nanos = 250_000_000;
/// A core that found its queue empty within this time is idle.
const RECENT: Nanos = 100_000_000;
/// The shortest and the longest time between two orders.
const WAIT: (Nanos, Nanos) = (1_000_000_000, 64_000_000_000);

impl Pulse {
    pub(super) fn new(cores: usize) -> Arc<Self> {
        let cells = (0..cores).map(|_| Cell::default()).collect();
        Arc::new(Self { cells, orders: AtomicU64::new(0) })
    }

    fn received(&self) -> u64 {
        self.cells.iter().map(|cell| cell.received.load(Ordering::Relaxed)).sum()
    }

    fn is_idle(&self, now: Nanos) -> bool {
        let recent = |cell: &Cell| cell.idle_at.load(Ordering::Relaxed) + RECENT >= now;
        now < RECENT || self.cells.iter().all(recent)
    }
}

impl Vigil {
    /// The part of the core at position `at`. `counter` is the counter of the interface that counts
    /// the port's frames, if there is one that counts no others.
    pub(super) fn new(pulse: &Arc<Pulse>, at: usize, counter: Option<fn(&Counts) -> u64>) -> Self {
        let judge = counter.filter(|_| at == 0).map(|counter| Judge {
            counter,
            received: 0,
            since: 0,
            counted: None,
            is_suspect: false,
            wait: WAIT.0,
            not_before: 0,
        });
        Self { pulse: Arc::clone(pulse), at, received: 0, idle_at: 0, obeyed: 0, judge }
    }

    /// Counts what a call received: some frames, or none because none waited.
    #[inline]
    pub(super) const fn note(&mut self, frames: u32, is_idle: bool, now: Nanos) {
        self.received += frames as u64;
        if is_idle {
            self.idle_at = now;
        }
    }

    /// Whether the port must be opened again because it is deaf.
    pub(super) fn is_ordered(&self) -> bool {
        self.obeyed != self.pulse.orders.load(Ordering::Relaxed)
    }

    /// The port was opened again, for whatever reason.
    pub(super) fn obey(&mut self) {
        self.obeyed = self.pulse.orders.load(Ordering::Relaxed);
    }

    /// Reports to the other cores, and decides. Returns whether it found the port deaf just now.
    pub(super) fn beat(&mut self, now: Nanos, link: &mut impl Link, is_up: bool) -> bool {
        if let Some(cell) = self.pulse.cells.get(self.at) {
            cell.received.store(self.received, Ordering::Relaxed);
            cell.idle_at.store(self.idle_at, Ordering::Relaxed);
        }
        let is_deaf = match &mut self.judge {
            Some(judge) => judge.is_deaf(now, &self.pulse, link, is_up),
            None => false,
        };
        if is_deaf {
            self.pulse.orders.fetch_add(1, Ordering::Relaxed);
        }
        is_deaf
    }
}

impl Judge {
    fn is_deaf(&mut self, now: Nanos, pulse: &Pulse, link: &mut impl Link, is_up: bool) -> bool {
        let received = pulse.received();
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
            if !pulse.is_idle(now) || now < self.not_before {
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

    /// Times in milliseconds at which the port is found deaf, while the interface counts a frame
    /// every look, `received` says at which looks the port receives, and `idle` when nothing waits.
    fn orders(
        looks: u64,
        received: impl Fn(u64) -> bool,
        is_idle: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let pulse = Pulse::new(2);
        let mut all = [0, 1].map(|at| Vigil::new(&pulse, at, Some(|counts| counts.received)));
        let (mut link, mut found) = (Fake::default(), Vec::new());
        for look in 0..looks {
            let now = look * EVERY;
            link.0 += 1;
            all[0].note(0, true, now);
            all[1].note(received(look).into(), is_idle(look), now);
            all[1].beat(now, &mut link, true);
            if all[0].beat(now, &mut link, true) {
                assert!(all.iter().all(Vigil::is_ordered));
                all.iter_mut().for_each(Vigil::obey);
                found.push(now / 1_000_000);
            }
        }
        found
    }

    #[test]
    fn a_deaf_port_is_found_in_time_and_then_less_often() {
        assert_eq!(orders(1000, |_| false, |_| true), [780, 1820, 3900, 8060, 16120]);
    }

    #[test]
    fn a_port_that_receives_or_whose_frames_wait_is_not_deaf() {
        assert_eq!(orders(500, |look| look % 10 == 0, |_| true), []);
        assert_eq!(orders(500, |_| false, |_| false), []);
    }

    #[test]
    fn without_a_counter_nothing_is_asserted() {
        let mut vigil = Vigil::new(&Pulse::new(1), 0, None);
        for look in 0..100 {
            assert!(!vigil.beat(look * EVERY, &mut Fake(look), true) && !vigil.is_ordered());
        }
    }
}
