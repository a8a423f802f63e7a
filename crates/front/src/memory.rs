//! The memory of a map that the kernel shares with this process: words that either side writes.
#![allow(unsafe_code, reason = "a mapping is memory whose life the compiler does not know")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The memory of an array map.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is mapped until the value is dropped, and is accessed by atomic operations only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the `words` words of an array map.
    pub(crate) fn map(map: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let (bytes, prot) = (words * 8, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses; it overlaps nothing.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, prot, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(base.cast()) {
            Some(base) => Ok(Self { base, words }),
            None => Err(io::Error::other("a map at address 0")),
        }
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, is aligned to a page, and lives as long as `self`; words of any
        // bits are valid, and the other side changes them only as whole words.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no reference to it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * 8) };
    }
}
