//! How much of the receive packet buffer the filters take, and how many filters fit into it.

use serde::Serialize;

/// What a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// The full masked key; IPv4 only.
    Perfect,
    /// Bucket hash and 15-bit signature: two flows may be one to it. What ATR uses.
    Signature,
}

/// The part of the 512 KB receive packet buffer that filters take (FDIRCTRL.PBALLOC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub enum Pballoc {
    /// 64 KB: 2048 perfect or 8192 signature filters; both Linux drivers' default.
    #[default]
    K64,
    /// 128 KB: 4096 or 16384.
    K128,
    /// 256 KB: 8192 or 32768.
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

    /// Bytes of packet buffer taken away from bursts.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        32 << 10 << self.code()
    }

    /// Hash buckets, as many as filters fit: 2, 4, 8 Ki in perfect mode, 8, 16, 32 Ki in
    /// signature mode.
    #[must_use]
    pub const fn buckets(self, mode: Mode) -> usize {
        match mode {
            Mode::Perfect => self.bytes() as usize / 32,
            Mode::Signature => self.bytes() as usize / 8,
        }
    }

    /// Filters that can be in use at once. In signature mode one less than fit (8191 at 64 KB;
    /// for the larger sizes by analogy).
    #[must_use]
    pub const fn filters(self, mode: Mode) -> usize {
        match mode {
            Mode::Perfect => self.buckets(mode),
            Mode::Signature => self.buckets(mode) - 1,
        }
    }

    /// The low bits of the hash that choose the bucket.
    #[must_use]
    pub const fn bucket_mask(self, mode: Mode) -> u16 {
        (self.buckets(mode) - 1) as u16
    }

    /// The locations that ixgbe lets `ethtool -N` use: 0 to this, not included (2046 at 64 KB).
    #[must_use]
    pub const fn locations(self) -> u32 {
        (1024 << self.code()) - 2
    }
}
