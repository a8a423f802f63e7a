//! The balance of a run: everything that entered a model left it, was dropped, or is still in it.

use serde::Serialize;

/// Frames or requests of a whole run. The models count each of these on its own, so a balance shows that
/// none was lost or counted twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Accounting {
    /// Entered the model.
    pub entered: u64,
    /// Left it: transmitted, or answered.
    pub left: u64,
    /// Dropped after entering.
    pub dropped: u64,
    /// Still in the model at the end, as counted in its rings, queues and sockets.
    pub held: u64,
}

impl Accounting {
    /// Whether entered = left + dropped + held.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.entered == self.left + self.dropped + self.held
    }
}
