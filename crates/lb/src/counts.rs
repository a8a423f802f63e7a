//! Traffic counters of a service or a backend, one cell for each core.
//!
//! ```text
//!  core 0 ──> Cell ┐
//!  core 1 ──> Cell ┴──> Counts ──sum──> Sum
//! ```
//!
//! Invariants: each cell has one writer and does not share a cache line; counters never decrease;
//! nothing is allocated after `new`.
//! Thread-safety: a core adds to its own cell only; any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of drop reasons that can be counted. The caller assigns a meaning to each number below it.
pub const REASONS: usize = 32;

/// A limit that a new connection has reached: why another entry is evicted for it, or why it gets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The number of unestablished connections of the core or of the service.
    Unestablished,
    /// The number of connections of the service.
    Service,
    /// The capacity of the table.
    Table,
    /// The local ports towards the backend.
    LocalPorts,
}

impl Limit {
    /// All limits, in the order of [`Sum::evicted`] and [`Sum::refused`].
    pub const ALL: [Self; 4] = [Self::Unestablished, Self::Service, Self::Table, Self::LocalPorts];

    /// The name in metrics and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unestablished => "unestablished",
            Self::Service => "service",
            Self::Table => "table",
            Self::LocalPorts => "local_ports",
        }
    }
}

/// The counters of all cores.
#[derive(Debug)]
pub struct Counts(Box<[Cell]>);

/// The counters of one core.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Cell {
    connections: AtomicU64,
    resumed: AtomicU64,
    passed_over: AtomicU64,
    ambiguous: AtomicU64,
    toa_omitted: AtomicU64,
    in_packets: AtomicU64,
    in_bytes: AtomicU64,
    out_packets: AtomicU64,
    out_bytes: AtomicU64,
    ahead: AtomicU64,
    drops: [AtomicU64; REASONS],
    evicted: [AtomicU64; Limit::ALL.len()],
    refused: [AtomicU64; Limit::ALL.len()],
}

/// The sum over all cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Connections that were opened.
    pub connections: u64,
    /// Connections that another machine has had before, as it has reported.
    pub resumed: u64,
    /// New connections that the backend did not get because it had reached its limit.
    pub passed_over: u64,
    /// New connections that the backend did not get, because it could not tell them apart from one of another service; and
    /// replies that could belong to two services.
    pub ambiguous: u64,
    /// Segments of clients in which the option with the client's address had no room.
    pub toa_omitted: u64,
    /// Packets from clients that were forwarded to a backend.
    pub in_packets: u64,
    /// Bytes of `in_packets`, with Ethernet headers, as the clients sent them.
    pub in_bytes: u64,
    /// Replies that returned through the balancer.
    pub out_packets: u64,
    /// Bytes of `out_packets`, with Ethernet headers.
    pub out_bytes: u64,
    /// Packets among `in_packets` and `out_packets` that were answered in front of the balancer.
    pub ahead_packets: u64,
    /// Packets dropped, by reason.
    pub drops: [u64; REASONS],
    /// Entries that were evicted for a new connection, by the limit that this had reached.
    pub evicted: [u64; Limit::ALL.len()],
    /// Packets of new connections that got no entry, by the limit that was reached.
    pub refused: [u64; Limit::ALL.len()],
}

impl Counts {
    /// Counters at zero for `cores` cores.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Cell::default()).collect())
    }

    /// The number of cores that have a cell.
    #[must_use]
    pub const fn cores(&self) -> usize {
        self.0.len()
    }

    /// The cell of `core`; `None` if there is no such core.
    #[must_use]
    #[inline]
    pub fn of(&self, core: usize) -> Option<&Cell> {
        self.0.get(core)
    }

    /// The totals over all cores.
    #[must_use]
    pub fn sum(&self) -> Sum {
        self.0.iter().fold(Sum::default(), |sum, cell| sum.plus(&cell.read()))
    }
}

impl Cell {
    /// Counts a new connection.
    #[inline]
    pub fn connection(&self) {
        add(&self.connections, 1);
    }

    /// Counts a connection that another machine has had.
    pub fn resumed(&self) {
        add(&self.resumed, 1);
    }

    /// Counts a new connection that the backend did not get because of its limit.
    pub fn passed_over(&self) {
        add(&self.passed_over, 1);
    }

