//! The second, non-linear hash: it decides where tables place a key.
//!
//! The Toeplitz hash is linear over GF(2): the flows of a load generator (sequential addresses and
//! ports) span a small vector space, and so do their hashes, so that buckets chosen by Toeplitz bits
//! overflow at half load. Tables therefore mix the words of the key with 64 x 64 -> 128 bit products,
//! under a key that senders do not know: without it nobody can compute flows that share a bucket. The key's
//! words are added to those of the flow before any product, so that no choice of a flow makes a factor 0.

use flowyard_frame::{FlowKey, Rng};

/// A seeded hash over the 64-bit words of a key.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    seed: [u64; 8],
}

impl Mix {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Rng::new(seed);
        Self { seed: std::array::from_fn(|_| random.bits() | 1) }
    }

    /// The hash of the words 0 to 4 and 6: addresses, ports, protocol, EtherType, VLAN tag.
    #[inline]
    pub(crate) fn slim(&self, w: &[u64; 6]) -> u64 {
        fold(self.sum(w), self.seed[5])
    }

    /// The hash of a whole key: the slim words, and words 5 and 7.
    #[inline]
    pub(crate) fn whole(&self, w: &[u64; 6], rest: &[u64; 2]) -> u64 {
        let rest = fold(rest[0] ^ self.seed[6], rest[1] ^ self.seed[7]);
        fold(self.sum(w) ^ rest, self.seed[5])
    }

    #[inline]
    fn sum(&self, w: &[u64; 6]) -> u64 {
        let s = &self.seed;
        let addresses = fold(w[0] ^ s[0], w[1] ^ s[1]) ^ fold(w[2] ^ s[2], w[3] ^ s[3]);
        addresses ^ w[4] ^ w[5].wrapping_mul(s[4])
    }
}

/// The XOR of both halves of the product: every bit of `a` and `b` affects every bit of the result.
#[must_use]
#[inline]
pub const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// The words of a key: words 0 to 4 and 6; and words 5 and 7 (MAC addresses, input port, flexible
/// bytes and tunnel), which few tables match on.
#[inline]
pub(crate) fn words(key: &FlowKey) -> ([u64; 6], [u64; 2]) {
    let w: [u64; 8] = zerocopy::transmute!(*key);
    ([w[0], w[1], w[2], w[3], w[4], w[6]], [w[5], w[7]])
}

/// The inverse of [`words`].
pub(crate) fn unwords(w: &[u64; 6], rest: &[u64; 2]) -> FlowKey {
    let all: [u64; 8] = [w[0], w[1], w[2], w[3], w[4], rest[0], w[5], rest[1]];
    zerocopy::transmute!(all)
}
