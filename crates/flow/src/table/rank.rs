//! Ranks: the order in which rules are tried.

/// The order of rules: by priority; of equal ones, the rule added first is the highest. Unique in a
/// table, never 0. `puts` counts the rules ever added (2^48 of them take years).
pub(super) fn rank(priority: u16, puts: u64) -> u64 {
    u64::from(priority) << 48 | ((1 << 48) - 1 - puts.min((1 << 48) - 2))
}

/// The priority in a rank.
pub(super) const fn priority(rank: u64) -> u16 {
    (rank >> 48) as u16
}
