//! The memory of a TPACKET_V3 ring, and sending many frames by one call.
//!
//! A block belongs to the kernel or to us, as the status in its header says: that word is read and
//! written atomically, everything else only while the block is ours.
#![allow(unsafe_code, reason = "memory shared with the kernel, and a system call on pointers")]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{tpacket_block_desc, tpacket3_hdr};

use crate::live::sys::{Mapping, check, set};

/// The most frames that are sent by one call.
pub(super) const MOST: usize = 32;

/// The blocks of a ring.
#[derive(Debug)]
pub(super) struct Blocks {
    map: Mapping,
    size: usize,
}

impl Blocks {
    /// `map` in blocks of `size` bytes, a multiple of the page size.
    pub(super) const fn new(map: Mapping, size: usize) -> Self {
        Self { map, size }
    }

    pub(super) const fn count(&self) -> usize {
        self.map.len() / self.size
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        let at = (block % self.count()) * self.size;
        // SAFETY: a block starts on a page inside the mapping; the status in its header is a
        // 32-bit word on a multiple of 4, and both sides use it atomically.
        unsafe {
            let header = self.map.base().add(at).cast::<tpacket_block_desc>();
            AtomicU32::from_ptr(&raw mut (*header).hdr.bh1.block_status)
        }
    }

    /// If `block` is ours: how many frames it has, and where the first one stands.
    pub(super) fn open(&self, block: usize) -> Option<(u32, usize)> {
        // Acquire: what the kernel wrote into the block before it gave it to us.
        if self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let at = (block % self.count()) * self.size;
        // SAFETY: the header lies in the block, which is ours and has been written.
        let header = unsafe {
            let header = self.map.base().add(at).cast::<tpacket_block_desc>();
            (*header).hdr.bh1
        };
        Some((header.num_pkts, header.offset_to_first_pkt as usize))
    }

    /// Gives `block` back to the kernel.
    pub(super) fn give(&self, block: usize) {
        // Release: our reading of the block is over.
        self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// The frame header at `offset` of `block`, which is ours; `None` if it does not lie in it.
    pub(super) fn header(&self, block: usize, offset: usize) -> Option<tpacket3_hdr> {
        if offset.checked_add(size_of::<tpacket3_hdr>())? > self.size {
            return None;
        }
        let at = (block % self.count()) * self.size + offset;
        // SAFETY: in the block, as was checked; any bits make a header, and no alignment is asked.
        Some(unsafe { self.map.base().add(at).cast::<tpacket3_hdr>().read_unaligned() })
    }

    /// `len` bytes at `offset` of `block`, which is ours and stays so while they are borrowed;
    /// `None` if they do not lie in it.
    pub(super) fn bytes(&self, block: usize, offset: usize, len: usize) -> Option<&[u8]> {
        if offset.checked_add(len)? > self.size {
            return None;
        }
        let at = (block % self.count()) * self.size + offset;
        // SAFETY: in the block, as was checked. The kernel does not write a block that is ours,
        // and giving it back takes the ring mutably, which ends this borrow first.
        Some(unsafe { std::slice::from_raw_parts(self.map.base().add(at), len) })
    }
}

/// Has `fd` receive nothing: a filter that takes no byte of any frame.
pub(super) fn deafen(fd: &OwnedFd) -> io::Result<()> {
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

/// Has `fd` receive what comes.
pub(super) fn listen(fd: &OwnedFd) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
}

/// sendmmsg(2) on a bound socket: how many of `frames` went, and why not the next.
pub(super) fn send<'a>(
    fd: &OwnedFd,
    frames: impl Iterator<Item = &'a [u8]>,
) -> (usize, Option<io::Error>) {
    // SAFETY: all zero is a message without name, buffers and control data.
    let mut messages: [libc::mmsghdr; MOST] = unsafe { zeroed() };
    let mut buffers = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MOST];
    let mut count = 0;
    for ((buffer, message), frame) in buffers.iter_mut().zip(&mut messages).zip(frames) {
        *buffer = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (buffer, 1);
        count += 1;
    }
    if count == 0 {
        return (0, None);
    }
    // SAFETY: `count` messages, each with one buffer that is a borrowed slice; the kernel reads
    // the slices and writes only into the messages. All outlive the call.
    let sent = unsafe {
        libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    };
    match usize::try_from(sent) {
        Ok(sent) => (sent, None),
        Err(_) => (0, Some(io::Error::last_os_error())),
    }
}
