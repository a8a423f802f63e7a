//! Words: the part of a key that a mask looks at, and hashes of that part.
//!
//! Thread-safety: plain data.

use flowyard_frame::Rng;

use crate::mix::fold;

/// Seeds for the hashes of [`Words`], which nobody can guess without knowing `seed`.
#[must_use]
pub fn seeds<const N: usize>(seed: u64) -> [u64; N] {
    let mut random = Rng::new(seed);
    std::array::from_fn(|_| random.bits() | 1)
}

/// The words of a key that a mask has bits in, with those bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Words<const N: usize> {
    used: usize,
    /// Index and bits; a word without bits follows an odd number.
    pairs: [(u8, u64); N],
}

impl<const N: usize> Words<N> {
    /// The words of `mask`. `N` is a power of two.
    #[must_use]
    pub fn new(mask: &[u64; N]) -> Self {
        const { assert!(N.is_power_of_two() && N <= 256) };
        let mut words = Self { used: 0, pairs: [(0, 0); N] };
        for word in (0..=u8::MAX).zip(*mask).filter(|(_, bits)| *bits != 0) {
            words.pairs[words.used] = word;
            words.used += 1;
        }
        words.used = words.used.next_multiple_of(2);
        words
    }

    /// How many words there are; an even number.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Whether the mask has no bits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// These words of a key, without the bits outside the mask.
    #[inline]
    pub fn of(&self, key: &[u64; N]) -> impl Iterator<Item = u64> {
        self.pairs[..self.used].iter().map(|(at, bits)| key[usize::from(*at) & (N - 1)] & bits)
    }

    #[inline]
    fn sum(&self, key: &[u64; N], seeds: &[u64; N]) -> u64 {
        let word = |(at, bits): (u8, u64)| key[usize::from(at) & (N - 1)] & bits;
        let pairs = self.pairs[..self.used].as_chunks::<2>().0.iter();
        let pairs = pairs.zip(seeds.as_chunks::<2>().0);
        pairs.fold(0, |sum, (w, s)| sum ^ fold(word(w[0]) ^ s[0], word(w[1]) ^ s[1]))
    }

    /// A hash of these words of a key.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u64; N], seeds: &[u64; N]) -> u64 {
        fold(self.sum(key, seeds), seeds[N - 1])
    }

    /// A hash of 32 bits: cheaper, and good enough for a table that compares in full.
    #[inline]
    pub(super) fn slot_hash(&self, key: &[u64; N], seeds: &[u64; N]) -> u32 {
        let sum = self.sum(key, seeds);
        (sum ^ sum >> 32) as u32
    }
}
