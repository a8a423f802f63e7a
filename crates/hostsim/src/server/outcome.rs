//! The result of a run.

use flowyard_adapter::FilterStats;
use serde::Serialize;

use crate::accounting::Accounting;

/// Counters and rates of the measured time, unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Requests that were due a second.
    pub offered_rps: f64,
    /// Answers that reached the clients a second.
    pub answered_rps: f64,
    /// The mean latency of these answers in microseconds, from the time when the request was due.
    pub latency_us_mean: f64,
    /// The median latency in microseconds.
    pub latency_us_p50: f64,
    /// The 99th percentile of the latency in microseconds.
    pub latency_us_p99: f64,
    /// The share of segments whose TCP work was done on the processor of their thread.
    pub local_share: f64,
    /// Segments that were processed after a later segment of their connection.
    pub reordered: u64,
    /// Segments processed.
    pub segments: u64,
    /// Frames lost because a ring was full.
    pub dropped: u64,
    /// Hardware interrupts.
    pub irqs: u64,
    /// Inter-processor interrupts.
    pub ipis: u64,
    /// Wake-ups of a thread on another processor than before.
    pub migrations: u64,
    /// The busy share of each processor.
    pub busy: Vec<f64>,
    /// The filter table of ATR or EP, in the whole run.
    pub filters: FilterStats,
    /// Requests sent into the network, answered, and held at the end in wires, rings, backlogs and sockets,
    /// in the whole run. A frame that a ring drops is sent again, so no request is lost.
    pub accounting: Accounting,
}

impl Outcome {
    /// Whether every request that was sent was answered or is still held.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.accounting.is_balanced()
    }

    /// The busy share of the busiest processor.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        self.busy.iter().copied().fold(0.0, f64::max)
    }
}
