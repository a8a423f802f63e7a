//! The pin table: the core of each flow while any of its frames is in flight.
//!
//! ```text
//!  hash ──> pin   sent: core 2, 71 frames    written by the dealer
//!                 done: 69 frames            written only by core 2
//!                 two in flight: the next frame goes to core 2; at 71 it could go to any core
//! ```
//!
//! Both counts only grow, and each has one writer at a time, so neither needs a read-modify-write. The
//! dealer reads `done` with acquire ordering, so when it moves a pin, everything that the old core did is
//! visible.
//!
//! Flows that share a pin share a core: this costs parallelism, but not order.
//! Invariants: per pin, done <= sent (modulo 2^32); done = sent when it changes cores.
//! Thread-safety: one thread at a time deals; a pin's core is done with frames one thread at a time.

use crate::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release};

pub(crate) struct Pins {
    /// The core << 32 | frames sent. Not beside `done`, which another core writes.
    sent: Box<[AtomicU64]>,
    done: Box<[AtomicU32]>,
}

impl Pins {
    /// A table of at least `pins` pins.
    pub(crate) fn new(pins: usize) -> Self {
        let pins = pins.next_power_of_two();
        Self {
            sent: (0..pins).map(|_| AtomicU64::new(0)).collect(),
            done: (0..pins).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Fibonacci hashing, because receive hashes of similar flows differ in few bits.
    #[inline]
    const fn pin(&self, hash: u32) -> usize {
        let mixed = hash.wrapping_mul(0x9e37_79b9);
        (mixed >> 16 ^ mixed) as usize & (self.sent.len() - 1)
    }

    /// Counts `frames` frames as sent; returns the core they go to, which is `core` if the flow may move.
    #[inline]
    pub(crate) fn deal(&self, hash: u32, frames: u32, core: u16) -> u16 {
        let pin = self.pin(hash);
        let sent = self.sent[pin].load(Relaxed);
        let free = sent as u32 == self.done[pin].load(Acquire);
        let core = if free { core } else { (sent >> 32) as u16 };
        let count = (sent as u32).wrapping_add(frames);
        self.sent[pin].store(u64::from(core) << 32 | u64::from(count), Relaxed);
        core
    }

    /// Counts frames with these hashes as done. Called by the core to which they were dealt.
    #[inline]
    pub(crate) fn done(&self, hashes: &[u32]) {
        for run in hashes.chunk_by(|a, b| a == b) {
            let done = &self.done[self.pin(run[0])];
            done.store(done.load(Relaxed).wrapping_add(run.len() as u32), Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flow_moves_when_nothing_is_in_flight() {
        let pins = Pins::new(64);
        assert_eq!([pins.deal(7, 1, 3), pins.deal(7, 1, 1), pins.deal(8, 1, 1)], [3, 3, 1]);
        pins.done(&[7]);
        assert_eq!(pins.deal(7, 1, 1), 3, "one is in flight");
        pins.done(&[7, 7]);
        assert_eq!(pins.deal(7, 1, 1), 1);
    }

    #[test]
    fn counts_wrap() {
        let pins = Pins::new(1);
        pins.sent[0].store(5 << 32 | u64::from(u32::MAX), Relaxed);
        pins.done[0].store(u32::MAX, Relaxed);
        assert_eq!([pins.deal(0, 1, 2), pins.deal(0, 1, 3)], [2, 2]);
        pins.done(&[0, 0]);
        assert_eq!(pins.deal(0, 9, 3), 3);
    }
}
