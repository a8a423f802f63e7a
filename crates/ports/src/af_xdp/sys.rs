//! The rings of an AF_XDP socket, its memory, and bpf(2).
//!
//! ```text
//!  producer ──> [ . . x x x . . ] ──> consumer      indices increase without limit and are masked
//!                     ^     ^ producer's index, written by one side, read by the other
//!                     └ consumer's index
//! ```
//!
//! Each side writes its own index (release) and reads the other's (acquire). The entries between
//! the indices belong to the consumer, all others to the producer.
#![allow(unsafe_code, reason = "memory shared with the kernel, and system calls on pointers")]

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use flowyard_pool::Umem;
use libc::{c_int, c_long, xdp_ring_offset};

use crate::live::sys::{Mapping, Plain, check, zeroed};

mod memory;

/// The capabilities that AF_XDP needs.
pub(super) const CAPABILITY: &str = "CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF";

pub(super) use memory::Memory;

/// The request that registers `umem`.
pub(super) fn request(umem: &Umem) -> libc::xdp_umem_reg {
    libc::xdp_umem_reg {
        addr: umem.address(),
        len: umem.len() as u64,
        chunk_size: umem.chunk_bytes(),
        headroom: umem.headroom_bytes(),
        ..zeroed()
    }
}

/// A descriptor in a ring, with the kernel's layout (struct xdp_desc).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(super) struct RawDesc {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

// SAFETY: integers only.
unsafe impl Plain for RawDesc {}

/// One side of a ring.
#[derive(Debug)]
pub(super) struct Ring<T> {
    map: Mapping,
    offsets: [usize; 3],
    entries: usize,
    mask: u32,
    /// Our index, and the other side's index as last read.
    mine: u32,
    theirs: u32,
    kind: PhantomData<T>,
}

impl<T: Plain> Ring<T> {
    /// Maps the ring of `size` entries (a power of two) at page offset `page` of the socket.
    pub(super) fn map(
        fd: &OwnedFd,
        size: u32,
        at: &xdp_ring_offset,
        page: i64,
    ) -> io::Result<Self> {
        let entries = at.desc as usize;
        let map = Mapping::new(fd, entries + size as usize * size_of::<T>(), page)?;
        let offsets = [at.producer, at.consumer, at.flags].map(|at| at as usize);
        // Check the layout given by the kernel, which everything below relies on.
        let sound = offsets.iter().all(|at| at + 4 <= map.len() && at % 4 == 0)
            && entries.is_multiple_of(align_of::<T>())
            && size.is_power_of_two();
        if !sound {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { map, offsets, entries, mask: size - 1, mine: 0, theirs: 0, kind: PhantomData })
    }

    /// Goes on as the producer, where another process has stopped.
    pub(super) fn go_on_producing(&mut self) {
        (self.mine, self.theirs) = (self.index(0), self.index(1));
    }

    /// Goes on as the consumer, where another process has stopped.
    pub(super) fn go_on_consuming(&mut self) {
        (self.mine, self.theirs) = (self.index(1), self.index(0));
    }

