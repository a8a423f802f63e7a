//! The backlogs of the CPUs, as RPS and RFS see them.

/// The backlogs of all CPUs: free-running 32-bit counters of packets dequeued and enqueued.
pub trait CpuQueues {
    /// Packets dequeued from the CPU's backlog so far.
    fn head(&self, cpu: u16) -> u32;
    /// Packets enqueued to the CPU's backlog so far.
    fn tail(&self, cpu: u16) -> u32;
    /// Whether the CPU is online.
    fn online(&self, cpu: u16) -> bool;
}
