//! System calls of the doctor: offloads and queues of an interface (the ioctl of ethtool), and whether
//! the kernel accepts an XDP program, which change nothing; and that commands inherit no descriptors.
#![allow(
    unsafe_code,
    reason = "SIOCETHTOOL, bpf(2) and close_range(2) have no safe wrapper in the libraries that are used"
)]

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Programs that this process starts inherit none of its descriptors but the three standard ones. Descriptors
/// that were opened here are closed in them anyway; this is about those that this process inherited itself.
pub(crate) fn inherit_nothing() {
    // SAFETY: this sets the close-on-exec flag of descriptors, and closes none.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 {
        return;
    }
    // Linux before 5.11.
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for fd in numbers.filter(|&fd| fd > 2) {
        // SAFETY: as above; a number that is not open any more is an error without effect.
        let _closed = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Read commands of ethtool (linux/ethtool.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Get {
    /// `ETHTOOL_GTXCSUM`: transmit checksum offload.
    TxChecksum = 0x16,
    /// `ETHTOOL_GTSO`: TCP segmentation offload.
    Tso = 0x1e,
    /// `ETHTOOL_GGSO`: generic segmentation offload.
    Gso = 0x23,
    /// `ETHTOOL_GGRO`: generic receive offload.
    Gro = 0x2b,
}

/// struct `ethtool_value`.
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// struct `ethtool_channels`: the supported and the current numbers.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Channels {
    cmd: u32,
    pub(crate) most: Counts,
    pub(crate) now: Counts,
}

/// Numbers of channels by use.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) rx: u32,
    tx: u32,
    other: u32,
    /// Channels that receive and transmit.
    pub(crate) combined: u32,
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Whether the offload is on.
pub(crate) fn offload(interface: &str, get: Get) -> io::Result<bool> {
    let mut value = Value { cmd: get as u32, data: 0 };
    // SAFETY: these commands read into a struct ethtool_value, which `value` is.
    unsafe { ethtool(interface, (&raw mut value).cast())? };
    Ok(value.data != 0)
}

/// The channels of the interface. A channel is an interrupt with the queues that it serves.
pub(crate) fn channels(interface: &str) -> io::Result<Channels> {
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: the command reads into a struct ethtool_channels, which `channels` is.
    unsafe { ethtool(interface, (&raw mut channels).cast())? };
    Ok(channels)
}

/// # Safety
/// `data` must point to the struct of the ethtool command in its first word. The struct must be alive
/// and writable during the call.
unsafe fn ethtool(interface: &str, data: *mut c_void) -> io::Result<()> {
    let name = interface.as_bytes();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    // SAFETY: an ifreq is plain numbers, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data.cast();
    // SAFETY: the socket is open, the request is complete, and the caller guarantees that its data is valid.
    let got = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens an `AF_XDP` socket and closes it.
pub(crate) fn xdp_socket() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketType, socket};
    Ok(socket(AddressFamily::XDP, SocketType::RAW, None).map(drop)?)
}

/// The first words of union `bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log: [u64; 2],
    rest: [u64; 11],
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_XDP: u32 = 6;

/// Loads an XDP program that passes every frame to the kernel, without attaching it.
pub(crate) fn xdp_program() -> io::Result<()> {
    // r0 = XDP_PASS (2); exit
    let program: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];
    let mut load = Load {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        ..Load::default()
    };
    // SAFETY: the attribute and what it points to outlive the call; its size is passed, and the words
    // behind the known fields are zero.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw mut load, size_of::<Load>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_not_inherited() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: this clears the close-on-exec flag of a descriptor that is open.
        let flags = || unsafe { libc::fcntl(fd, libc::F_GETFD) };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
        assert_eq!(flags(), 0);
        inherit_nothing();
        assert_eq!(flags(), libc::FD_CLOEXEC);
    }

    #[test]
    fn the_loopback_interface_answers() {
        // Every network namespace has a loopback interface, and its segmentation offload can be read.
        assert!(offload("lo", Get::Gso).is_ok());
        assert!(channels("lo").is_err(), "loopback has no channels");
        for name in ["", "a-name-that-is-too-long", "no\0", "none7"] {
            assert!(offload(name, Get::Gro).is_err());
        }
    }
}
