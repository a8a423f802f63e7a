//! A core's instruction cache: one or two ways, with least-recently-used replacement.

use crate::config::Chip;

const EMPTY: u32 = u32::MAX;

/// The tags; the words are in the instruction memory.
#[derive(Clone, Debug)]
pub(crate) struct Icache {
    /// Two tags for each set, the more recently used first. With one way the second stays empty.
    sets: Vec<[u32; 2]>,
    mask: u32,
    ways: u32,
}

impl Icache {
    pub(crate) fn new(chip: &Chip) -> Self {
        let sets = (chip.icache_bytes / chip.icache_line_bytes / chip.icache_ways).max(1);
        Self { sets: vec![[EMPTY; 2]; sets as usize], mask: sets - 1, ways: chip.icache_ways }
    }

    /// Whether `line` (an address divided by the line size) is in the cache; it becomes the most recently used.
    #[inline]
    pub(crate) fn hit(&mut self, line: u32) -> bool {
        let Some(set) = self.sets.get_mut((line & self.mask) as usize) else { return false };
        let [first, second] = *set;
        if first != line && second != line {
            return false;
        }
        // Which of the two matched is hard to predict, so there is no branch.
        *set = [line, if first == line { second } else { first }];
        true
    }

    /// Replaces the least recently used line by `line`.
    pub(crate) fn fill(&mut self, line: u32) {
        let set = &mut self.sets[(line & self.mask) as usize];
        if self.ways == 2 {
            set[1] = set[0];
        }
        set[0] = line;
    }
}
