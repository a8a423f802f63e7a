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

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks up a window of frames, of which this number hits. The misses search `tuples` each, and `kept` of
    /// them take a free entry. Returns whether the lookups are paused after it.
    fn window(watch: &mut Watch, hits: u32, tuples: usize, kept: u32) -> bool {
        let misses = 1024 - hits;
        for n in 0..1024 {
            assert!(watch.looks());
            if n < misses {
                watch.missed(tuples, n < kept);
            }
            // The owner adds the hits of a batch after its lookups.
            if n % 32 == 31 {
                watch.hits(if n == 1023 { hits } else { 0 });
            }
        }
        watch.pause().is_some()
    }

    #[test]
    fn lookups_are_paused_only_if_hits_save_less_than_misses_cost() {
        // A hit saves as much as three misses cost, times the tuples of the tables: 256 of 1024 are enough.
        for (hits, tuples, paused) in [
            (0, 1, true),
            (255, 1, true),
            (256, 1, false),
            (1024, 1, false),
            (146, 2, true),
            (147, 2, false),
            (10, 32, true),
            (11, 32, false),
            // More tuples than 32 do not count.
            (10, 1000, true),
            (11, 1000, false),
        ] {
            let mut watch = Watch::default();
            assert_eq!(window(&mut watch, hits, tuples, 0), paused, "{hits} hits, {tuples} tuples");
            assert_eq!(watch.pause(), paused.then_some((hits, 1024)));
        }
    }

    #[test]
    fn misses_that_take_a_free_entry_are_no_loss() {
        for (kept, paused) in [(0, true), (512, true), (513, false), (1024, false)] {
            let mut watch = Watch::default();
            assert_eq!(window(&mut watch, 0, 1, kept), paused, "{kept}");
        }
    }

    #[test]
    fn during_a_pause_one_of_256_frames_is_looked_up_and_hits_end_it() {
        let mut watch = Watch::default();
        assert!(window(&mut watch, 0, 1, 0));
        let mut looked = 0;
        for n in 0..64 * Watch::ONE_IN {
            if watch.looks() {
                looked += 1;
                assert_eq!((n + 1) % Watch::ONE_IN, 0);
                assert!(watch.pause().is_some(), "the window has 64 frames");
                watch.hits(1);
            }
        }
        assert_eq!((looked, watch.pause()), (64, None));
    }
}
