//! The memory of one socket: chunks that are written and read while they are ours.
//!
//! The only user, `Exchange`, keeps track of the chunks that belong to the kernel.

use std::io;
use std::sync::Arc;

use crate::live::sys::Mapping;
use flowyard_pool::Umem;

/// Chunks of [`Memory::CHUNK`] bytes.
#[derive(Debug)]
pub(crate) struct Memory(Arc<Mapping>);

impl Memory {
    /// Chunk size in bytes.
    pub(crate) const CHUNK: u32 = 2048;

    pub(crate) fn new(chunks: u32) -> io::Result<Self> {
        let len = chunks as usize * Self::CHUNK as usize;
        Mapping::anonymous(len).map(|map| Self(Arc::new(map)))
    }

    /// The memory as an argument for `Socket::open`.
    pub(crate) fn umem(&self) -> Umem {
        let Self(map) = self;
        // SAFETY: page-aligned, and valid as long as the mapping, which the value keeps alive;
        // `put` and `get` below access a chunk only while no socket has it.
        unsafe { Umem::new(map.base(), map.len(), Self::CHUNK, 0, Arc::clone(map) as _) }
    }

    /// Writes `bytes` into the chunk at `addr`, which is ours. Returns false if they do not fit.
    pub(crate) fn put(&mut self, addr: u64, bytes: &[u8]) -> bool {
        let at = addr as usize;
        let fits = bytes.len() <= Self::CHUNK as usize && at + bytes.len() <= self.0.len();
        if fits {
            // SAFETY: inside the mapping, as checked above, and in a chunk that the kernel does not
            // have.
            unsafe {
                let to = self.0.base().add(at);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
        fits
    }

    /// `len` bytes at `addr`, in a chunk that is ours while they are borrowed; empty if they do not
    /// lie in the memory.
    pub(crate) fn get(&self, addr: u64, len: u32) -> &[u8] {
        let (at, len) = (addr as usize, len as usize);
        if at.checked_add(len).is_none_or(|end| end > self.0.len()) {
            return &[];
        }
        // SAFETY: inside the mapping, as checked above, and the kernel does not write to our
        // chunks.
        unsafe { std::slice::from_raw_parts(self.0.base().add(at), len) }
    }
}
