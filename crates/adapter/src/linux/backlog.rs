//! The per-CPU backlogs of Linux, on which RPS and RFS base their decisions.

/// The backlogs of all CPUs: two free-running 32-bit counters for each.
pub trait CpuQueues {
    /// Packets dequeued from the backlog of `cpu` so far.
    fn head(&self, cpu: u16) -> u32;
    /// Packets enqueued to the backlog of `cpu` so far.
    fn tail(&self, cpu: u16) -> u32;
    /// Whether `cpu` is online.
    fn online(&self, cpu: u16) -> bool;
}