    /// Counts a new connection or a reply that could belong to two services.
    pub fn ambiguous(&self) {
        add(&self.ambiguous, 1);
    }

    /// Counts a segment without room for the client's address.
    pub fn toa_omitted(&self) {
        add(&self.toa_omitted, 1);
    }

    /// Counts a packet of `bytes` bytes that was forwarded to the backend.
    #[inline]
    pub fn went_in(&self, bytes: u64) {
        add(&self.in_packets, 1);
        add(&self.in_bytes, bytes);
    }

    /// Counts a reply of `bytes` bytes.
    #[inline]
    pub fn came_out(&self, bytes: u64) {
        add(&self.out_packets, 1);
        add(&self.out_bytes, bytes);
    }

    /// Counts packets that were answered in front of the balancer: of the client, or replies.
    pub fn answered_ahead(&self, is_in: bool, packets: u64, bytes: u64) {
        let to = if is_in {
            (&self.in_packets, &self.in_bytes)
        } else {
            (&self.out_packets, &self.out_bytes)
        };
        add(&self.ahead, packets);
        add(to.0, packets);
        add(to.1, bytes);
    }

    /// Counts a drop; a `reason` of [`REASONS`] or more is ignored.
    #[inline]
    pub fn dropped(&self, reason: u16) {
        if let Some(drops) = self.drops.get(usize::from(reason)) {
            add(drops, 1);
        }
    }

    /// Counts an entry that was evicted because of `limit`.
    pub fn evicted(&self, limit: Limit) {
        add(&self.evicted[limit as usize], 1);
    }

    /// Counts a packet that got no entry because of `limit`.
    pub fn refused(&self, limit: Limit) {
        add(&self.refused[limit as usize], 1);
    }

    fn read(&self) -> Sum {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Sum {
            connections: load(&self.connections),
            resumed: load(&self.resumed),
            passed_over: load(&self.passed_over),
            ambiguous: load(&self.ambiguous),
            toa_omitted: load(&self.toa_omitted),
            in_packets: load(&self.in_packets),
            in_bytes: load(&self.in_bytes),
            out_packets: load(&self.out_packets),
            out_bytes: load(&self.out_bytes),
            ahead_packets: load(&self.ahead),
            drops: std::array::from_fn(|at| load(&self.drops[at])),
            evicted: std::array::from_fn(|at| load(&self.evicted[at])),
            refused: std::array::from_fn(|at| load(&self.refused[at])),
        }
    }
}

/// With a single writer, a load and a store are sufficient; an atomic addition costs ten times as
/// much.
#[inline]
fn add(cell: &AtomicU64, more: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Sum {
    /// Adds `other` to each counter.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.connections += other.connections;
        self.resumed += other.resumed;
        self.passed_over += other.passed_over;
        self.ambiguous += other.ambiguous;
        self.toa_omitted += other.toa_omitted;
        self.in_packets += other.in_packets;
        self.in_bytes += other.in_bytes;
        self.out_packets += other.out_packets;
        self.out_bytes += other.out_bytes;
        self.ahead_packets += other.ahead_packets;
        let add = |to: &mut [u64], more: &[u64]| {
            to.iter_mut().zip(more).for_each(|(to, more)| *to += more);
        };
        add(&mut self.drops, &other.drops);
        add(&mut self.evicted, &other.evicted);
        add(&mut self.refused, &other.refused);
        self
    }

    /// Packets dropped for any reason.
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
                    cell.evicted(Limit::Table);
                    cell.refused(Limit::LocalPorts);
                    cell.dropped(REASONS as u16); // no such reason: not counted
                }
            })
        };
        let threads = [count(0), count(1)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let sum = counts.sum();
        assert_eq!((sum.connections, sum.in_packets, sum.in_bytes), (20_000, 20_000, 1_200_000));
        assert_eq!((sum.out_packets, sum.out_bytes), (20_000, 30_000_000));
        assert_eq!((sum.drops[3], sum.dropped()), (20_000, 20_000));
        assert_eq!((sum.evicted, sum.refused), ([0, 0, 20_000, 0], [0, 0, 0, 20_000]));
        assert_eq!(sum.plus(&sum).evicted[2], 40_000);
        assert!(counts.of(2).is_none());
        assert_eq!(sum.plus(&sum).dropped(), 40_000);
    }
}
