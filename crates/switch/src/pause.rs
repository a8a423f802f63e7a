//! Pause: a lookup that stops while it does not pay, and is sampled to find out when it pays again.
//!
//! ```text
//!   active ──window of WINDOW frames──> does it pay? ──no──> paused: one turn of ONE_IN looks up
//!     ^                                                           │
//!     └──yes── does it pay? <──window of SAMPLE frames────────────┘
//! ```
//!
//! The owner decides at the end of each window whether the lookup pays; a turn is a frame or a batch.
//!
//! Invariants: the result for a frame does not depend on a pause.
//! Thread-safety: plain data.

/// See the module's head. A window has fewer frames during a pause, because they take longer to come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause<const ONE_IN: u32, const WINDOW: u32, const SAMPLE: u32> {
    is_paused: bool,
    /// Turns since the last lookup of a pause.
    turns: u32,
    /// Frames that were looked up in this window, and those that were found.
    looked: u32,
    hits: u32,
}

impl<const ONE_IN: u32, const WINDOW: u32, const SAMPLE: u32> Pause<ONE_IN, WINDOW, SAMPLE> {
    pub(crate) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether none of the next `turns` turns looks up. If so, they count as taken.
    #[inline]
    pub(crate) const fn skips(&mut self, turns: u32) -> bool {
        let skips = self.is_paused && self.turns + turns < ONE_IN;
        if skips {
            self.turns += turns;
        }
        skips
    }

    /// Takes a turn: whether to look up its `frames`.
    #[inline]
    pub(crate) const fn looks(&mut self, frames: u32) -> bool {
        if self.is_paused {
            self.turns += 1;
            if self.turns < ONE_IN {
                return false;
            }
            self.turns = 0;
        }
        self.looked += frames;
        true
    }

    /// Adds the number of frames that were found. At the end of a window, returns the frames that were
    /// found and those that were looked up in it; then [`Pause::set`] must follow.
    #[inline]
    pub(crate) const fn found(&mut self, hits: u32) -> Option<(u32, u32)> {
        self.hits += hits;
        let window = if self.is_paused { SAMPLE } else { WINDOW };
        if self.looked < window {
            return None;
        }
        let counted = (self.hits, self.looked);
        (self.hits, self.looked) = (0, 0);
        Some(counted)
    }

    /// Pauses the lookup or resumes it.
    pub(crate) const fn set(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }
}
