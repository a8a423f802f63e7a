//! Ranks: the order in which rules are tried.

/// The order of rules: by priority; of equal ones, the rule added first is the highest. Unique in a
/// table, never 0. `puts` counts the rules ever added (2^46 of them take years). Priorities have 18
/// bits; a higher one counts as the highest.
pub(super) fn rank(priority: u32, puts: u64) -> u64 {
    u64::from(priority.min(0x3_ffff)) << 46 | ((1 << 46) - 1 - puts.min((1 << 46) - 2))
}

/// The priority in a rank.
pub(super) const fn priority(rank: u64) -> u16 {
    (rank >> 46) as u16
}