    fn index(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Acquire)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned, as checked in `map`; both sides access it
        // atomically.
        unsafe { AtomicU32::from_ptr(self.map.base().add(self.offsets[at]).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: the masked index is less than the size, and the mapping holds `size` entries.
        unsafe { self.map.base().add(self.entries).cast::<T>().add((index & self.mask) as usize) }
    }

    /// Whether the kernel must be woken to process this ring.
    pub(super) fn wants_wakeup(&self) -> bool {
        self.word(2).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// For the producer: the number of free entries.
    #[inline]
    pub(super) fn room(&mut self) -> u32 {
        let room = |ring: &Self| ring.mask + 1 - ring.mine.wrapping_sub(ring.theirs);
        if room(self) <= self.mask / 2 {
            self.theirs = self.word(1).load(Ordering::Acquire);
        }
        room(self)
    }

    /// For the producer: writes an entry, which must be free. It becomes visible with
    /// [`Ring::submit`].
    #[inline]
    pub(super) fn put(&mut self, value: T) {
        // SAFETY: the entry is free, so it does not belong to the consumer.
        unsafe { self.entry(self.mine).write(value) };
        self.mine = self.mine.wrapping_add(1);
    }

    /// For the producer: makes the written entries visible.
    #[inline]
    pub(super) fn submit(&self) {
        self.word(0).store(self.mine, Ordering::Release);
    }

    /// For the producer: the number of entries that the consumer has not taken.
    #[inline]
    pub(super) fn pending(&mut self) -> u32 {
        self.theirs = self.word(1).load(Ordering::Acquire);
        self.mine.wrapping_sub(self.theirs)
    }

    /// For the consumer: whether there is an entry.
    pub(super) fn has_some(&mut self) -> bool {
        if self.mine == self.theirs {
            self.theirs = self.word(0).load(Ordering::Acquire);
        }
        self.mine != self.theirs
    }

    /// For the consumer: takes an entry, if there is one. Its slot becomes free with
    /// [`Ring::release`].
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.mine == self.theirs {
            self.theirs = self.word(0).load(Ordering::Acquire);
            if self.mine == self.theirs {
                return None;
            }
        }
        // SAFETY: the producer's index is past this entry, so it is initialised and ours.
        let value = unsafe { self.entry(self.mine).read() };
        self.mine = self.mine.wrapping_add(1);
        Some(value)
    }

    /// For the consumer: frees the slots of all taken entries.
    #[inline]
    pub(super) fn release(&self) {
        self.word(1).store(self.mine, Ordering::Release);
    }
}

/// Wakes the kernel to process the transmit ring.
pub(super) fn wake_tx(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let sent = unsafe {
        let flags = libc::MSG_DONTWAIT;
        libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, flags, std::ptr::null(), 0)
    };
    check(sent.min(0) as c_int).map(drop)
}

/// Wakes the kernel to process the fill ring. Nothing is received this way; ENXIO means that the
/// socket is not bound.
pub(super) fn wake_rx(fd: &OwnedFd) -> io::Result<()> {
    let (null, flags) = (std::ptr::null_mut(), libc::MSG_DONTWAIT);
    // SAFETY: no memory is passed.
    let got = unsafe {
        libc::recvfrom(fd.as_raw_fd(), null, 0, flags, null.cast(), std::ptr::null_mut())
    };
    check(got.min(0) as c_int).map(drop)
}

/// An eBPF instruction (RFC 9669 section 3), with the kernel's layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct Insn {
    pub(crate) code: u8,
    /// Destination register in the low four bits, source register in the high four.
    pub(crate) regs: u8,
    pub(crate) off: i16,
    pub(crate) imm: i32,
}

/// Commands of bpf(2) (enum bpf_cmd).
const BPF_MAP_CREATE: c_int = 0;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_MAP_DELETE_ELEM: c_int = 3;
const BPF_PROG_LOAD: c_int = 5;
#[cfg(test)]
const BPF_PROG_TEST_RUN: c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: c_int = 15;
const BPF_LINK_CREATE: c_int = 28;
const BPF_LINK_DETACH: c_int = 34;
/// A type of map (enum bpf_map_type).
const BPF_MAP_TYPE_XSKMAP: u32 = 17;

/// bpf(2) with `attr`, which contains only the fields in use; the kernel treats the rest as zero.
fn bpf<T>(command: c_int, attr: &mut T) -> io::Result<c_int> {
    // SAFETY: the size is that of `attr`; the callers below store only pointers in it that are
    // valid for what the command does with them.
    let result: c_long =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    check(c_int::try_from(result).unwrap_or(-1))
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the kernel just created this descriptor, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Creates a map from queue to socket (BPF_MAP_TYPE_XSKMAP) for queues below `queues`.
pub(super) fn xsk_map(queues: u32) -> io::Result<OwnedFd> {
    // map_type, key_size, value_size, max_entries, map_flags
    let mut attr: [u32; 5] = [BPF_MAP_TYPE_XSKMAP, 4, 4, queues, 0];
    bpf(BPF_MAP_CREATE, &mut attr).map(owned)
}

#[repr(C)]
struct Element {
    map: u64,
    key: u64,
    value: u64,
    flags: u64,
}

/// Sets the socket that receives the frames of `queue`, or removes it.
pub(super) fn map_set(map: &OwnedFd, queue: u32, socket: Option<&OwnedFd>) -> io::Result<()> {
    let value = socket.map_or(0, |socket| socket.as_raw_fd() as u32);
    let mut attr = Element {
        map: map.as_raw_fd() as u64,
        key: std::ptr::from_ref(&queue) as u64,
        value: std::ptr::from_ref(&value) as u64,
        flags: 0,
    };
    // Update or delete reads a key and a value of four bytes each, which outlive the call.
    let command = if socket.is_some() { BPF_MAP_UPDATE_ELEM } else { BPF_MAP_DELETE_ELEM };
    bpf(command, &mut attr).map(drop)
}

#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

/// Attach type of XDP programs (BPF_XDP).
const BPF_XDP: u32 = 37;

/// The type of a program (enum bpf_prog_type).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Purpose {
    /// BPF_PROG_TYPE_SOCKET_FILTER, which TAP interfaces also use to choose a queue.
    Filter = 1,
    /// BPF_PROG_TYPE_XDP.
    Xdp = 6,
}

