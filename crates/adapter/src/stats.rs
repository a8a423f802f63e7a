
    /// Adds refused, for want of room or otherwise.
    /// Adds that found an equal filter and changed its action.
    /// Adds that were refused, the table being full.
    /// Filters added.
    /// Filters in the table now.
    /// Filters installed now.
    /// Filters removed by the adapter or its driver without a request.
    /// Filters removed on request.
    /// Filters that software removed.
    /// Filters that the adapter or the kernel removed by itself.
    /// Filters that the table can hold.
    /// Filters that were added.
    /// Filters the table can hold.
    /// Filters whose action was replaced.
    /// Frames that hit the filter of another flow: the table could not tell the two apart.
    /// Lookups that found a filter.
    /// Lookups that found none.
    /// Lookups that matched a filter.
    /// Lookups that matched none.
    /// Times that the whole table was lost.
    /// Times the whole table was emptied.
    /// Updates that took a filter over from another flow.
    pub adds: u64,
    pub aliases: u64,
    pub capacity: u32,
    pub evictions: u64,
    pub failed_adds: u64,
    pub flushes: u64,
    pub hits: u64,
    pub occupancy: u32,
    pub removes: u64,
    pub updates: u64,
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
//! What a filter table counts, the same words for every adapter.
//! What a filter table went through, in one shape for every adapter and for Linux's tables.
/// Counters of a filter table (perfect, signature or software).
/// Counters of a filter table. `occupancy` and `capacity` are levels (filters); the others only
/// grow, and count events since the table was made. A flush empties the table, not the counters.
pub struct FilterStats {
use serde::Serialize;
    pub misses: u64,
}
