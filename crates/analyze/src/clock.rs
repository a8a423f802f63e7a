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
}

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
        self.now = self.now.max(shifted);
        self.first.get_or_insert(self.now);
        self.now
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
