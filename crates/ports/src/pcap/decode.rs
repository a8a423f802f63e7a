//! What the decoders share: how far they got, why they stopped, and integers of either byte order.

use crate::error::Fault;

/// The progress of a decoder.
#[derive(Debug)]
pub(super) struct Step {
    /// Bytes of complete packets and blocks, which need not be shown again.
    pub(super) used: usize,
    pub(super) stop: Stop,
}

/// Why a decoder stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The burst is full.
    Full,
    /// The next element is incomplete: `need` bytes of it must be shown to continue. The element is
    /// named by `inside` and has at least `whole` bytes.
    More { inside: &'static str, need: usize, whole: u32 },
    /// The next element is damaged.
    Bad(Fault),
}

/// Stops because `need` bytes of a header or packet are needed.
pub(super) const fn more(inside: &'static str, need: usize) -> Stop {
    Stop::More { inside, need, whole: need as u32 }
}

/// Decodes a 16-bit integer.
pub(super) const fn u16_at(bytes: [u8; 2], big_endian: bool) -> u16 {
    if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
}

/// Decodes a 32-bit integer.
pub(super) const fn u32_at(bytes: [u8; 4], big_endian: bool) -> u32 {
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// The `N` bytes at `at`; the caller has checked that they exist.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..].first_chunk().copied().unwrap_or([0; N])
}
