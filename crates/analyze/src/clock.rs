//! The time of a frame, whatever its stamp says.

use flowyard_frame::Nanos;

/// Capture time made monotonic: a time stamp that goes back counts as the time before it, and a
/// capture that starts before the last one ended is moved behind it.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    now: Nanos,
    shift: i128,
    first: Option<Nanos>,
    /// The next time stamp is the first of its capture.
    fresh: bool,
}

impl Clock {
    /// The next time stamp is the first of its capture.
    pub(crate) const fn next_capture(&mut self) {
        self.fresh = true;
    }

    /// The time of a frame that is stamped so.
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

    /// The time of the first frame; 0 before it.
    pub(crate) fn started(&self) -> Nanos {
        self.first.unwrap_or(0)
    }

    /// From the first frame to the last.
    pub(crate) fn elapsed(&self) -> Nanos {
        self.now - self.started()
    }
}
