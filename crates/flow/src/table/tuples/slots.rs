//! Slots: a hash table from 32-bit hashes to rule numbers.
//!
//! A slot has the hash in its upper half and the number + 1 in its lower half; 0 is free. Collisions
//! go to the next slot (linear probing); at most half of the slots are taken.
//!
//! Invariants: a hash is stored at most once, and no free slot lies between it and its home.
//! Thread-safety: plain data.

/// Numbers by hash; a number is below [`u32::MAX`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Slots {
    slots: Box<[u64]>,
    taken: usize,
}

impl Default for Slots {
    fn default() -> Self {
        Self { slots: vec![0; 8].into(), taken: 0 }
    }
}

impl Slots {
    /// The slot that has this hash, or the free one where it would be stored.
    fn position(&self, hash: u32) -> usize {
        let last = self.slots.len() - 1;
        let mut at = hash as usize & last;
        while self.slots[at] != 0 && (self.slots[at] >> 32) as u32 != hash {
            at = (at + 1) & last;
        }
        at
    }

    /// Whether the first slot of a hash is taken. If it is free, the hash is not stored.
    #[inline]
    pub(super) fn may_have(&self, hash: u32) -> bool {
        self.slots[hash as usize & (self.slots.len() - 1)] != 0
    }

    /// The number of a hash, or [`u32::MAX`].
    #[inline]
    pub(super) fn get(&self, hash: u32) -> u32 {
        let last = self.slots.len() - 1;
        let mut at = hash as usize & last;
        loop {
            let slot = self.slots[at];
            if slot == 0 || (slot >> 32) as u32 == hash {
                return (slot as u32).wrapping_sub(1);
            }
            at = (at + 1) & last;
        }
    }

    pub(super) fn set(&mut self, hash: u32, number: u32) {
        let mut at = self.position(hash);
        if self.slots[at] == 0 {
            self.taken += 1;
            if self.taken * 2 > self.slots.len() {
                self.grow();
                at = self.position(hash);
            }
        }
        self.slots[at] = u64::from(hash) << 32 | u64::from(number + 1);
    }

    fn grow(&mut self) {
        let larger = vec![0; self.slots.len() * 2].into();
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot != 0 {
                let at = self.position((slot >> 32) as u32);
                self.slots[at] = slot;
            }
        }
    }

    /// Frees the slot of a hash. The slots behind it move up where that brings them closer to
    /// their homes, so that no probe ends too early.
    pub(super) fn clear(&mut self, hash: u32) {
        let last = self.slots.len() - 1;
        let mut hole = self.position(hash);
        if std::mem::take(&mut self.slots[hole]) == 0 {
            return;
        }
        self.taken -= 1;
        let mut at = (hole + 1) & last;
        while self.slots[at] != 0 {
            let home = (self.slots[at] >> 32) as usize & last;
            if (at.wrapping_sub(home) & last) >= (at.wrapping_sub(hole) & last) {
                self.slots[hole] = std::mem::take(&mut self.slots[at]);
                hole = at;
            }
            at = (at + 1) & last;
        }
    }

    /// The taken slots: hash and number.
    #[cfg(test)]
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let taken = self.slots.iter().filter(|slot| **slot != 0);
        taken.map(|slot| ((slot >> 32) as u32, *slot as u32 - 1))
    }

    /// Checks the counts.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.each().count(), self.taken);
        assert!(self.taken * 2 <= self.slots.len());
    }
}
