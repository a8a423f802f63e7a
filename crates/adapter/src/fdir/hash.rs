//! The two hashes of Flow Director: one multiply-free product over GF(2).
//!
//! The key stream is 42 bytes (the layout of [`super::Input`]). The hardware slides a 16-bit
//! window over the stream, bent into a ring of 336 bits, 351 steps far, and XORs the windows
//! whose step falls on a one of the 32-bit hash key, repeated (comment in DPDK's `ixgbe_fdir.c`;
//! [`super::twin`] is that form). Because 32 divides most of the ring, words 32 bits apart get
//! the same treatment: all but the first may be XORed together before. That is the fast form.
//!
//! Invariant: linear: hash(a ^ b) = hash(a) ^ hash(b). Thread-safety: pure.

use serde::Serialize;

use super::memory::{Mode, Pballoc};

/// The hash key of the bucket hash, as both Linux drivers set it (FDIRHKEY).
const BUCKET_KEY: u32 = 0x3dad_14e2;
/// The hash key of the signature hash (FDIRSKEY).
const SIGNATURE_KEY: u32 = 0x174d_3614;
/// A signature has 15 bits.
const SIGNATURE_MASK: u16 = 0x7fff;

/// All that the hashes see of a key. Two keys with equal folds are one filter in signature mode:
/// swapped addresses; 10.0.0.5:40000 and 10.1.0.5:40001 to one server; and, since bucket and
/// signature together have rank 29, folds that differ by 0x33333333, 0x55555555, 0x99999999 or
/// any XOR of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Folded {
    /// pool << 24 | flow type << 16 | VLAN TCI.
    pub first: u32,
    /// The XOR of every other 32-bit word: addresses, ports, flex << 16.
    pub rest: u32,
}

impl Folded {
    /// The bucket hash before it is cut to the table's size.
    #[must_use]
    #[inline]
    pub const fn bucket_raw(self) -> u16 {
        hash16::<BUCKET_KEY>(self)
    }

    /// The bucket: the bucket hash's low 11 to 15 bits.
    #[must_use]
    #[inline]
    pub const fn bucket(self, mode: Mode, pballoc: Pballoc) -> u16 {
        self.bucket_raw() & pballoc.bucket_mask(mode)
    }

    /// The signature hash, all 16 bits of it, as DPDK keeps it. The bit more says nothing new.
    #[must_use]
    #[inline]
    pub const fn signature_raw(self) -> u16 {
        hash16::<SIGNATURE_KEY>(self)
    }

    /// The signature, 15 bits.
    #[must_use]
    #[inline]
    pub const fn signature(self) -> u16 {
        self.signature_raw() & SIGNATURE_MASK
    }

    /// FDIRHASH as Linux's ATR writes it: signature << 16 | 15 bits of bucket hash, whatever the
    /// table's size.
    #[must_use]
    pub const fn atr_fdirhash(self) -> u32 {
        (self.signature() as u32) << 16 | self.bucket(Mode::Signature, Pballoc::K256) as u32
    }

    /// FDIRHASH of a perfect filter: soft id << 16 | bucket.
    #[must_use]
    pub const fn perfect_fdirhash(self, pballoc: Pballoc, soft_id: u16) -> u32 {
        (soft_id as u32) << 16 | self.bucket(Mode::Perfect, pballoc) as u32
    }
}

/// The product. Bit i of the hash key takes the window that starts i + 16 bits up the fold, bit
/// 16 + i the one that starts i bits up; `first` stands at the ring's seam, so part of it counts
/// twice and the window of bit 0 misses it.
#[inline]
const fn hash16<const KEY: u32>(Folded { first, rest }: Folded) -> u16 {
    let high = rest ^ first ^ first >> 16;
    let seamless = rest.rotate_left(16);
    let low = seamless ^ first ^ first << 16;
    let mut hash = 0;
    if KEY & 1 == 1 {
        hash ^= seamless;
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
