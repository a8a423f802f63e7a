//! Memory that two processes share, and the eventfd by which one wakes the other.
//!
//! The other process may write to the memory at any time. So no reference into it exists, except to atomic
//! integers: bytes are copied in and out, and what was copied is what is checked.
#![allow(unsafe_code, reason = "memory shared with another process")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64};

use flowyard_mem::Access;
use rustix::fs::{MemfdFlags, SealFlags};

/// Mapped memory of a memfd.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
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
        // SAFETY: a new mapping at an address chosen by the kernel affects no existing memory.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
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

/// Pairs of words in a region, a power of two of them: the place of each was checked once.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    first: NonNull<[AtomicU64; 2]>,
    mask: u16,
    _region: Arc<Region>,
}

// SAFETY: as of `Region`, which it keeps mapped.
unsafe impl Send for Pairs {}
// SAFETY: shared references give atomic integers only.
unsafe impl Sync for Pairs {}

impl Pairs {
    /// `2^log2` pairs from `at` on, for a `log2` of no more than 15; `None` if they are not aligned or not in the region.
    pub(crate) fn new(region: Arc<Region>, at: usize, log2: u8) -> Option<Self> {
        let count = 1_u16.checked_shl(log2.into())?;
        if !at.is_multiple_of(8)
            || !region.has(at, size_of::<[AtomicU64; 2]>() * usize::from(count))
        {
            return None;
        }
        // SAFETY: inside the mapping.
        let first = unsafe { region.base.add(at) }.cast();
        Some(Self { first, mask: count - 1, _region: region })
    }

    /// The pair with this number, modulo their count.
    #[inline]
    pub(crate) fn get(&self, number: u16) -> &[AtomicU64; 2] {
        // SAFETY: one of the pairs that `new` found in the mapping, and aligned; every access of this process to shared
        // integers is atomic.
        unsafe { self.first.add(usize::from(number & self.mask)).as_ref() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
