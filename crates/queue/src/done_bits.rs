//! Done bits: a core that finishes a ticket sets its bit; the committer takes the run of bits from the
//! oldest on.
//!
//! ```text
//!  ticket   64   65   66   67   68   69   70   71
//!  bit       1    1    1    0    1    1    0    0
//!            └ update(64) clears three and returns 67; 68 and 69 wait for 67
//! ```
//!
//! These are the `set` and `update` instructions of Willmann et al. (HPCA 2005, section 4): set one bit
//! atomically; find consecutive bits in at most one aligned word, clear them atomically and return the end
//! of the run. They replace a lock, a loop over flags and the update of a pointer.
//!
//! Invariants: a bit is set at most once before `update` clears it again.
//! Thread-safety: any thread may set; one thread at a time updates.

use crate::sync::{Acquire, AtomicU64, Relaxed, Release};

/// Tickets per word: few under the model checker, so that short runs wrap.
#[cfg(not(loom))]
pub(crate) const WORD: u64 = 64;
#[cfg(loom)]
pub(crate) const WORD: u64 = 2;

/// Which tickets are done, for tickets within a window.
#[derive(Debug)]
pub struct DoneBits {
    words: Box<[AtomicU64]>,
}

/// The part of a run of tickets that one word holds.
pub(crate) struct Part {
    pub(crate) word: usize,
    pub(crate) mask: u64,
    /// Whether the number of times that these bits were used before is odd.
    pub(crate) lap_is_odd: bool,
}

impl DoneBits {
    /// Bits for a window of at least `window` tickets, all clear.
    #[must_use]
    pub fn new(window: usize) -> Self {
        let words = window.div_ceil(WORD as usize).next_power_of_two();
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The number of tickets that have a bit.
    pub(crate) fn window(&self) -> usize {
        self.words.len() * WORD as usize
    }

    /// Whether the ticket's bit is set. What was done before it was set is visible to the caller.
    #[must_use]
    pub fn is_set(&self, ticket: u64) -> bool {
        self.words[self.word(ticket)].load(Acquire) >> (ticket % WORD) & 1 == 1
    }

    const fn word(&self, ticket: u64) -> usize {
        (ticket / WORD) as usize & (self.words.len() - 1)
    }

    /// The words of the `run` tickets from `ticket` on.
    pub(crate) fn parts(&self, mut ticket: u64, run: usize) -> impl Iterator<Item = Part> + '_ {
        let end = ticket + run as u64;
        std::iter::from_fn(move || {
            let from = ticket % WORD;
            let taken = (end - ticket).min(WORD - from);
            let mask = low(taken) << from;
            let part = Part {
                word: self.word(ticket),
                mask,
                lap_is_odd: ticket / WORD / self.words.len() as u64 % 2 == 1,
            };
            ticket += taken;
            (taken > 0).then_some(part)
        })
    }

    /// Inverts the bits of a run. With the parity of the lap, the bits show whether they were inverted in
    /// this lap, so that they never need to be cleared.
    pub(crate) fn turn(&self, ticket: u64, run: usize) {
        for part in self.parts(ticket, run) {
            self.words[part.word].fetch_xor(part.mask, Release);
        }
    }

    /// The number of tickets from `ticket` on, at most `most`, whose bits were inverted in their lap.
    pub(crate) fn turned(&self, ticket: u64, most: usize) -> usize {
        let mut turned = 0;
        for part in self.parts(ticket, most) {
            let bits = self.words[part.word].load(Acquire);
            let bits = if part.lap_is_odd { !bits } else { bits } & part.mask;
            turned += (bits >> part.mask.trailing_zeros()).trailing_ones() as usize;
            if bits != part.mask {
                break;
            }
        }
        turned
    }

    /// The bits of the `run` tickets from `ticket` on, at most 32; the lowest bit is that of `ticket`. No
    /// memory ordering.
    pub(crate) fn peek(&self, ticket: u64, run: usize) -> u32 {
        let mut bits = 0;
        let mut at = 0;
        for part in self.parts(ticket, run) {
            let word = self.words[part.word].load(Relaxed) & part.mask;
            bits |= word >> part.mask.trailing_zeros() << at;
            at += part.mask.count_ones();
        }
        bits as u32
    }

    /// Clears the bits of tickets `ticket` + i for every bit i of `which`. No memory ordering.
    pub(crate) fn clear(&self, ticket: u64, run: usize, which: u32) {
        let mut which = u64::from(which);
        for part in self.parts(ticket, run) {
            let mask = which << part.mask.trailing_zeros() & part.mask;
            which = which.checked_shr(part.mask.count_ones()).unwrap_or(0);
            if mask != 0 {
                self.words[part.word].fetch_and(!mask, Relaxed);
            }
        }
    }

    /// Marks the `run` tickets from `ticket` on as done. What the caller did before is visible to
    /// the caller of [`DoneBits::update`] that finds the bits.
    pub fn set(&self, ticket: u64, run: usize) {
        for part in self.parts(ticket, run) {
            self.words[part.word].fetch_or(part.mask, Release);
        }
    }

    /// Clears the consecutive bits from ticket `oldest` on, as far as its aligned word goes, and
    /// returns the ticket after them: `oldest` itself when it is not done. One caller at a time.
    #[must_use]
    pub fn update(&self, oldest: u64) -> u64 {
        let from = oldest % WORD;
        let word = &self.words[self.word(oldest)];
        let run = u64::from((word.load(Acquire) >> from).trailing_ones());
        if run > 0 {
            // Only this caller clears bits, so the run has not changed.
            word.fetch_and(!(low(run) << from), Relaxed);
        }
        oldest + run
    }
}

/// The lowest `n` bits, `n` at most 64.
const fn low(n: u64) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_at_the_first_gap_or_word() {
        let bits = DoneBits::new(128);
        bits.set(60, 3);
        bits.set(64, 5);
        assert_eq!(bits.update(59), 59);
        assert_eq!(bits.update(60), 63);
        assert_eq!(bits.update(63), 63);
        bits.set(63, 1);
        assert_eq!(bits.update(63), 64, "one aligned word at a time");
        assert_eq!(bits.update(64), 69);
        assert!(!bits.is_set(64));
        bits.set(120, 16);
        assert_eq!((bits.update(120), bits.update(128)), (128, 136), "around the end");
    }

    #[test]
    fn laps_are_distinguished() {
        let bits = DoneBits::new(64);
        for lap in 0..5 {
            let first = lap * 64;
            assert_eq!(bits.turned(first, 32), 0, "lap {lap}");
            bits.turn(first, 30);
            assert_eq!(bits.turned(first, 32), 30);
            bits.turn(first + 30, 34);
            assert_eq!(bits.turned(first + 40, 32), 24, "the next lap has not begun");
        }
    }

    #[test]
    fn some_bits_of_a_run() {
        let bits = DoneBits::new(128);
        bits.set(50, 20);
        assert_eq!(bits.peek(48, 32), 0b11_1111_1111_1111_1111_1100);
        bits.clear(50, 20, 0b1000_0000_0000_0000_0001);
        assert_eq!(bits.peek(50, 20), 0b0111_1111_1111_1111_1110);
    }
}
