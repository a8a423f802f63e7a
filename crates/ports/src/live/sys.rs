//! System calls shared by all ports on interfaces: sockets, options, interface requests, mappings.
//!
//! Thread-safety: file descriptors may be used from any thread; a mapping is memory shared with the
//! kernel, and its owner is responsible for synchronisation.
#![allow(unsafe_code, reason = "system calls: the C library's interface is unsafe by nature")]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libc::{c_int, c_ulong, c_void, socklen_t};

/// A plain value: the kernel may write any bits into it.
///
/// # Safety
/// Every bit pattern is a valid value, and there are no pointers that safe code would dereference.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($kind:ty),* $(,)?) => {
        // SAFETY: integers, and structures of integers.
        $(unsafe impl Plain for $kind {})*
    };
}
plain!(c_int, u32, u64, u16);
plain!(libc::sockaddr_ll, libc::packet_mreq, libc::tpacket_req, libc::tpacket_stats);
plain!(libc::sockaddr_xdp, libc::xdp_mmap_offsets, libc::xdp_statistics, libc::xdp_options);
plain!(libc::xdp_umem_reg);

/// A value with all bits zero.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: every bit pattern of a plain value is valid, including zero.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Converts the result of a call that returns -1 for an error.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new socket: non-blocking, and closed on exec.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe {
        libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol)
    })?;
    // SAFETY: the call succeeded, so `fd` is open and has no other owner.
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

/// getsockopt(2); bytes that the kernel does not write are zero.
pub(crate) fn get<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int) -> io::Result<T> {
    let (mut value, mut size) = (zeroed::<T>(), size_of::<T>() as socklen_t);
    // SAFETY: the kernel writes at most `size` bytes into `value`, and any bits are valid.
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

/// getsockname(2) of a packet socket.
pub(crate) fn bound_to(fd: &OwnedFd) -> io::Result<libc::sockaddr_ll> {
    let mut address = zeroed::<libc::sockaddr_ll>();
    let mut size = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: the kernel writes at most `size` bytes into `address`, and any bits are valid.
    check(unsafe {
        let to = std::ptr::from_mut(&mut address).cast();
        libc::getsockname(fd.as_raw_fd(), to, &raw mut size)
    })?;
    Ok(address)
}

/// An interface request with the layout of the C library's `ifreq`: a name and a union of 24 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Request {
    name: [u8; libc::IFNAMSIZ],
    pub(crate) value: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

impl Request {
    /// A request about the interface `name`; `None` if this is not a valid interface name.
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

    /// The name, as written by the kernel.
    pub(crate) fn name(&self) -> String {
        let end = self.name.iter().position(|b| *b == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }
}

/// ioctl(2) with a request that reads or writes an `ifreq` of integers: SIOCGIF*, SIOCSIF*,
/// TUNSETIFF.
pub(crate) fn ask(fd: &impl AsRawFd, what: c_ulong, request: &mut Request) -> io::Result<()> {
    // SAFETY: these requests read and write one `ifreq`, and `request` has its size. They do not
    // follow pointers in it (requests such as SIOCETHTOOL are not used here).
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what as _, std::ptr::from_mut(request)) })?;
    Ok(())
}

/// The names of all interfaces.
pub(crate) fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list ends with an index of 0; each name is a C string that is valid until the
    // list is freed, which happens once.
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

// SAFETY: plain memory that is not bound to a thread; the users synchronise their accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference provides only an address and a length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset` on, shared and prefaulted.
    pub(crate) fn new(fd: &OwnedFd, len: usize, offset: i64) -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address chosen by the kernel affects no existing memory.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// Maps `len` anonymous bytes of zeros, prefaulted.
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

    /// The start address, which is page-aligned.
    pub(crate) const fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` or `anonymous` with this length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}
