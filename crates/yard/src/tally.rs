//! Tally: frames and bytes by the counters that tables name.
//!
//! A table entry may name a counter. The frame is counted once, where the table answers: before
//! settle, which may change where a frame goes but not what it matched, and whether or not the frame
//! is dropped.
//!
//! Invariants: nothing is allocated after `new`; without counters a batch costs one comparison.
//! Thread-safety: a core's own, in cache lines of its own.

use flowyard_frame::Batch;

/// What one counter counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    /// The sum of two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { frames: self.frames + other.frames, bytes: self.bytes + other.bytes }
    }
}

/// Counters that share cache lines with each other, and with nothing else.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(128))]
struct Line([Count; 8]);

/// A core's counters, by number.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    lines: Box<[Line]>,
    counters: usize,
}

impl Tally {
    /// Counters 1 to `counters`.
    pub(crate) fn new(counters: usize) -> Self {
        Self { lines: vec![Line::default(); counters.div_ceil(8)].into(), counters }
    }

    /// Counts the lanes whose actions name a counter. Numbers that name no counter count nothing.
    #[inline]
    pub(crate) fn count(&mut self, batch: &Batch) {
        if self.counters == 0 {
            return;
        }
        for lane in batch.lanes() {
            let counter = usize::from(batch.actions[lane].counter);
            if (1..=self.counters).contains(&counter) {
                let count = &mut self.lines[(counter - 1) / 8].0[(counter - 1) % 8];
                count.frames += 1;
                count.bytes += batch.frames[lane].len() as u64;
            }
        }
    }

    /// What was counted, by number.
    pub(crate) fn counts(&self) -> impl Iterator<Item = Count> + '_ {
        self.lines.iter().flat_map(|line| line.0).take(self.counters)
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::{Action, FlowKey, Frame};

    use super::*;

    #[test]
    fn a_counter_is_counted_once() {
        let mut tally = Tally::new(9);
        let mut batch = Batch::default();
        for counter in [0, 1, 9, 9, 10] {
            let lane = batch.push(Frame::unbacked(60), FlowKey::ZERO).unwrap();
            batch.actions[lane] = Action { counter, ..Action::queue(0) };
        }
        tally.count(&batch);
        let counts: Vec<_> = tally.counts().map(|count| (count.frames, count.bytes)).collect();
        assert_eq!(
            counts,
            [(1, 60), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (2, 120)]
        );
        assert_eq!(Tally::new(0).counts().count(), 0);
    }

    #[test]
    fn cores_share_no_cache_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (128, 128));
    }
}
