//! Turns time stamps into times that never decrease.

use flowyard_frame::Nanos;

/// A monotonic clock over time stamps. A time stamp that is earlier than the one before it counts as
/// the same time. A capture that starts before the end of the previous one is shifted to start there.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    now: Nanos,
    shift: i128,
    first: Option<Nanos>,
    /// Whether the next time stamp is the first of a capture.
    fresh: bool,
    /// Frames whose time stamp was earlier than the one before it by at least [`EARLY`], and the longest such time.
    early: u64,
    longest_back: Nanos,
}

/// Time stamps that are earlier by less are the usual effect of several queues.
const EARLY: Nanos = 1_000_000_000;

impl Clock {
    /// Reports that the next time stamp is the first of a capture.
    pub(crate) const fn next_capture(&mut self) {
        self.fresh = true;
    }

    /// The time of a frame with this time stamp.
    pub(crate) fn at(&mut self, stamp: Nanos) -> Nanos {
        if self.fresh {
            self.fresh = false;
            let behind = i128::from(self.now) - i128::from(stamp);
            self.shift = if self.first.is_some() && behind > 0 { behind } else { 0 };
        }
        let shifted = u64::try_from(i128::from(stamp) + self.shift).unwrap_or(u64::MAX);
        let back = self.now.saturating_sub(shifted);
        self.early += u64::from(back >= EARLY);
        self.longest_back = self.longest_back.max(back);
        self.now = self.now.max(shifted);
        self.first.get_or_insert(self.now);
        self.now
    }

    /// What a reader should know about the time stamps.
    pub(crate) fn note(&self) -> Option<String> {
        (self.early > 0).then(|| {
            format!(
                "{} packets have time stamps that are earlier than those before them, by up to {:.1} s. They count as simultaneous, \
                 so loads over time, delays and the duration are wrong. A damaged record or a changed clock is the usual cause: cut \
                 the capture with 'editcap -A START -B END'.",
                self.early,
                self.longest_back as f64 / 1e9
            )
        })
    }

    /// The time of the first frame; 0 if there was none.
    pub(crate) fn started(&self) -> Nanos {
        self.first.unwrap_or(0)
    }

    /// The time from the first frame to the last.
    pub(crate) fn elapsed(&self) -> Nanos {
        self.now - self.started()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn time_stamps_that_are_much_too_early_are_reported() {
        let mut clock = Clock::default();
        for stamp in [5, 6, 7] {
            assert_eq!(clock.at(stamp * SECOND), stamp * SECOND);
        }
        assert_eq!(clock.at(7 * SECOND - 1000), 7 * SECOND);
        assert_eq!(clock.note(), None, "several queues");
        assert_eq!(clock.at(100 * SECOND), 100 * SECOND);
        assert_eq!(clock.at(8 * SECOND), 100 * SECOND);
        assert_eq!(clock.at(9 * SECOND), 100 * SECOND);
        let note = clock.note().unwrap();
        assert!(note.starts_with("2 packets ") && note.contains("by up to 92.0 s"), "{note}");
        // Another capture that starts earlier is shifted, which is no fault of its own.
        let mut clock = Clock::default();
        clock.next_capture();
        clock.at(50 * SECOND);
        clock.next_capture();
        assert_eq!(clock.at(SECOND), 50 * SECOND);
        assert_eq!(clock.note(), None);
    }
}
