//! The memory of a TPACKET_V2 ring, and transmission of many frames per call.
//!
//! The status word in its header says whether a slot belongs to the kernel or to us. That word is
//! read and written atomically, everything else only while the slot is ours.
#![allow(unsafe_code, reason = "memory shared with the kernel, and a system call on pointers")]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::tpacket2_hdr;

use flowyard_wire::Offload;

use crate::live::sys::{Mapping, check, set};

/// Maximum number of frames per call.
pub(super) const MOST: usize = 32;

/// The slots of a ring, with one frame each.
#[derive(Debug)]
pub(super) struct Slots {
    map: Mapping,
    size: usize,
}

impl Slots {
    /// Divides `map` into slots of `size` bytes, a multiple of 16.
    pub(super) const fn new(map: Mapping, size: usize) -> Self {
        Self { map, size }
    }

    pub(super) const fn bytes_in_all(&self) -> usize {
        self.map.len()
    }

    pub(super) const fn slot_bytes(&self) -> usize {
        self.size
    }

    pub(super) const fn count(&self) -> usize {
        self.map.len() / self.size
    }

    /// The offset of `slot`.
    const fn at(&self, slot: usize) -> usize {
        (slot % self.count()) * self.size
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: a slot begins at a multiple of 16 inside the mapping, with a header whose first
        // word is its status; both sides access it atomically.
        unsafe { AtomicU32::from_ptr(self.map.base().add(self.at(slot)).cast()) }
    }

    /// The header of `slot`, if it is ours.
    pub(super) fn open(&self, slot: usize) -> Option<tpacket2_hdr> {
        // Acquire: makes visible what the kernel wrote into the slot before it passed it to us.
        if self.status(slot).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the header lies in the slot, which is ours; any bits are a valid header.
        Some(unsafe { self.map.base().add(self.at(slot)).cast::<tpacket2_hdr>().read() })
    }

    /// Returns `slot` to the kernel.
    pub(super) fn give(&self, slot: usize) {
        // Release: all our reads of the slot precede this store.
        self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// `len` bytes at `offset` of `slot`, which is ours while they are borrowed; `None` if they do
    /// not lie in the slot.
    pub(super) fn bytes(&self, slot: usize, offset: usize, len: usize) -> Option<&[u8]> {
        if offset.checked_add(len)? > self.size {
            return None;
        }
        // SAFETY: inside the slot, as checked above. The kernel does not write to a slot that is
        // ours, and returning it needs the ring mutably, which ends this borrow first.
        Some(unsafe {
            std::slice::from_raw_parts(self.map.base().add(self.at(slot) + offset), len)
        })
    }
}

/// recvmsg(2) without waiting; returns the number of bytes written to `parts`, one after another.
pub(super) fn receive(fd: &OwnedFd, parts: [&mut [u8]; 3]) -> io::Result<usize> {
    let mut buffers =
        parts.map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
    // SAFETY: all zero bytes are a valid message without name, buffers and control data.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (buffers.as_mut_ptr(), buffers.len());
    // SAFETY: the kernel writes only into the buffers, each of which is borrowed mutably and not longer than its slice.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Attaches a filter to `fd` that drops every frame.
pub(super) fn drop_all(fd: &OwnedFd) -> io::Result<()> {
    let mut nothing =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    // SAFETY: the pointer and the size are those of `program`, which names one instruction; the
    // kernel copies both before it returns.
    check(unsafe {
        let (value, size) = (std::ptr::from_ref(&program).cast(), size_of::<libc::sock_fprog>());
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
        libc::setsockopt(fd.as_raw_fd(), level, name, value, size as libc::socklen_t)
    })
    .map(drop)
}

/// Detaches the filter from `fd`.
pub(super) fn listen(fd: &OwnedFd) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
}

/// sendmmsg(2) on a bound socket; returns how many of `frames` were sent, and the error, if any. With `has_header`,
/// each is preceded by the virtio-net header of its offload.
pub(super) fn send<'a>(
    fd: &OwnedFd,
    has_header: bool,
    frames: impl Iterator<Item = (Offload, &'a [u8])>,
) -> (usize, Option<io::Error>) {
    // SAFETY: all zero bytes are a valid message without name, buffers and control data.
    let mut messages: [libc::mmsghdr; MOST] = unsafe { zeroed() };
    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let (mut buffers, mut headers) = ([[none; 2]; MOST], [[0; Offload::VIRTIO_LEN]; MOST]);
    let slots = buffers.iter_mut().zip(&mut headers).zip(&mut messages);
    let mut count = 0;
    for (((buffer, header), message), (offload, frame)) in slots.zip(frames) {
        buffer[1] =
            libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        if has_header {
            *header = offload.to_virtio();
            buffer[0] = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        }
        let used = &mut buffer[usize::from(!has_header)..];
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (used.as_mut_ptr(), used.len());
        count += 1;
    }
    if count == 0 {
        return (0, None);
    }
    // SAFETY: `count` messages, each with a borrowed slice and perhaps a header, which do not move; the kernel
    // reads these and writes only into the messages. All outlive the call.
    let sent = unsafe {
        libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    };
    match usize::try_from(sent) {
        Ok(sent) => (sent, None),
        Err(_) => (0, Some(io::Error::last_os_error())),
    }
}
