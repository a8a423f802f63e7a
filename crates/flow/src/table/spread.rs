//! The last table: the indirection table of receive-side scaling. It never misses.
//!
//! ```text
//!  hash 0x51ccc178 & 0x7f = 120 ──> entry 120 ──> queue 8
//! ```
//!
//! The low bits of the hash choose the entry (Microsoft, "RSS Hashing Functions"; 82599
//! datasheet, section 7.1.2.8). Rebalancing edits entries; a load balancer fills them with
//! backends.
//!
//! Invariants: the number of entries is a power of two and never changes.

use flowyard_frame::{Action, Batch, Lanes, To};

use super::Table;

/// A size that an indirection table cannot have, or an entry that it does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSpread {
    /// Not a power of two from 1 to 65,536.
    #[error(
        "the size of an indirection table is a power of two, at most 65536, not {0}; adapters have 128 (82599), 512 (X710) or 2048 (E810) entries"
    )]
    Size(usize),
    /// No queue, or more than the table can number.
    #[error("an indirection table spreads over 1 to 65536 queues, not {0}")]
    Queues(usize),
    /// No such entry.
    #[error("entry {index} is outside an indirection table of {size} entries")]
    Index {
        /// The requested index.
        index: usize,
        /// Number of entries.
        size: usize,
    },
}

/// An indirection table: from `hash & (size - 1)` to a destination.
#[derive(Clone, Debug)]
pub struct Spread {
    entries: Box<[To]>,
}

impl Spread {
    /// A table of `size` entries; entry `i` is queue `i mod queues`, which is the initial state of
    /// adapters.
    pub fn new(size: usize, queues: usize) -> Result<Self, BadSpread> {
        if !size.is_power_of_two() || size > 1 << 16 {
            return Err(BadSpread::Size(size));
        }
        if !(1..=1 << 16).contains(&queues) {
            return Err(BadSpread::Queues(queues));
        }
        Ok(Self { entries: (0..size).map(|i| To::Queue((i % queues) as u16)).collect() })
    }

    /// The entries, by index.
    #[must_use]
    pub fn entries(&self) -> &[To] {
        &self.entries
    }

    /// The mask of the hash bits that select an entry.
    #[must_use]
    pub fn mask(&self) -> u32 {
        self.entries.len() as u32 - 1
    }

    /// Sends the flows of entry `index` to `to`.
    pub fn set(&mut self, index: usize, to: To) -> Result<(), BadSpread> {
        let size = self.entries.len();
        let entry = self.entries.get_mut(index).ok_or(BadSpread::Index { index, size })?;
        *entry = to;
        Ok(())
    }

    /// The destination of frames with this hash.
    #[must_use]
    #[inline]
    pub fn to(&self, hash: u32) -> To {
        self.entries[hash as usize & (self.entries.len() - 1)]
    }
}

impl Table for Spread {
    #[inline]
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes {
        want.each(|lane| {
            let to = self.to(batch.frames[lane].hash);
            batch.actions[lane] = Action { to, counter: 0, mark: 0 };
        });
        Lanes::NONE
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::FlowKey;
    use flowyard_testkit::hashed_batch;

    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for size in [0, 3, 100, 1 << 17] {
            assert_eq!(Spread::new(size, 4).unwrap_err(), BadSpread::Size(size));
        }
        assert_eq!(Spread::new(128, 0).unwrap_err(), BadSpread::Queues(0));
        let spread = Spread::new(128, 16).unwrap();
        assert_eq!(spread.to(0x51cc_c178), To::Queue(8), "as seen on an X520 with 16 queues");
    }

    #[test]
    fn it_never_misses_and_follows_its_edits() {
        let mut spread = Spread::new(4, 3).unwrap();
        spread.set(2, To::Port(9)).unwrap();
        assert_eq!(spread.set(4, To::DROP), Err(BadSpread::Index { index: 4, size: 4 }));
        let mut batch = hashed_batch((0..8).map(|hash| (FlowKey::ZERO, hash << 8 | hash)));
        let all = batch.lanes();
        assert_eq!(spread.lookup(&mut batch, all), Lanes::NONE);
        let to: Vec<_> = batch.actions[..8].iter().map(|action| action.to).collect();
        let once = [To::Queue(0), To::Queue(1), To::Port(9), To::Queue(0)];
        assert_eq!(to, [once, once].concat());
    }
}
