//! When one side of a ring in shared memory looks whether the other side wants to be notified.
//!
//! The answer is in memory that the other side writes with each of its batches, and the look must be behind a full barrier, so it
//! takes as long as the work on several frames. A core that does not pause therefore does not look after each batch.

/// A core that never pauses looks after this many batches.
const BATCHES: u8 = 8;

/// The batches that one ring has shown its other side since the last look.
///
/// Invariants: a look is due in the first turn of the core in which the ring shows nothing, and after eight batches, so
/// the other side waits no longer than that.
/// Thread-safety: belongs to one thread.
#[derive(Debug, Default)]
pub struct Pending {
    batches: u8,
    /// Whether one of them came in this turn of the core.
    is_fresh: bool,
}

impl Pending {
    /// The other side was shown a batch.
    #[inline]
    pub const fn shown(&mut self) {
        self.batches = self.batches.saturating_add(1);
        self.is_fresh = true;
    }

    /// Whether a look is due, at the end of a turn of the core. The caller looks if it is.
    #[inline]
    #[must_use]
    pub const fn is_due(&mut self) -> bool {
        let is_idle = !std::mem::replace(&mut self.is_fresh, false);
        if self.batches == 0 || !is_idle && self.batches < BATCHES {
            return false;
        }
        self.batches = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_or_several_batches_make_a_look_due() {
        let mut pending = Pending::default();
        assert!(!pending.is_due(), "nothing was shown");
        let mut turn = |batches| {
            (0..batches).for_each(|_| pending.shown());
            pending.is_due()
        };
        assert_eq!([1, 0, 0].map(&mut turn), [false, true, false]);
        assert_eq!([2, 1, 0, 0].map(&mut turn), [false, false, true, false]);
        let looks = (0..3 * BATCHES).filter(|_| turn(1)).count();
        assert_eq!(looks, 3, "a core that never pauses");
        assert!(turn(u8::MAX), "many in one turn");
        assert!(!turn(0));
    }
}
