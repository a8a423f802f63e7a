//! Counters of a filter table, the same for every adapter and for Linux's tables.

use schemars::JsonSchema;
use serde::Serialize;

/// Counters of a filter table. `occupancy` and `capacity` are levels, in filters. The others count
/// events since the table was created and never decrease: a flush empties the table, not the
/// counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FilterStats {
    /// Filters that the table holds now.
    pub occupancy: u32,
    /// Largest number of filters that the table can hold.
    pub capacity: u32,
    /// Filters added.
    pub adds: u64,
    /// Adds that found an equal filter and only changed its action.
    pub updates: u64,
    /// Adds refused because the table was full.
    pub failed_adds: u64,
    /// Filters removed by software.
    pub removes: u64,
    /// Filters removed by the adapter or the kernel, because the flow ended or the filter expired.
    pub evictions: u64,
    /// Frames that hit the filter of another flow, which the table cannot distinguish from theirs.
    pub aliases: u64,
    /// Times that the whole table was emptied.
    pub flushes: u64,
    /// Lookups that found a filter.
    pub hits: u64,
    /// Lookups that found no filter.
    pub misses: u64,
}
