//! Executions and stalls by instruction address, collected for runs of instructions.
//!
//! A core issues instructions in sequence until after the delay slot of a jump or taken branch. Such a run is
//! recorded as two marks, +1 at its first word and -1 after its last; the prefix sums of the marks are the
//! counts. So counting takes no time for an instruction, and little for a run.
//!
//! ```text
//!   words    a b c d e f          runs b..e and c..f
//!   marks    . + + . - -
//!   counts   0 1 2 2 1 0
//! ```
//!
//! Invariant: every +1 has its -1, so the sums are exact though the marks wrap. Thread-safety:
//! values only.

use crate::counters::Heat;

/// Issues and stalls by instruction word.
#[derive(Clone, Debug)]
pub(super) struct HeatMap {
    /// Marks of runs.
    marks: Vec<u64>,
    /// Stall cycles.
    stalls: Vec<u64>,
}

impl HeatMap {
    /// A map for `words` words of code.
    pub(super) fn new(words: usize) -> Self {
        Self { marks: vec![0; words + 1], stalls: vec![0; words + 1] }
    }

    /// Counts the instructions `from..to`, which were issued in sequence.
    #[inline(always)]
    pub(super) fn issued(&mut self, from: usize, to: usize) {
        if let Some(mark) = self.marks.get_mut(from) {
            *mark = mark.wrapping_add(1);
        }
        if let Some(mark) = self.marks.get_mut(to) {
            *mark = mark.wrapping_sub(1);
        }
    }

    /// Counts `cycles` of stall for the instruction at `pc`.
    #[inline(always)]
    pub(super) fn stalled(&mut self, pc: u32, cycles: u64) {
        if let Some(stall) = self.stalls.get_mut((pc / 4) as usize) {
            *stall += cycles;
        }
    }

    /// Subtracts stalls that were counted in advance.
    pub(super) fn take_back(&mut self, pc: u32, cycles: u64) {
        if let Some(stall) = self.stalls.get_mut((pc / 4) as usize) {
            *stall -= cycles;
        }
    }

    /// The counts by word.
    pub(super) fn counts(&self) -> Vec<Heat> {
        let mut count = 0u64;
        let words = self.marks.len() - 1;
        let both = self.marks.iter().zip(&self.stalls).take(words);
        both.map(|(&mark, &stall)| {
            count = count.wrapping_add(mark);
            Heat { count, stall }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_word() {
        let mut heat = HeatMap::new(6);
        let mut slow = [0; 6];
        for (from, to) in [(1, 4), (2, 5), (0, 6), (3, 3), (5, 6)] {
            heat.issued(from, to);
            slow[from..to].iter_mut().for_each(|n| *n += 1);
        }
        heat.stalled(8, 5);
        heat.take_back(8, 2);
        let counts = heat.counts();
        assert_eq!(counts.iter().map(|h| h.count).collect::<Vec<_>>(), slow);
        assert_eq!(counts.iter().map(|h| h.stall).collect::<Vec<_>>(), [0, 0, 3, 0, 0, 0]);
    }
}
