//! Rate limit of ICMP errors: a token bucket.

use flowyard_frame::Nanos;

/// The capacity of the bucket, and the number of errors a second.
const MOST: u32 = 1000;
/// The time in which the bucket gets one token.
const EVERY: Nanos = 1_000_000_000 / MOST as Nanos;

#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    left: u32,
    /// When the last token was added.
    since: Nanos,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: MOST, since: 0 }
    }
}

impl Allowance {
    /// Takes a token. Returns false if there is none.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        let added = now.saturating_sub(self.since) / EVERY;
        self.since += added * EVERY;
        self.left = MOST.min(self.left.saturating_add(added.min(MOST.into()) as u32));
        let has = self.left > 0;
        self.left -= u32::from(has);
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_at_once_and_a_thousand_a_second() {
        let mut allowance = Allowance::default();
        let mut taken = |now: Nanos, tries: u32| (0..tries).filter(|_| allowance.take(now)).count();
        assert_eq!((taken(0, 2000), taken(EVERY - 1, 2000), taken(5 * EVERY, 2000)), (1000, 0, 5));
        assert_eq!(taken(1 << 60, 2000), 1000);
    }
}
