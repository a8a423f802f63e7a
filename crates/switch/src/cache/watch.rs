//! Watch: whether lookups in the cache pay; they are paused while they do not.
//!
//! A miss costs a hash and a tag; a hit saves a lookup in the tables, which grows with the number of their
//! tuples. Over a window of frames the watch compares the two. Misses that take a free entry are not
//! counted as a loss, so flows can be learnt. During a pause, one of [`Watch::ONE_IN`] frames is looked up
//! and kept as usual, so that the cache resumes when frames come for which it pays.
//!
//! Invariants: the result for a frame does not depend on it.
//! Thread-safety: plain data.

use crate::pause::Pause;

/// See the module's head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    pause: Pause<{ Self::ONE_IN }, 1024, 64>,
    /// Misses that were not kept, or only in place of other entries.
    vain: u32,
    /// Tuples of the tables in which the misses were looked up.
    tuples: u32,
    /// Hits and lookups of the last window.
    last: (u32, u32),
}

impl Watch {
    /// During a pause, one of N frames is looked up.
    pub(crate) const ONE_IN: u32 = 256;
    /// Misses that cost as much as a hit saves if the tables have one tuple.
    const PAYS: u32 = 3;
    /// Tuples that count: the cost of a long chain of tables is limited to this number.
    const MOST: u32 = 32;

    /// Whether none of the next `frames` frames is looked up. If so, they count as seen.
    #[inline]
    pub(crate) const fn skips(&mut self, frames: u32) -> bool {
        self.pause.skips(frames)
    }

    /// Whether to look up this frame.
    #[inline]
    pub(crate) const fn looks(&mut self) -> bool {
        self.pause.looks(1)
    }

    /// Adds the number of frames that hit.
    #[inline]
    pub(crate) fn hits(&mut self, hits: u32) {
        if let Some(last) = self.pause.found(hits) {
            self.last = last;
            self.judge();
        }
    }

    /// A miss that searched this number of tuples; `kept` if it took a free entry.
    #[inline]
    pub(crate) const fn missed(&mut self, tuples: usize, kept: bool) {
        self.vain += !kept as u32;
        let tuples = if tuples > Self::MOST as usize { Self::MOST } else { tuples as u32 };
        self.tuples += tuples;
    }

    fn judge(&mut self) {
        let (hits, looked) = self.last;
        let misses = looked.saturating_sub(hits).max(1);
        let saved = hits * Self::PAYS * (self.tuples / misses).max(1);
        self.pause.set(saved < misses && self.vain * 2 >= misses);
        (self.vain, self.tuples) = (0, 0);
    }

    /// During a pause: the hits among the frames that were last looked up, and the number of these frames.
    pub(crate) fn pause(&self) -> Option<(u32, u32)> {
        self.pause.is_paused().then_some(self.last)
    }
}
