//! Memory that can be registered with AF_XDP sockets.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Bytes in front of a received frame that an AF_XDP socket leaves for XDP programs
/// (`XDP_PACKET_HEADROOM` of the kernel).
pub const HEADROOM: usize = 256;

/// Memory that sockets receive into and transmit from, in chunks of equal size.
#[derive(Clone)]
pub struct Umem {
    base: *const u8,
    len: usize,
    chunk: u32,
    headroom: u32,
    /// Keeps the memory alive.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an address whose lifetime `_keep` assures; nothing is read or written through it here.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// `len` bytes from `base` on, in chunks of `chunk` bytes (2048 or 4096) of which sockets
    /// leave the first `headroom` alone.
    ///
    /// # Safety
    /// The memory starts on a page, is valid for reads and writes while `keep` lives, and a chunk
    /// whose address is given to a socket is not read or written by others until it comes back.
    #[must_use]
    pub unsafe fn new(
        base: *const u8,
        len: usize,
        chunk: u32,
        headroom: u32,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { base, len, chunk, headroom, _keep: keep }
    }

    /// The address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    /// Bytes in all.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "memory of no bytes cannot be registered")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Bytes of a chunk.
    #[must_use]
    pub const fn chunk_bytes(&self) -> u32 {
        self.chunk
    }

    /// Bytes at the start of a chunk that sockets leave alone.
    #[must_use]
    pub const fn headroom_bytes(&self) -> u32 {
        self.headroom
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Umem({} chunks of {} bytes)", self.len / self.chunk as usize, self.chunk)
    }
}
