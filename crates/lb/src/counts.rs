//! Counts: what the cores count for a service, or a backend.
//!
//! ```text
//!  core 0 ──> Cell ┐
//!  core 1 ──> Cell ┴──> Counts ──sum──> Sum
//! ```
//!
//! Invariants: each cell has one writer, and cache lines of its own; numbers never go back; nothing
//! is allocated after `new`.
//! Thread-safety: a core adds to its own cell; anyone reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Drops are counted by a number below this; what it means is the business of who counts.
pub const REASONS: usize = 32;

/// What all cores have counted.
#[derive(Debug)]
pub struct Counts(Box<[Cell]>);

/// What one core has counted.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Cell {
    connections: AtomicU64,
    in_packets: AtomicU64,
    in_bytes: AtomicU64,
    out_packets: AtomicU64,
    out_bytes: AtomicU64,
    drops: [AtomicU64; REASONS],
}

/// The sum over all cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Connections that began.
    pub connections: u64,
    /// Packets of clients, sent to a backend.
    pub in_packets: u64,
    /// Their bytes, from the Ethernet header on, as the client sent them.
    pub in_bytes: u64,
    /// Answers that came back this way.
    pub out_packets: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Packets dropped, by reason.
    pub drops: [u64; REASONS],
}

impl Counts {
    /// Nothing is counted yet, by `cores` cores.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Cell::default()).collect())
    }

    /// How many cores count.
    #[must_use]
    pub const fn cores(&self) -> usize {
        self.0.len()
    }

    /// Where `core` counts.
    #[must_use]
    #[inline]
    pub fn of(&self, core: usize) -> Option<&Cell> {
        self.0.get(core)
    }

    /// What all cores have counted so far.
    #[must_use]
    pub fn sum(&self) -> Sum {
        self.0.iter().fold(Sum::default(), |sum, cell| sum.plus(&cell.read()))
    }
}

impl Cell {
    /// A connection began.
    #[inline]
    pub fn connection(&self) {
        add(&self.connections, 1);
    }

    /// A packet of so many bytes went to the backend.
    #[inline]
    pub fn went_in(&self, bytes: u64) {
        add(&self.in_packets, 1);
        add(&self.in_bytes, bytes);
    }

    /// An answer of so many bytes came back.
    #[inline]
    pub fn came_out(&self, bytes: u64) {
        add(&self.out_packets, 1);
        add(&self.out_bytes, bytes);
    }

    /// A packet was dropped for the reason with this number.
    #[inline]
    pub fn dropped(&self, reason: u16) {
        if let Some(drops) = self.drops.get(usize::from(reason)) {
            add(drops, 1);
        }
    }

    fn read(&self) -> Sum {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Sum {
            connections: load(&self.connections),
            in_packets: load(&self.in_packets),
            in_bytes: load(&self.in_bytes),
            out_packets: load(&self.out_packets),
            out_bytes: load(&self.out_bytes),
            drops: std::array::from_fn(|at| load(&self.drops[at])),
        }
    }
}

/// With one writer, a load and a store do: a locked addition costs ten times as much.
#[inline]
fn add(cell: &AtomicU64, more: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Sum {
    /// The sum of two.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.connections += other.connections;
        self.in_packets += other.in_packets;
        self.in_bytes += other.in_bytes;
        self.out_packets += other.out_packets;
        self.out_bytes += other.out_bytes;
        for (drops, more) in self.drops.iter_mut().zip(other.drops) {
            *drops += more;
        }
        self
    }

    /// Packets dropped for all reasons.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn cells_share_no_line_and_nothing_is_lost() {
        assert_eq!((size_of::<Cell>() % 128, align_of::<Cell>()), (0, 128));
        let counts = Arc::new(Counts::new(2));
        let count = |core: usize| {
            let counts = Arc::clone(&counts);
            std::thread::spawn(move || {
                let cell = counts.of(core).unwrap();
                for _ in 0..10_000 {
                    cell.connection();
                    cell.went_in(60);
                    cell.came_out(1500);
                    cell.dropped(3);
                    cell.dropped(REASONS as u16); // no such reason: nothing
                }
            })
        };
        let threads = [count(0), count(1)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let sum = counts.sum();
        assert_eq!((sum.connections, sum.in_packets, sum.in_bytes), (20_000, 20_000, 1_200_000));
        assert_eq!((sum.out_packets, sum.out_bytes), (20_000, 30_000_000));
        assert_eq!((sum.drops[3], sum.dropped()), (20_000, 20_000));
        assert!(counts.of(2).is_none());
        assert_eq!(sum.plus(&sum).dropped(), 40_000);
    }
}
