//! The two hashes of Flow Director, each a product over GF(2) that needs no multiplication.
//!
//! The key stream is 42 bytes (the layout of [`super::Input`]), closed to a ring of 336 bits. The
//! hardware moves a 16-bit window along the ring for 351 steps and XORs the windows of those steps
//! at which the repeated 32-bit hash key has a one (comment in DPDK's `ixgbe_fdir.c`; `slow_model`
//! implements that form). Because the hash key repeats every 32 bits, words
//! that are 32 bits apart contribute in the same way, so all words but the first can be XORed
//! together in advance. The code below is this fast form.
//!
//! Invariant: linear: hash(a ^ b) = hash(a) ^ hash(b). Thread-safety: pure.

use serde::Serialize;

use super::memory::{Mode, Pballoc};

/// The hash key of the bucket hash, as both Linux drivers set it (FDIRHKEY).
const BUCKET_KEY: u32 = 0x3dad_14e2;
/// The hash key of the signature hash (FDIRSKEY).
const SIGNATURE_KEY: u32 = 0x174d_3614;
/// The signature is the low 15 bits of the signature hash.
const SIGNATURE_MASK: u16 = 0x7fff;

/// The hash input: a key folded to 64 bits. Keys with equal folds share one filter in signature
/// mode, for example keys with source and destination address exchanged, or 10.0.0.5:40000 and
/// 10.1.0.5:40001 to the same server. Bucket and signature together have rank 29, so the same holds
/// for folds that differ by 0x33333333, 0x55555555, 0x99999999 or any XOR of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Folded {
    /// `pool << 24 | flow type << 16 | VLAN TCI`.
    pub first: u32,
    /// The XOR of all other 32-bit words: addresses, ports, `flex << 16`.
    pub rest: u32,
}

impl Folded {
    /// The bucket hash, not yet reduced to the size of the table.
    #[must_use]
    #[inline]
    pub const fn bucket_raw(self) -> u16 {
        hash16::<BUCKET_KEY>(self)
    }

    /// The bucket: the low 11 to 15 bits of the bucket hash.
    #[must_use]
    #[inline]
    pub const fn bucket(self, mode: Mode, pballoc: Pballoc) -> u16 {
        self.bucket_raw() & pballoc.bucket_mask(mode)
    }

    /// All 16 bits of the signature hash, as DPDK stores it. The 16th bit does not distinguish more
    /// flows.
    #[must_use]
    #[inline]
    pub const fn signature_raw(self) -> u16 {
        hash16::<SIGNATURE_KEY>(self)
    }

    /// The 15-bit signature.
    #[must_use]
    #[inline]
    pub const fn signature(self) -> u16 {
        self.signature_raw() & SIGNATURE_MASK
    }

    /// FDIRHASH as the ATR of Linux writes it: `signature << 16` | 15 bits of bucket hash, for every
    /// size of the table.
    #[must_use]
    pub const fn atr_fdirhash(self) -> u32 {
        (self.signature() as u32) << 16 | self.bucket(Mode::Signature, Pballoc::K256) as u32
    }

    /// FDIRHASH of a perfect filter: `soft id << 16 | bucket`.
    #[must_use]
    pub const fn perfect_fdirhash(self, pballoc: Pballoc, soft_id: u16) -> u32 {
        (soft_id as u32) << 16 | self.bucket(Mode::Perfect, pballoc) as u32
    }
}

/// The product. Bit i of the hash key selects the window that starts at bit i + 16 of the fold, bit
/// 16 + i the window that starts at bit i. `first` is where the ring closes, so part of it is
/// counted twice, and the window of bit 0 does not contain it.
#[inline]
const fn hash16<const KEY: u32>(Folded { first, rest }: Folded) -> u16 {
    let high = rest ^ first ^ first >> 16;
    let without_first = rest.rotate_left(16);
    let low = without_first ^ first ^ first << 16;
    let mut hash = 0;
    if KEY & 1 == 1 {
        hash ^= without_first;
    }
    if KEY >> 16 & 1 == 1 {
        hash ^= high;
    }
    let mut i = 1;
    while i < 16 {
        if KEY >> i & 1 == 1 {
            hash ^= low >> i;
        }
        if KEY >> (16 + i) & 1 == 1 {
            hash ^= high >> i;
        }
        i += 1;
    }
    hash as u16
}

#[cfg(test)]
pub(super) const KEYS: (u32, u32) = (BUCKET_KEY, SIGNATURE_KEY);