/// The flag of programs that accept frames in several buffers (BPF_F_XDP_HAS_FRAGS; Linux 5.18).
pub(super) const FRAGS: u32 = 1 << 5;

/// Loads a program. The error contains the verifier's last lines.
pub(crate) fn load(purpose: Purpose, insns: &[Insn]) -> Result<OwnedFd, (io::Error, String)> {
    load_with(purpose, 0, insns)
}

/// As [`load`], with flags (BPF_F_*).
pub(super) fn load_with(
    purpose: Purpose,
    flags: u32,
    insns: &[Insn],
) -> Result<OwnedFd, (io::Error, String)> {
    let license: &CStr = c"MIT";
    let mut log = vec![0u8; 64 << 10];
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"flowyard");
    let mut attr = Load {
        kind: purpose as u32,
        count: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel: 0,
        flags,
        name,
        interface: 0,
        attach: if purpose == Purpose::Xdp { BPF_XDP } else { 0 },
    };
    if let Ok(fd) = bpf(BPF_PROG_LOAD, &mut attr) {
        return Ok(owned(fd));
    }
    // Load again with a log to learn the reason. The log buffer has the given length.
    (attr.log_level, attr.log_size, attr.log) = (1, log.len() as u32, log.as_mut_ptr() as u64);
    bpf(BPF_PROG_LOAD, &mut attr).map(owned).map_err(|error| {
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..end]);
        (error, log.lines().rev().take(3).collect::<Vec<_>>().join(" / "))
    })
}

/// Attaches `program` to an interface until the link is closed. `flags` are XDP_FLAGS_*.
pub(super) fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attr: [u32; 4] = [program.as_raw_fd() as u32, interface, BPF_XDP, flags];
    bpf(BPF_LINK_CREATE, &mut attr).map(owned)
}

/// The start of struct bpf_link_info, with the member for XDP.
#[derive(Default)]
#[repr(C)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    _pad: u32,
    interface: u32,
}

#[repr(C)]
struct AskInfo {
    fd: u32,
    len: u32,
    info: u64,
}

/// The index of the interface that a link attaches to; 0 if that is gone.
pub(super) fn linked(link: &OwnedFd) -> io::Result<u32> {
    let mut info = LinkInfo::default();
    let mut attr = AskInfo {
        fd: link.as_raw_fd() as u32,
        len: size_of::<LinkInfo>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    // The kernel writes at most `len` bytes of integers into `info`, which outlives the call.
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info.interface)
}

/// Detaches a link, also while other descriptors of it are open.
pub(super) fn unlink(link: &OwnedFd) -> io::Result<()> {
    let mut attr = [link.as_raw_fd() as u32];
    bpf(BPF_LINK_DETACH, &mut attr).map(drop)
}

#[cfg(test)]
#[repr(C)]
struct TestRun {
    program: u32,
    result: u32,
    size_in: u32,
    size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// Runs `program` on `frame` (at least 14 bytes) and returns its result.
#[cfg(test)]
pub(crate) fn test_run(program: &OwnedFd, frame: &[u8]) -> io::Result<u32> {
    let mut attr = TestRun {
        program: program.as_raw_fd() as u32,
        result: 0,
        size_in: frame.len() as u32,
        size_out: 0,
        data_in: frame.as_ptr() as u64,
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    bpf(BPF_PROG_TEST_RUN, &mut attr)?;
    Ok(attr.result)
}

#[cfg(test)]
mod tests;
