//! What a filter table went through, in one shape for every adapter and for Linux's tables.

use serde::Serialize;

/// Counters of a filter table. `occupancy` and `capacity` are levels (filters); the others only
/// grow, and count events since the table was made. A flush empties the table, not the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FilterStats {
    /// Filters in the table now.
    pub occupancy: u32,
    /// Filters that the table can hold.
    pub capacity: u32,
    /// Filters that were added.
    pub adds: u64,
    /// Adds that found an equal filter and changed its action.
    pub updates: u64,
    /// Adds that were refused, the table being full.
    pub failed_adds: u64,
    /// Filters that software removed.
    pub removes: u64,
    /// Filters that the adapter or the kernel removed by itself.
    pub evictions: u64,
    /// Frames that hit the filter of another flow: the table could not tell the two apart.
    pub aliases: u64,
    /// Times that the whole table was lost.
    pub flushes: u64,
    /// Lookups that found a filter.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
}
