//! Memory that two processes share, and the eventfd by which one wakes the other.
//!
//! The other process may write to the memory at any time. So no reference into it exists, except to atomic
//! integers: bytes are copied in and out, and what was copied is what is checked.
#![allow(unsafe_code, reason = "memory shared with another process")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU64};

use flowyard_mem::Access;
use rustix::fs::{MemfdFlags, SealFlags};

/// The size of a huge page.
const HUGE: usize = 2 << 20;
/// Larger regions are not put into huge pages: that gives memory to all parts of them, also to those which the peer never uses.
const HUGE_MOST: usize = 64 << 20;

/// Mapped memory of a memfd. If it has at least the size of a huge page, it is in huge pages where the kernel has some: frames
/// are spread over so much memory that each would need an entry of the processor's page tables that is in no cache.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    /// The addresses that were reserved, to align the mapping.
    reserved: (NonNull<u8>, usize),
}

// SAFETY: plain memory that is not bound to a thread.
unsafe impl Send for Region {}
// SAFETY: shared references give atomic integers and copies only.
unsafe impl Sync for Region {}

impl Region {
    /// New memory of zeros, with the descriptor for the other process. It can never shrink.
    pub(crate) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create(
            "flowyard-memif",
            MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC,
        )?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK)?;
        Ok((Self::map(&fd, len)?, fd))
    }

    /// Maps the memory that another process has created.
    ///
    /// # Errors
    /// When it is smaller than `len`, or can shrink: reading what is no longer there would end this process.
    pub(crate) fn adopt(fd: &OwnedFd, len: u64) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| {
            io::Error::other("its memory is not a memfd that was created with sealing")
        })?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::other("its memory can shrink: it lacks F_SEAL_SHRINK"));
        }
        let size = rustix::fs::fstat(fd)?.st_size as u64;
        if size < len {
            let what = format!("its memory has {size} bytes, and the message says {len}");
            return Err(io::Error::other(what));
        }
        let len = usize::try_from(len).map_err(io::Error::other)?;
        Self::map(fd, len)
    }

    fn map(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        let is_huge = (HUGE..=HUGE_MOST).contains(&len);
        let bytes = len.checked_add(if is_huge { HUGE } else { 0 });
        let bytes = bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let mapped = |base| match base {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            base => NonNull::new(base.cast::<u8>()).ok_or_else(io::Error::last_os_error),
        };
        // SAFETY: a new mapping at an address chosen by the kernel affects no existing memory.
        let start = mapped(unsafe {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, kind, -1, 0)
        })?;
        let skip = if is_huge { start.as_ptr().align_offset(HUGE) } else { 0 };
        // SAFETY: inside the reserved addresses, which have `HUGE` bytes more than the mapping.
        let at = unsafe { start.as_ptr().add(skip) };
        // SAFETY: replaces a part of the reserved addresses, which nothing else uses.
        let base = mapped(unsafe {
            let (protection, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
            libc::mmap(at.cast(), len, protection, kind, fd.as_raw_fd(), 0)
        });
        let mut region = Self { base: start, len, reserved: (start, bytes) };
        region.base = base?; // if it failed, dropping the region releases the addresses
        if is_huge {
            // SAFETY: inside the mapping. If the kernel refuses, it stays in small pages.
            let _refused =
                unsafe { libc::madvise(at.cast(), len & !(HUGE - 1), libc::MADV_COLLAPSE) };
        }
        Ok(region)
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether `count` bytes from `at` on lie in the region.
    #[inline]
    pub(crate) fn has(&self, at: usize, count: usize) -> bool {
        at.checked_add(count).is_some_and(|end| end <= self.len)
    }

    /// # Panics
    /// When `at` is odd or outside of the region.
    #[inline]
    pub(crate) fn u16(&self, at: usize) -> &AtomicU16 {
        assert!(at.is_multiple_of(2) && self.has(at, 2), "outside of the region");
        // SAFETY: inside the mapping, which begins at a page, and aligned; every access of this process to shared
        // integers is atomic.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// # Panics
    /// When `at` is no multiple of 8 or outside of the region.
    #[inline]
    pub(crate) fn u64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && self.has(at, 8), "outside of the region");
        // SAFETY: as in `u16`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Copies bytes out; `false` if they do not lie in the region.
    #[inline]
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let has = self.has(at, to.len());
        if has {
            // SAFETY: inside the mapping, as checked, and `to` is memory of this process alone. If the other process
            // writes meanwhile, which it may not, the copy has some of both; any bytes are valid.
            unsafe { flowyard_mem::copy(self.base.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
        }
        has
    }

    /// Copies bytes in; `false` if they do not lie in the region.
    #[inline]
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> bool {
        let has = self.has(at, from.len());
        if has {
            // SAFETY: as in `read`.
            unsafe { flowyard_mem::copy(from.as_ptr(), self.base.as_ptr().add(at), from.len()) };
        }
        has
    }

    /// Prefetches the cache line at `at`.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, access: Access) {
        flowyard_mem::prefetch(self.base.as_ptr().wrapping_add(at), access);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let (start, bytes) = self.reserved;
        // SAFETY: reserved in `map` with this length, which includes the mapping, and unmapped once.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}
