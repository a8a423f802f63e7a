//! How many batches a core moves in one tick. The engine schedules its cores by these rules, and the
//! models in `hostsim` predict its throughput with the same rules.

use crate::{LANES, Nanos};

/// The largest number of batches that a core receives from a port, or transmits to it, in one tick.
pub const ROUNDS: u64 = 8;
/// For each period of this length since its last tick, a core may move one batch more.
pub const AWAY: Nanos = 4000;

/// The number of batches that a core may move at a port in a tick that begins `away` nanoseconds after
/// the tick before.
#[must_use]
pub const fn rounds(away: Nanos) -> u64 {
    match away / AWAY {
        0 => 1,
        rounds if rounds > ROUNDS => ROUNDS,
        rounds => rounds,
    }
}

/// Whether `frames` in a queue are too few for all its `consumers` but one: less than two batches each,
/// one that the consumer works on and one that follows. A core whose ports have more to receive leaves
/// the queue to the other consumers as long as this holds (decision 0033).
#[must_use]
pub const fn others_lack_work(frames: usize, consumers: usize) -> bool {
    frames <= 2 * LANES * consumers.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_moves_between_one_and_eight_batches() {
        let want =
            [(0, 1), (3999, 1), (4000, 1), (8000, 2), (11_999, 2), (32_000, 8), (u64::MAX, 8)];
        for (away, batches) in want {
            assert_eq!(rounds(away), batches, "{away}");
        }
    }

    #[test]
    fn two_batches_for_each_other_consumer() {
        assert!(others_lack_work(64, 2) && !others_lack_work(65, 2));
        assert!(others_lack_work(192, 4) && !others_lack_work(193, 4));
        assert!(others_lack_work(0, 1) && !others_lack_work(1, 1) && others_lack_work(0, 0));
    }
}
