//! The part of the receive packet buffer that holds filters, and the number of filters in it.

use schemars::JsonSchema;
use serde::Serialize;

/// What a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// The whole masked key; IPv4 only.
    Perfect,
    /// Bucket hash and 15-bit signature, so two flows can match the same filter. Used by ATR.
    Signature,
}

/// The part of the 512 KB receive packet buffer that is reserved for filters (FDIRCTRL.PBALLOC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub enum Pballoc {
    /// 64 KB: 2048 perfect or 8192 signature filters; the default of both Linux drivers.
    #[default]
    K64,
    /// 128 KB: 4096 perfect or 16384 signature filters.
    K128,
    /// 256 KB: 8192 perfect or 32768 signature filters.
    K256,
}

impl Pballoc {
    /// The register value: 1, 2 or 3.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::K64 => 1,
            Self::K128 => 2,
            Self::K256 => 3,
        }
    }

    /// Bytes of packet buffer that are no longer available to buffer frames.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        32 << 10 << self.code()
    }

    /// Number of hash buckets, equal to the number of filters that fit: 2, 4, 8 Ki in perfect mode;
    /// 8, 16, 32 Ki in signature mode.
    #[must_use]
    pub const fn buckets(self, mode: Mode) -> usize {
        match mode {
            Mode::Perfect => self.bytes() as usize / 32,
            Mode::Signature => self.bytes() as usize / 8,
        }
    }

    /// Number of filters that can be in use at once. In signature mode it is one less than fit
    /// (8191 at 64 KB; assumed by analogy for the larger sizes).
    #[must_use]
    pub const fn filters(self, mode: Mode) -> usize {
        match mode {
            Mode::Perfect => self.buckets(mode),
            Mode::Signature => self.buckets(mode) - 1,
        }
    }

    /// Mask of the low bits of the hash that select the bucket.
    #[must_use]
    pub const fn bucket_mask(self, mode: Mode) -> u16 {
        (self.buckets(mode) - 1) as u16
    }

    /// Number of locations that ixgbe offers to `ethtool -N`, counted from 0 (2046 at 64 KB).
    #[must_use]
    pub const fn locations(self) -> u32 {
        (1024 << self.code()) - 2
    }
}
