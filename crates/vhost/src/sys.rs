//! Memory of a guest, mapped into this process.
//!
//! The guest may write to the memory at any time. So no reference into it exists, except to atomic integers:
//! bytes are copied in and out, and what was copied is what is checked. The front end may also truncate the
//! file behind the memory; [`crate::guard`] keeps that from ending this process.
#![allow(unsafe_code, reason = "memory shared with another process")]

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use flowyard_mem::Access;

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

/// The file systems whose files are in memory, also those of `memfd_create`.
const IN_MEMORY: [rustix::fs::FsWord; 2] = [libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC];

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on.
    ///
    /// # Errors
    /// When the file is shorter, or cannot be mapped; or when it is not in memory. A page of another file system may take as long to
    /// read as the program behind it likes (FUSE), and a core of the data plane would wait for it.
    pub(crate) fn new(file: &impl AsFd, offset: u64, len: u64) -> io::Result<Self> {
        if !IN_MEMORY.contains(&rustix::fs::fstatfs(file)?.f_type) {
            return Err(io::Error::other(
                "its file is neither in tmpfs nor in hugetlbfs; give QEMU a memory-backend-memfd, or a mem-path in /dev/shm or \
                 /dev/hugepages",
            ));
        }
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

    /// The integer at `at`.
    ///
    /// # Panics
    /// When `at` is not aligned or outside of the mapping.
    #[cfg(feature = "guest")]
    pub(crate) fn u16(&self, at: usize) -> &AtomicU16 {
        assert!(self.has(at, 2), "outside of the mapping");
        let place: *mut u16 = self.base.as_ptr().wrapping_add(self.skip + at).cast();
        assert!(place.is_aligned(), "not aligned");
        // SAFETY: inside the mapping and aligned; every access of this process to shared integers is atomic.
        unsafe { AtomicU16::from_ptr(place) }
    }

    /// Copies bytes out; `false` if they do not lie in the mapping.
    #[inline(always)]
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let has = self.has(at, to.len());
        if has {
            // SAFETY: inside the mapping, as checked, and `to` is memory of this process alone. If the guest
            // writes meanwhile, which it may not, the copy has some of both; any bytes are valid.
            unsafe {
                let from = self.base.as_ptr().add(self.skip + at);
                flowyard_mem::copy(from, to.as_mut_ptr(), to.len());
            }
        }
        has
    }

    /// Copies bytes in; `false` if they do not lie in the mapping.
    #[inline(always)]
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> bool {
        let has = self.has(at, from.len());
        if has {
            // SAFETY: as in `read`.
            unsafe {
                let to = self.base.as_ptr().add(self.skip + at);
                flowyard_mem::copy(from.as_ptr(), to, from.len());
            }
        }
        has
    }

    /// Copies bytes in, unless the mapping has these bytes already. For headers of virtio-net: a buffer that the guest
    /// uses again mostly has the right one. If it is not written, its cache line remains in the cache of the guest's core,
    /// too, and the guest does not wait for it. The length is known when the program is compiled: so is the comparison.
    #[inline]
    pub(crate) fn write_if_changed<const N: usize>(&self, at: usize, bytes: [u8; N]) -> bool {
        let mut there = [0; N];
        self.read(at, &mut there) && (there == bytes || self.write(at, &bytes))
    }

    /// Prefetches the cache line at `at`.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, access: Access) {
        flowyard_mem::prefetch(self.base.as_ptr().wrapping_add(self.skip).wrapping_add(at), access);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watch.end();
        // SAFETY: mapped in `new` with this length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// An integer that two processes share.
///
/// # Safety
/// It is atomic, has no padding, and every value of its bytes is valid.
pub(crate) unsafe trait Integer {}
// SAFETY: atomic integers.
unsafe impl Integer for AtomicU16 {}
// SAFETY: as above.
unsafe impl Integer for AtomicU32 {}
// SAFETY: as above.
unsafe impl Integer for AtomicU64 {}

/// Integers that follow each other in a mapping, which exists as long as they do. Their place is checked once; each access is
/// one to a slice.
#[derive(Debug)]
pub(crate) struct Integers<T> {
    first: NonNull<T>,
    count: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: shared atomic integers, which any thread may use.
unsafe impl<T: Integer> Send for Integers<T> {}
// SAFETY: as above.
unsafe impl<T: Integer> Sync for Integers<T> {}

impl<T: Integer> Integers<T> {
    /// `count` integers from `at` on; `None` if they do not lie in the mapping, or are not aligned.
    pub(crate) fn new(mapping: &Arc<Mapping>, at: usize, count: usize) -> Option<Self> {
        if !mapping.has(at, count.checked_mul(size_of::<T>())?) {
            return None;
        }
        let first = NonNull::new(mapping.base.as_ptr().wrapping_add(mapping.skip + at).cast())?;
        first.is_aligned().then(|| Self { first, count, _mapping: Arc::clone(mapping) })
    }

    /// Prefetches the cache line of the integer at `at`. Any number is allowed.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, access: Access) {
        flowyard_mem::prefetch(self.first.as_ptr().wrapping_add(at), access);
    }
}

impl<T: Integer> Deref for Integers<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: inside the mapping and aligned, as checked in `new`; the mapping is kept, and every access of this process to
        // shared integers is atomic.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system in user space (FUSE) may never answer, and a disk takes milliseconds.
    #[test]
    fn files_outside_of_the_memory_are_refused() {
        let memory = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, 8192).unwrap();
        assert!(Mapping::new(&memory, 0, 8192).is_ok());
        // /proc is neither tmpfs nor hugetlbfs on any machine.
        let file = std::fs::File::open("/proc/self/maps").unwrap();
        let error = Mapping::new(&file, 0, 1).unwrap_err().to_string();
        assert!(error.starts_with("its file is neither in tmpfs nor in hugetlbfs;"), "{error}");
    }
}
