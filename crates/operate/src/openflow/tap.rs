//! The messages that recently passed between the switch and its controllers, for `flowyard switch snoop`.
//!
//! Nothing is kept until a reader asks. Then messages are kept in a ring, until no reader has asked for
//! [`LASTS`]. Messages have numbers, so a reader sees how many it has missed.
//!
//! Thread-safety: the agent's thread adds messages, any thread reads them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowyard_yard::ControlPlane;

use super::sync::{clock, lock};

/// How long messages are kept after a reader has asked.
const LASTS: Duration = Duration::from_secs(5);
/// The most messages and bytes in the ring.
const MOST: usize = 1024;
const BYTES: usize = 4 << 20;

/// A message that passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Its number.
    pub number: u64,
    /// When it passed, by the clock of the data plane, in nanoseconds.
    pub at: u64,
    /// The address of the controller.
    pub connection: String,
    /// Whether the switch sent it.
    pub is_sent: bool,
    /// The message in the version of the connection.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Ring {
    next: u64,
    bytes: usize,
    kept: VecDeque<Passed>,
}

/// The messages that recently passed between a switch and its controllers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Tap(Arc<Inside>);

impl ControlPlane for Tap {}

#[derive(Debug)]
struct Inside {
    from: Instant,
    /// Milliseconds since `from` until which messages are kept; 0 before the first reader.
    until: AtomicU64,
    ring: Mutex<Ring>,
}

impl Default for Inside {
    fn default() -> Self {
        Self { from: clock(), until: AtomicU64::new(0), ring: Mutex::default() }
    }
}

impl Tap {
    /// Whether messages are kept.
    pub(super) fn is_on(&self) -> bool {
        let until = self.0.until.load(Ordering::Relaxed);
        until != 0 && (self.0.from.elapsed().as_millis() as u64) < until
    }

    /// Keeps a message.
    pub(super) fn put(&self, at: u64, connection: &str, is_sent: bool, bytes: &[u8]) {
        let mut ring = lock(&self.0.ring);
        let number = ring.next;
        ring.next += 1;
        ring.bytes += bytes.len();
        ring.kept.push_back(Passed {
            number,
            at,
            connection: connection.into(),
            is_sent,
            bytes: bytes.to_vec(),
        });
        while ring.kept.len() > MOST || ring.bytes > BYTES {
            let Some(gone) = ring.kept.pop_front() else { break };
            ring.bytes -= gone.bytes.len();
        }
    }

    /// The messages from number `from` on, at most `most`, and the number of the next one. Without `from`,
    /// no message, and the number from which on messages will be kept. Messages are kept for a few seconds
    /// after each call. Hello and echo messages are not among them.
    #[must_use]
    pub fn take(&self, from: Option<u64>, most: usize) -> (Vec<Passed>, u64) {
        let until = self.0.from.elapsed() + LASTS;
        self.0.until.store(until.as_millis() as u64, Ordering::Relaxed);
        let ring = lock(&self.0.ring);
        let Some(from) = from else { return (Vec::new(), ring.next) };
        let new = ring.kept.iter().filter(|passed| passed.number >= from);
        let taken: Vec<Passed> = new.take(most).cloned().collect();
        let next = taken.last().map_or(ring.next.max(from), |last| last.number + 1);
        (taken, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_once_a_reader_has_asked() {
        let tap = Tap::default();
        assert!(!tap.is_on());
        assert_eq!(tap.take(None, 10), (Vec::new(), 0));
        assert!(tap.is_on());
        for number in 0..3000_u32 {
            tap.put(u64::from(number), "tcp:c", true, &[0; 8]);
        }
        let (taken, next) = tap.take(Some(0), 10);
        let numbers: Vec<u64> = taken.iter().map(|passed| passed.number).collect();
        assert_eq!((numbers, next), ((1976..1986).collect(), 1986));
        assert_eq!(tap.take(Some(2999), 10).0.len(), 1);
        assert_eq!(tap.take(Some(3000), 10), (Vec::new(), 3000));
        tap.put(0, "tcp:c", false, &vec![0; BYTES]);
        assert_eq!(tap.take(Some(0), 10).0.len(), 1);
    }
}
