//! A core's instruction cache: one or two ways, least recently used.

use crate::config::Chip;

const EMPTY: u32 = u32::MAX;

/// Tags only: the words are in the instruction memory.
#[derive(Clone, Debug)]
pub(crate) struct Icache {
    /// Two tags a set, the more recently used first. With one way the second stays empty.
    sets: Vec<[u32; 2]>,
    mask: u32,
    ways: u32,
}

impl Icache {
    pub(crate) fn new(chip: &Chip) -> Self {
        let sets = (chip.icache_bytes / chip.icache_line_bytes / chip.icache_ways).max(1);
        Self { sets: vec![[EMPTY; 2]; sets as usize], mask: sets - 1, ways: chip.icache_ways }
    }

    /// Whether `line` (an address divided by the line's bytes) is there; it is now the last used.
    #[inline]
    pub(crate) fn hit(&mut self, line: u32) -> bool {
        let Some(set) = self.sets.get_mut((line & self.mask) as usize) else { return false };
        let [first, second] = *set;
        if first != line && second != line {
            return false;
        }
        // Which of the two it was is hard to predict: no branch.
        *set = [line, if first == line { second } else { first }];
        true
    }

    /// Puts `line` in place of the least recently used.
    pub(crate) fn fill(&mut self, line: u32) {
        let set = &mut self.sets[(line & self.mask) as usize];
        if self.ways == 2 {
            set[1] = set[0];
        }
        set[0] = line;
    }
}
