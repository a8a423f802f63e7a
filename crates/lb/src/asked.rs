//! Datagrams that were forwarded without an entry, so that their replies are recognized.
//!
//! ```text
//!  datagram of a client ──hash──> line of 8 words ──> the hash and the time are stored
//!  packet from a backend ──hash of the datagrams that it could answer──> stored within the time? then it is a reply
//! ```
//!
//! Only services whose datagrams are placed one by one, and whose replies must be translated, have such a table. Packets that a
//! backend sends from its port to others (answers to health checks) are no replies.
//!
//! Invariants: the size is fixed; in a full line the oldest word is replaced.
//! Thread-safety: any core; each word is atomic. Two cores that replace the same word at once lose one of both.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowyard_frame::Nanos;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};

/// Words of a line, which is a cache line.
const WAYS: usize = 8;
/// Number of lines.
const LINES: usize = 1 << 17;
/// The low bits of a word, which are the time.
const TIME_BITS: u32 = 20;
/// Bits of a time that are less than a tick, which is 0.27 s.
const TICK_BITS: u32 = 28;
/// Ticks after which times begin anew, after 78 hours.
const TICKS: u64 = (1 << TIME_BITS) - 1;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; WAYS]);

/// Hashes of datagrams, with the times at which they came.
#[derive(Debug)]
pub struct Asked(Box<[Line]>);

impl Asked {
    /// The most datagrams that are remembered.
    pub const MOST: usize = LINES * WAYS;

    pub(crate) fn new() -> Self {
        Self((0..LINES).map(|_| Line::default()).collect())
    }

    /// Notes a datagram with this hash.
    pub(crate) fn note(&self, hash: u64, now: Nanos) {
        let (word, line) = (word(hash, now), &self.0[line(hash)]);
        let (mut oldest, mut place) = (0, &line.0[0]);
        for one in &line.0 {
            let is = one.load(Relaxed);
            if is >> TIME_BITS == word >> TIME_BITS || is == 0 {
                if is != word {
                    one.store(word, Relaxed);
                }
                return;
            }
            let age = age(is, word);
            if age > oldest {
                (oldest, place) = (age, one);
            }
        }
        place.store(word, Relaxed);
    }

    /// Writes the datagrams, with their ages, for another process.
    pub(crate) fn hand_over(&self, now: Nanos, writer: &mut Writer) {
        let now = word(0, now);
        let mut all = Vec::new();
        for (line, words) in (0_u64..).zip(&self.0) {
            let words = words.0.iter().map(|word| word.load(Relaxed)).filter(|word| *word != 0);
            all.extend(words.map(|word| (line, word)));
        }
        writer.number(all.len() as u64);
        for (line, word) in all {
            writer.number(word >> TIME_BITS << TIME_BITS | line).number(age(word, now));
        }
    }

    /// Notes what [`Asked::hand_over`] has written. Datagrams from before the clock of this process began are as old as it.
    pub(crate) fn take_over(&self, reader: &mut Reader<'_>, now: Nanos) -> Result<(), BadState> {
        for _ in 0..reader.number()? {
            let (hash, age) = (reader.number()?, reader.number()?);
            self.note(hash, now.saturating_sub(age.saturating_mul(1 << TICK_BITS)));
        }
        Ok(())
    }

    /// Whether a datagram with this hash came within `timeout`.
    #[must_use]
    pub fn has(&self, hash: u64, timeout: Nanos, now: Nanos) -> bool {
        let (word, line) = (word(hash, now), &self.0[line(hash)]);
        line.0.iter().any(|one| {
            let is = one.load(Relaxed);
            is != 0 && is >> TIME_BITS == word >> TIME_BITS && age(is, word) <= timeout >> TICK_BITS
        })
    }
}

const fn line(hash: u64) -> usize {
    hash as usize % LINES
}

/// The high bits of the hash, and the time from 1 on; 0 is no datagram.
const fn word(hash: u64, now: Nanos) -> u64 {
    let time = (now >> TICK_BITS) % TICKS + 1;
    hash >> TIME_BITS << TIME_BITS | time
}

/// The ticks from the time of one word to that of another.
const fn age(from: u64, to: u64) -> u64 {
    let mask = (1 << TIME_BITS) - 1;
    ((to & mask) + TICKS - (from & mask)) % TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn a_datagram_is_known_for_the_time() {
        let asked = Asked::new();
        let (hash, timeout) = (0x1234_5678_9abc_def0, 120 * SECOND);
        assert!(!asked.has(hash, timeout, 0) && !asked.has(0, timeout, 0));
        asked.note(hash, 300 * SECOND);
        for (at, known) in [(300, true), (419, true), (421, false)] {
            assert_eq!(asked.has(hash, timeout, at * SECOND), known, "{at}");
        }
        assert!(!asked.has(hash ^ 1 << 40, timeout, 300 * SECOND), "another one of the line");
        asked.note(hash, 500 * SECOND);
        assert!(asked.has(hash, timeout, 600 * SECOND));
        // The time that is stored begins anew.
        let wrap = (TICKS << TICK_BITS) - SECOND;
        asked.note(hash, wrap);
        assert!(asked.has(hash, timeout, wrap + 60 * SECOND));
        assert!(!asked.has(hash, timeout, wrap + 180 * SECOND));
    }

    #[test]
    fn a_full_line_forgets_the_oldest() {
        let (asked, timeout) = (Asked::new(), 120 * SECOND);
        let hash = |n: u64| n << 32 | 77;
        (1..=8).for_each(|n| asked.note(hash(n), n * SECOND));
        asked.note(hash(1), 9 * SECOND); // used again
        asked.note(hash(9), 10 * SECOND);
        let known: Vec<u64> =
            (1..=9).filter(|n| asked.has(hash(*n), timeout, 11 * SECOND)).collect();
        assert_eq!(known, [1, 3, 4, 5, 6, 7, 8, 9]);
    }
}
