//! Identity: 128 bits by which a rule is found again, whatever tuple it is stored in.
//!
//! They are a hash of value, mask and priority under secret seeds, so two rules share an identity
//! with a probability of about 2^-128 and nobody can construct two that do.

use std::hash::{BuildHasherDefault, Hasher};

use super::Entry;
use crate::mix::fold;

/// The hasher of a map by identity: an identity is a hash already.
pub(super) type Identities = BuildHasherDefault<LowerHalf>;

#[derive(Clone, Copy, Default)]
pub(super) struct LowerHalf(u64);

impl Hasher for LowerHalf {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, identity: u128) {
        self.0 = identity as u64;
    }
}

pub(super) fn identity<const N: usize>(entry: &Entry<'_, N>, seeds: &[u64; N]) -> u128 {
    let mut sum = [u64::from(entry.priority); 2];
    for at in 0..N {
        let (value, mask) = (entry.value[at], entry.mask[at]);
        sum[0] = fold(sum[0] ^ value, seeds[at]) ^ mask;
        sum[1] = fold(sum[1] ^ mask ^ seeds[N - 1 - at], seeds[at]) ^ value;
    }
    u128::from(sum[0]) << 64 | u128::from(sum[1])
}
