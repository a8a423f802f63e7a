//! Watch: whether asking the cache pays, and rest where it does not.
//!
//! A miss costs a hash and a tag; a hit saves a lookup, which grows with the tuples of the tables on the
//! way. Over a window of frames the watch weighs one against the other. Misses that take a free place are
//! no loss yet: so flows are learnt. While the cache rests, one of [`Watch::ONE_IN`] frames is looked up
//! and kept as ever, so that it wakes when flows come that it pays for; by then a miss costs each frame
//! next to nothing.
//!
//! Invariants: what a frame comes to does not depend on it.
//! Thread-safety: plain data.

/// See the module's head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    looked: u32,
    hits: u32,
    /// Misses that could not be kept, or only in place of others.
    vain: u32,
    /// Tuples that the tables of the misses have.
    tuples: u32,
    rests: bool,
    turn: u32,
    /// Hits and looks of the last window.
    last: (u32, u32),
}

impl Watch {
    /// While the cache rests, it is asked for one of N frames.
    pub(crate) const ONE_IN: u32 = 256;
    /// Frames of a window; fewer while it rests, as they are longer in coming.
    const WINDOW: u32 = 1024;
    const WINDOW_AT_REST: u32 = 64;
    /// Misses that a hit of one tuple pays for.
    const PAYS: u32 = 3;
    /// Tuples that count: the cost of a long chain of tables is limited to this number.
    const MOST: u32 = 32;

    /// Whether the cache is paused, and none of the next frames is looked up.
    #[inline]
    pub(crate) const fn passes(&mut self, frames: u32) -> bool {
        let all = self.rests && self.turn + frames < Self::ONE_IN;
        if all {
            self.turn += frames;
        }
        all
    }

    /// Whether to ask for this frame.
    #[inline]
    pub(crate) fn asks(&mut self) -> bool {
        if self.rests {
            self.turn += 1;
            if self.turn < Self::ONE_IN {
                return false;
            }
            self.turn = 0;
        }
        self.looked += 1;
        true
    }

    /// Adds the number of frames that hit.
    #[inline]
    pub(crate) fn hits(&mut self, hits: u32) {
        self.hits += hits;
        let window = if self.rests { Self::WINDOW_AT_REST } else { Self::WINDOW };
        if self.looked >= window {
            self.judge();
        }
    }

    /// A miss that searched this number of tuples; `kept` if it took a free place.
    #[inline]
    pub(crate) const fn missed(&mut self, tuples: usize, kept: bool) {
        self.vain += !kept as u32;
        let tuples = if tuples > Self::MOST as usize { Self::MOST } else { tuples as u32 };
        self.tuples += tuples;
    }

    fn judge(&mut self) {
        let misses = self.looked.saturating_sub(self.hits).max(1);
        let saved = self.hits * Self::PAYS * (self.tuples / misses).max(1);
        self.rests = saved < misses && self.vain * 2 >= misses;
        self.last = (self.hits, self.looked);
        (self.looked, self.hits, self.vain, self.tuples) = (0, 0, 0, 0);
    }

    /// While paused: the frames of the last sample that was looked up, and its hits.
    pub(crate) fn pause(&self) -> Option<(u32, u32)> {
        self.rests.then_some(self.last)
    }
}
