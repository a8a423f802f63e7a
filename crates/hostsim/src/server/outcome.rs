//! What a run came to.

use flowyard_adapter::FilterStats;
use serde::Serialize;

/// Counters and figures of the measured time, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Requests that were due, a second.
    pub offered_rps: f64,
    /// Answers that reached the clients, a second.
    pub answered_rps: f64,
    /// Mean latency of those answers, in microseconds, from when the request was due.
    pub latency_us_mean: f64,
    /// Median.
    pub latency_us_p50: f64,
    /// 99th percentile.
    pub latency_us_p99: f64,
    /// Share of segments whose TCP work was done on the processor of their thread.
    pub local_share: f64,
    /// Segments that were processed after a later one of their connection.
    pub reordered: u64,
    /// Segments processed.
    pub segments: u64,
    /// Frames lost to a full ring.
    pub dropped: u64,
    /// Hardware interrupts.
    pub irqs: u64,
    /// Inter-processor interrupts.
    pub ipis: u64,
    /// Threads that were woken on another processor.
    pub migrations: u64,
    /// Busy share, by processor.
    pub busy: Vec<f64>,
    /// Of the whole run: the filter table of ATR or EP.
    pub filters: FilterStats,
    /// Of the whole run: requests sent into the network, answered, and at the end still under way as
    /// counted in wires, rings, backlogs and sockets.
    pub books: [u64; 3],
}

impl Outcome {
    /// Whether every request that was sent was answered or is still somewhere.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.books[0] == self.books[1] + self.books[2]
    }

    /// The busiest processor's share.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        self.busy.iter().copied().fold(0.0, f64::max)
    }
}
