//! Blocks of 1 to 64 items in one array, which grow and shrink by one item at a time.
//!
//! The capacity of a block is a power of two. Freed blocks are reused for blocks of the same capacity.
//! Index 0 means no block.

/// Blocks of items.
#[derive(Clone, Debug)]
pub(super) struct Arena<T> {
    pub(super) items: Vec<T>,
    /// Free blocks, by the logarithm of their capacity.
    free: [Vec<u32>; 7],
}

impl<T: Copy + Default> Arena<T> {
    pub(super) fn new() -> Self {
        Self { items: vec![T::default()], free: Default::default() }
    }

    /// The memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.items.capacity() * size_of::<T>() + free * size_of::<u32>()
    }

    /// Inserts `item` at position `place` of the block at `at` with `len` items (0 for no block).
    /// Returns the new index of the block.
    pub(super) fn insert(&mut self, at: u32, len: usize, place: usize, item: T) -> u32 {
        let to = if len > 0 && len < room(len) { at } else { self.take(room(len + 1)) };
        let (from, start) = (at as usize, to as usize);
        self.items.copy_within(from + place..from + len, start + place + 1);
        if to != at {
            self.items.copy_within(from..from + place, start);
            self.release(at, len);
        }
        self.items[start + place] = item;
        to
    }

    /// Removes position `place` of the block at `at` with `len` items. Returns the new index of the
    /// block; 0 if it is empty.
    pub(super) fn remove(&mut self, at: u32, len: usize, place: usize) -> u32 {
        let left = len.saturating_sub(1);
        let same = left > 0 && room(left) == room(len);
        let to = match left {
            0 => 0,
            _ if same => at,
            _ => self.take(room(left)),
        };
        let (from, start) = (at as usize, to as usize);
        if left > 0 {
            if !same {
                self.items.copy_within(from..from + place, start);
            }
            self.items.copy_within(from + place + 1..from + len, start + place);
        }
        if !same {
            self.release(at, len);
        }
        to
    }

    fn take(&mut self, room: usize) -> u32 {
        self.free[room.ilog2() as usize].pop().unwrap_or_else(|| {
            let at = self.items.len();
            self.items.resize(at + room, T::default());
            at as u32
        })
    }

    fn release(&mut self, at: u32, len: usize) {
        if len > 0 {
            self.free[room(len).ilog2() as usize].push(at);
        }
    }
}

/// The capacity of a block with `len` items.
const fn room(len: usize) -> usize {
    len.next_power_of_two()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_are_vectors(
            steps in prop::collection::vec((0..4_usize, any::<bool>(), any::<u16>()), 1..600),
        ) {
            let mut arena = Arena::new();
            let mut blocks = [0; 4];
            let mut model = [const { Vec::new() }; 4];
            for (which, insert, value) in steps {
                let (block, model) = (&mut blocks[which], &mut model[which]);
                if insert && model.len() < 64 {
                    let place = usize::from(value) % (model.len() + 1);
                    *block = arena.insert(*block, model.len(), place, value);
                    model.insert(place, value);
                } else if !model.is_empty() {
                    let place = usize::from(value) % model.len();
                    *block = arena.remove(*block, model.len(), place);
                    model.remove(place);
                }
                prop_assert_eq!(*block == 0, model.is_empty());
                let at = *block as usize;
                prop_assert_eq!(&arena.items[at..at + model.len()], &model[..]);
            }
            let room: usize = model.iter().map(|m| if m.is_empty() { 0 } else { room(m.len()) }).sum();
            let free: usize = (0..7).map(|class| arena.free[class].len() << class).sum();
            prop_assert_eq!(1 + room + free, arena.items.len(), "nothing is lost");
        }
    }
}
