//! The memory of an arena: of this process alone, or one that another process can map, too.
//!
//! Memory that is lent to the kernel by AF_XDP sockets outlives the process if another one takes the sockets over:
//! then both map the same file in memory (memfd_create(2)), and the kernel goes on with its pages.
//!
//! Thread-safety: plain memory.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::PAGE;

/// Bytes of a huge page. Frames lie in different pages of 4 KiB each, and a processor remembers the places of about 2,000
/// pages only; in a virtual machine, finding the place of another page takes as long as several cache misses.
const HUGE: usize = 2 << 20;

/// Memory, filled with zeros when it is new, that starts on a page.
pub(crate) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    /// The file that others can map; `None` if the memory is from the heap.
    file: Option<OwnedFd>,
}

impl Memory {
    /// `size` bytes of the heap, or the layout that could not be allocated. Memory of at least one huge page is in huge
    /// pages where the kernel has some.
    pub(crate) fn of_heap(size: usize) -> Result<Self, Layout> {
        if size < HUGE {
            let layout = layout(size, PAGE);
            // SAFETY: the size is not zero.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(layout)?;
            return Ok(Self { base, layout, file: None });
        }
        let layout = layout(size, HUGE);
        // SAFETY: the size is not zero. The memory is advised before the first access, which makes the kernel choose its
        // pages; it lies within the allocation, which is of bytes that have no value yet.
        let base = unsafe {
            let base = NonNull::new(alloc(layout)).ok_or(layout)?;
            // Without huge pages the memory is as usable, only slower.
            #[cfg(not(miri))]
            let _refused = madvise(base.as_ptr().cast(), size & !(HUGE - 1), Advice::LinuxHugepage);
            base.as_ptr().write_bytes(0, size);
            base
        };
        Ok(Self { base, layout, file: None })
    }

    /// `size` bytes of a new file in memory.
    pub(crate) fn shared(size: usize) -> io::Result<Self> {
        let file = memfd_create("flowyard-pool", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size as u64)?;
        Self::map(file, size)
    }

    /// The memory of another process, which has `size` bytes there.
    pub(crate) fn adopt(file: OwnedFd, size: usize) -> io::Result<Self> {
        let found = fstat(&file)?.st_size;
        if u64::try_from(found).ok() != Some(size as u64) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the pool has {found} bytes instead of {size}"),
            ));
        }
        Self::map(file, size)
    }

    fn map(file: OwnedFd, size: usize) -> io::Result<Self> {
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address chosen by the kernel affects no existing memory; the file has this size.
        let base = unsafe { mmap(std::ptr::null_mut(), size, protection, flags, &file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, layout: layout(size, PAGE), file: Some(file) })
    }

    pub(crate) const fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The file that another process can map.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("2^26 buffers of 64 KiB")
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Self { base, layout, file } = self;
        // SAFETY: allocated or mapped with this layout, and freed once.
        unsafe {
            match file {
                None => dealloc(base.as_ptr(), *layout),
                Some(_) => drop(munmap(base.as_ptr().cast(), layout.size())),
            }
        }
    }
}
