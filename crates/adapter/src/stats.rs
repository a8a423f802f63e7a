//! What a filter table counts, the same words for every adapter.

use serde::Serialize;

/// Counters of a filter table (perfect, signature or software).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilterStats {
    /// Filters installed now.
    pub occupancy: u32,
    /// Filters the table can hold.
    pub capacity: u32,
    /// Filters added.
    pub adds: u64,
    /// Filters whose action was replaced.
    pub updates: u64,
    /// Adds refused, for want of room or otherwise.
    pub failed_adds: u64,
    /// Filters removed on request.
    pub removes: u64,
    /// Filters removed by the adapter or its driver without a request.
    pub evictions: u64,
    /// Updates that took a filter over from another flow.
    pub aliases: u64,
    /// Times the whole table was emptied.
    pub flushes: u64,
    /// Lookups that matched a filter.
    pub hits: u64,
    /// Lookups that matched none.
    pub misses: u64,
}
