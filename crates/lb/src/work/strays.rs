//! Strays: DNAT connections whose packets were forwarded without an entry in a connection table, because the
//! table was full or too many connections were half-open. Their replies are recognized by the hash of the
//! connection.
//!
//! Invariants: the size is fixed; a newer connection replaces an older one in the same place; a connection is
//! forgotten two to four minutes after its last packet from the client.
//! Thread-safety: any core; each place is one atomic word.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowyard_frame::Nanos;

/// Number of places.
const PLACES: usize = 1 << 16;
/// Bits of a word that are the time.
const TIME_BITS: u32 = 16;
/// The unit of the time: two minutes.
const UNIT: Nanos = 120_000_000_000;

/// Hashes of connections.
#[derive(Debug)]
pub(super) struct Strays(Box<[AtomicU64]>);

impl Strays {
    pub(super) fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    /// Notes a packet of the connection with this hash.
    pub(super) fn note(&self, hash: u64, now: Nanos) {
        let word = word(hash, now);
        let place = &self.0[hash as usize % PLACES];
        if place.load(Relaxed) != word {
            place.store(word, Relaxed);
        }
    }

    /// Whether a packet of the connection with this hash was noted within the last two minutes.
    pub(super) fn has(&self, hash: u64, now: Nanos) -> bool {
        let found = self.0[hash as usize % PLACES].load(Relaxed);
        found == word(hash, now) || now >= UNIT && found == word(hash, now - UNIT)
    }
}

/// The bits of the hash that the place does not tell, and the time from 1 on; 0 is no connection.
const fn word(hash: u64, now: Nanos) -> u64 {
    let time = (now / UNIT) % ((1 << TIME_BITS) - 1) + 1;
    hash >> TIME_BITS << TIME_BITS | time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_known_for_some_minutes() {
        let strays = Strays::new();
        let minute = 60_000_000_000;
        let hash = 0x1234_5678_9abc_def0;
        assert!(!strays.has(hash, 0) && !strays.has(0, 0));
        strays.note(hash, 3 * minute);
        for (at, known) in [(3, true), (5, true), (8, false)] {
            assert_eq!(strays.has(hash, at * minute), known, "{at}");
        }
        assert!(!strays.has(hash ^ 1 << 40, 3 * minute), "another with the same place");
        strays.note(hash ^ 1 << 40, 3 * minute);
        assert!(!strays.has(hash, 3 * minute), "replaced");
    }
}
