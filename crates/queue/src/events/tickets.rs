//! The tickets of a queue of an event device: how many frames entered, and up to which one all are done.
//!
//! A tx queue only counts: its frames are done in the order of the device, and nobody waits for a certain one.
//!
//! A ticket is used once. The ticket of a frame that the device refused is not given back, because other threads may have
//! reserved later ones: it is done at once ([`Tickets::refused`]), and the frame gets a new ticket when it is enqueued
//! again, to this queue or to another one. So `tail` and `head` count each attempt, and a frame that is refused is never between them. A frame that is
//! forwarded keeps its ticket, and gets none of the tx queue that it moves to, which counts it ([`Tickets::moved_in`]).
//!
//! Invariants: head <= tail; but for frames that are forwarded, tail <= head + window. A ticket is done once.
//! Thread-safety: any thread; one at a time moves the head.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

use crate::done_bits::DoneBits;
use crate::sync::Padded;

/// The tickets of a queue.
pub(super) struct Tickets {
    window: u64,
    tail: Padded<AtomicU64>,
    head: Padded<AtomicU64>,
    /// `None`: only counted.
    done: Option<DoneBits>,
    moving: AtomicBool,
}

impl Tickets {
    pub(super) fn new(window: usize, only_counts: bool) -> Self {
        Self {
            window: window.max(1) as u64,
            tail: Padded::new(AtomicU64::new(0)),
            head: Padded::new(AtomicU64::new(0)),
            done: (!only_counts).then(|| DoneBits::new(window.max(1))),
            moving: AtomicBool::new(false),
        }
    }

    /// Reserves up to `want` tickets, as many as the window has room for; returns the first, and their number.
    pub(super) fn reserve(&self, want: usize) -> (u64, usize) {
        let mut tail = self.tail.load(Relaxed);
        loop {
            let inside = tail.saturating_sub(self.head());
            let room = self.window.saturating_sub(inside).min(want as u64);
            match self.tail.compare_exchange_weak(tail, tail + room, AcqRel, Relaxed) {
                Ok(_) => return (tail, room as usize),
                Err(now) => tail = now,
            }
        }
    }

    /// A frame moves to this tx queue from the queue that has its ticket. A window does not stop it.
    pub(super) fn moved_in(&self) {
        self.tail.fetch_add(1, AcqRel);
    }

    /// `count` frames have left this tx queue.
    pub(super) fn left(&self, count: usize) {
        self.head.fetch_add(count as u64, AcqRel);
    }

    /// The device refused the frames of `run` tickets from `first` on: these tickets are over, and others are reserved
    /// when the frames are enqueued again.
    pub(super) fn refused(&self, first: u64, run: usize) {
        self.done(first, run);
    }

    /// `run` tickets from `first` on are done: their frames were dropped, or have arrived at the port that transmits them.
    pub(super) fn done(&self, first: u64, run: usize) {
        let Some(done) = &self.done else {
            self.left(run);
            return;
        };
        done.set(first, run);
        loop {
            // Either this thread sees that another one moves the head, or that one sees the bits.
            fence(SeqCst);
            if !done.is_set(self.head.load(Acquire)) || self.moving.swap(true, Acquire) {
                return;
            }
            let mut head = self.head.load(Acquire);
            loop {
                let next = done.update(head);
                if next == head {
                    break;
                }
                head = next;
                self.head.store(head, std::sync::atomic::Ordering::Release);
            }
            self.moving.store(false, SeqCst);
        }
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail.load(Acquire)
    }

    pub(super) fn head(&self) -> u64 {
        self.head.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_the_oldest_ticket_that_is_not_done() {
        let tickets = Tickets::new(64, false);
        assert_eq!(tickets.reserve(32), (0, 32));
        assert_eq!(tickets.reserve(64), (32, 32), "the window is full");
        assert_eq!(tickets.reserve(1), (64, 0));
        tickets.done(1, 40);
        assert_eq!(tickets.head(), 0);
        tickets.done(0, 1);
        assert_eq!((tickets.head(), tickets.tail()), (41, 64));
        assert_eq!(tickets.reserve(64), (64, 41));
        tickets.done(41, 64);
        assert_eq!((tickets.head(), tickets.tail()), (105, 105));
    }

    #[test]
    fn tickets_of_refused_frames_are_over() {
        for only_counts in [false, true] {
            let tickets = Tickets::new(64, only_counts);
            assert_eq!(tickets.reserve(32), (0, 32));
            assert_eq!(tickets.reserve(32), (32, 32));
            tickets.refused(20, 12); // later ones are in use, so these cannot be given back
            assert_eq!(tickets.tail(), 64);
            tickets.done(0, 20);
            assert_eq!((tickets.head(), tickets.reserve(64)), (32, (64, 32)), "{only_counts}");
        }
    }

    #[test]
    fn a_tx_queue_counts_and_lets_forwarded_frames_in() {
        let tickets = Tickets::new(32, true);
        assert_eq!(tickets.reserve(30), (0, 30));
        (0..10).for_each(|_| tickets.moved_in());
        assert_eq!((tickets.tail(), tickets.reserve(1).1), (40, 0));
        tickets.left(20);
        assert_eq!((tickets.head(), tickets.reserve(32).1), (20, 12));
    }

    #[test]
    fn threads_finish_all_tickets() {
        let tickets = Tickets::new(256, false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut mine = 0;
                    while mine < 20_000 {
                        let (first, run) = tickets.reserve(7);
                        (0..run as u64).rev().for_each(|at| tickets.done(first + at, 1));
                        mine += run;
                    }
                });
            }
        });
        assert_eq!(tickets.head(), tickets.tail());
        assert!(tickets.head() >= 60_000);
    }
}
