//! Which buffers of the pool the kernel has: a bit for each.

/// The buffers lent to the kernel.
pub(super) struct Ledger {
    pub(super) bits: Box<[u64]>,
    /// Number of buffers in the fill ring, or being received into.
    pub(super) filled: usize,
    /// Number of buffers in the tx ring, or being transmitted.
    pub(super) sent: usize,
}

impl Ledger {
    pub(super) fn set(&mut self, buffer: u64) {
        if let Some(word) = self.bits.get_mut(buffer as usize / 64) {
            *word |= 1 << (buffer % 64);
        }
    }

    /// Clears the bit of `buffer`; returns whether it was lent.
    pub(super) fn clear(&mut self, buffer: u64) -> bool {
        let Some(word) = self.bits.get_mut(buffer as usize / 64) else { return false };
        let was = *word >> (buffer % 64) & 1 == 1;
        *word &= !(1 << (buffer % 64));
        was
    }

    /// All lent buffers.
    pub(super) fn lent(&self) -> impl Iterator<Item = u64> + '_ {
        let words = (0..).zip(&self.bits);
        words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    /// Removes and returns all lent buffers.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u64> + '_ {
        (self.filled, self.sent) = (0, 0);
        (0..).zip(self.bits.iter_mut()).flat_map(|(at, word)| {
            let bits = std::mem::take(word);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }
}
