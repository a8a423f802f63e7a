//! The system calls that all live ports make: sockets, options, interface requests, mappings.
//!
//! Thread-safety: file descriptors may be used from any thread; a mapping is shared memory that
//! whoever holds it reads and writes by its own rules.
#![allow(unsafe_code, reason = "system calls: the C library's interface is unsafe by nature")]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libc::{c_int, c_ulong, c_void, socklen_t};

/// A value that is bytes and nothing else: the kernel may write any bits into it.
///
/// # Safety
/// Every bit pattern is a valid value, and there are no pointers that safe code would follow.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($kind:ty),* $(,)?) => {
        // SAFETY: numbers, and structures of numbers.
        $(unsafe impl Plain for $kind {})*
    };
}
plain!(c_int, u32, u64, u16);
plain!(libc::sockaddr_ll, libc::packet_mreq, libc::tpacket_req, libc::tpacket_stats);
plain!(libc::sockaddr_xdp, libc::xdp_mmap_offsets, libc::xdp_statistics, libc::xdp_options);
plain!(libc::xdp_umem_reg);

/// A value with all bits zero.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: every bit pattern of a plain value is valid, zero among them.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// The result of a call that gives -1 for an error.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new socket, which never waits and is not handed to other programs.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe {
        libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol)
    })?;
    // SAFETY: the call succeeded, so `fd` is open, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// setsockopt(2).
pub(crate) fn set<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the size are those of `value`, which the kernel only reads.
    check(unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(fd.as_raw_fd(), level, name, value, size_of::<T>() as socklen_t)
    })?;
    Ok(())
}

/// getsockopt(2); bytes that the kernel does not know of are zero.
pub(crate) fn get<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int) -> io::Result<T> {
    let (mut value, mut size) = (zeroed::<T>(), size_of::<T>() as socklen_t);
    // SAFETY: the kernel writes at most `size` bytes into `value`, and any bits are a valid one.
    check(unsafe {
        let to = std::ptr::from_mut(&mut value).cast();
        libc::getsockopt(fd.as_raw_fd(), level, name, to, &raw mut size)
    })?;
    Ok(value)
}

/// bind(2).
pub(crate) fn bind<T: Plain>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    // SAFETY: the pointer and the size are those of `address`, which the kernel only reads.
    check(unsafe {
        let address = std::ptr::from_ref(address).cast();
        libc::bind(fd.as_raw_fd(), address, size_of::<T>() as socklen_t)
    })?;
    Ok(())
}

/// An interface request, as the C library's `ifreq`: a name and a union of 24 bytes, as bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Request {
    name: [u8; libc::IFNAMSIZ],
    pub(crate) value: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

impl Request {
    /// About the interface `name`; `None` if no interface can be called that.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let bytes = name.as_bytes();
        let odd = |b: &u8| *b == 0 || *b == b'/' || b.is_ascii_whitespace();
        if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.iter().any(odd) {
            return None;
        }
        let mut all = [0; libc::IFNAMSIZ];
        all[..bytes.len()].copy_from_slice(bytes);
        Some(Self { name: all, value: [0; 24] })
    }

    pub(crate) fn number(&self) -> i32 {
        i32::from_ne_bytes(*self.value.first_chunk().unwrap_or(&[0; 4]))
    }

    pub(crate) fn short(&self) -> u16 {
        u16::from_ne_bytes(*self.value.first_chunk().unwrap_or(&[0; 2]))
    }

    pub(crate) fn with(mut self, value: &[u8]) -> Self {
        let len = value.len().min(self.value.len());
        self.value[..len].copy_from_slice(&value[..len]);
        self
    }

    /// The name that the kernel wrote back.
    pub(crate) fn name(&self) -> String {
        let end = self.name.iter().position(|b| *b == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }
}

/// ioctl(2) of a request that reads or writes an `ifreq` of numbers: SIOCGIF*, SIOCSIF*, TUNSETIFF.
pub(crate) fn ask(fd: &impl AsRawFd, what: c_ulong, request: &mut Request) -> io::Result<()> {
    // SAFETY: these requests read and write one `ifreq`, which `request` is as large as; they
    // follow no pointers in it (none of SIOCETHTOOL's kind is made here).
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what as _, std::ptr::from_mut(request)) })?;
    Ok(())
}

/// Names of the interfaces there are.
pub(crate) fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list ends with an index of 0; each name is a C string of its own, valid until
    // the list is freed, which it is once.
    unsafe {
        let list = libc::if_nameindex();
        let mut at = list;
        while !at.is_null() && (*at).if_index != 0 {
            names.push(std::ffi::CStr::from_ptr((*at).if_name).to_string_lossy().into_owned());
            at = at.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}

/// Memory shared with the kernel, until dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory, bound to no thread; who reads and writes what is its users' affair.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives an address and a length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset` on, shared, touched at once.
    pub(crate) fn new(fd: &OwnedFd, len: usize, offset: i64) -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// `len` bytes of zeros that are no file's, touched at once.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
        );
        // SAFETY: as in `new`.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// Where it starts: a page.
    pub(crate) const fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}
