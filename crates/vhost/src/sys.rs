//! Memory of a guest, mapped into this process.
//!
//! The guest may write to the memory at any time. So no reference into it exists, except to atomic integers:
//! bytes are copied in and out, and what was copied is what is checked. The front end may also truncate the
//! file behind the memory; [`crate::guard`] keeps that from ending this process.
#![allow(unsafe_code, reason = "memory shared with another process")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::guard;

/// A part of a file, mapped. Positions count from the first byte of that part.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// What `mmap` returned.
    base: NonNull<u8>,
    mapped: usize,
    /// Where the part begins in the mapping.
    skip: usize,
    len: usize,
    watch: guard::Watch,
}

// SAFETY: plain memory that is not bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: shared references give atomic integers and copies only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on.
    ///
    /// # Errors
    /// When the file is shorter, or cannot be mapped.
    pub(crate) fn new(file: &impl AsFd, offset: u64, len: u64) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        let size = stat.st_size as u64;
        let end = offset.checked_add(len).ok_or_else(|| io::Error::other("it is too large"))?;
        if size < end {
            let what = format!("its file has {size} bytes, and {end} are announced");
            return Err(io::Error::other(what));
        }
        // Files in huge pages are mapped and unmapped in whole pages, whose size is the file's block size.
        let page = (stat.st_blksize as u64).max(4096);
        if !page.is_power_of_two() {
            return Err(io::Error::other(format!("its file has blocks of {page} bytes")));
        }
        let from = offset & !(page - 1);
        let to_usize = |value: u64| usize::try_from(value).map_err(io::Error::other);
        let (skip, len) = (to_usize(offset - from)?, to_usize(len)?);
        let mapped = to_usize((end - from).next_multiple_of(page))?;
        let watch = guard::Watch::new()?;
        // SAFETY: a new mapping at an address chosen by the kernel affects no existing memory.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let fd = file.as_fd().as_raw_fd();
            libc::mmap(ptr::null_mut(), mapped, protection, libc::MAP_SHARED, fd, from as i64)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        watch.begin(base.as_ptr() as usize, mapped);
        Ok(Self { base, mapped, skip, len, watch })
    }

    /// Whether the file was truncated below a part that was then accessed. The bytes are zeros since.
    pub(crate) fn is_lost(&self) -> bool {
        self.watch.is_lost()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether `count` bytes from `at` on lie in the mapping.
    #[inline]
    pub(crate) fn has(&self, at: usize, count: usize) -> bool {
        at.checked_add(count).is_some_and(|end| end <= self.len)
    }

    /// Whether integers of `align` bytes at `at` are aligned.
    pub(crate) fn is_aligned(&self, at: usize, align: usize) -> bool {
        (self.base.as_ptr() as usize + self.skip).wrapping_add(at).is_multiple_of(align)
    }

    /// The address of `at`, for accesses of `count` bytes.
    ///
    /// # Panics
    /// When these do not lie in the mapping, or are not aligned.
    #[inline]
    fn place(&self, at: usize, count: usize) -> *mut u8 {
        assert!(self.has(at, count), "outside of the mapping");
        // SAFETY: inside the mapping, as checked.
        let place = unsafe { self.base.as_ptr().add(self.skip + at) };
        assert!((place as usize).is_multiple_of(count), "not aligned");
        place
    }

    /// # Panics
    /// When `at` is not aligned or outside of the mapping.
    #[inline]
    pub(crate) fn u16(&self, at: usize) -> &AtomicU16 {
        // SAFETY: inside the mapping and aligned; every access of this process to shared integers is atomic.
        unsafe { AtomicU16::from_ptr(self.place(at, 2).cast()) }
    }

    /// # Panics
    /// As [`Self::u16`].
    #[inline]
    pub(crate) fn u32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as in `u16`.
        unsafe { AtomicU32::from_ptr(self.place(at, 4).cast()) }
    }

    /// # Panics
    /// As [`Self::u16`].
    #[inline]
    pub(crate) fn u64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as in `u16`.
        unsafe { AtomicU64::from_ptr(self.place(at, 8).cast()) }
    }

    /// Copies bytes out; `false` if they do not lie in the mapping.
    #[inline]
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let has = self.has(at, to.len());
        if has {
            // SAFETY: inside the mapping, as checked, and `to` is memory of this process alone. If the guest
            // writes meanwhile, which it may not, the copy has some of both; any bytes are valid.
            unsafe {
                let from = self.base.as_ptr().add(self.skip + at);
                ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
            }
        }
        has
    }

    /// Copies bytes in; `false` if they do not lie in the mapping.
    #[inline]
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> bool {
        let has = self.has(at, from.len());
        if has {
            // SAFETY: as in `read`.
            unsafe {
                let to = self.base.as_ptr().add(self.skip + at);
                ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
            }
        }
        has
    }

    /// Asks for the cache line at `at`.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint, which reads and writes nothing that a program sees; any address is allowed.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let place = self.base.as_ptr().wrapping_add(self.skip).wrapping_add(at);
            _mm_prefetch::<_MM_HINT_T0>(place.cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = at;
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watch.end();
        // SAFETY: mapped in `new` with this length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
