//! What the doctor asks the kernel by name: offloads and queues of an interface (ethtool's ioctl),
//! and whether an XDP program would be taken. All of it only looks.
#![allow(unsafe_code, reason = "two system calls that have no safe face: SIOCETHTOOL and bpf(2)")]

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Reads of ethtool, by their command (linux/ethtool.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Get {
    /// Checksums are filled in by the interface.
    TxChecksum = 0x16,
    /// Large TCP segments are cut by the interface.
    Tso = 0x1e,
    /// Large segments are cut just before the interface.
    Gso = 0x23,
    /// Received frames are put together.
    Gro = 0x2b,
}

/// struct `ethtool_value`.
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// struct `ethtool_channels`: the most, then the present number, of rx, tx, other, combined.
#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    most: [u32; 4],
    now: [u32; 4],
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Whether the interface does this.
pub(crate) fn offload(interface: &str, get: Get) -> io::Result<bool> {
    let mut value = Value { cmd: get as u32, data: 0 };
    // SAFETY: these commands read into a struct ethtool_value, which `value` is.
    unsafe { ethtool(interface, (&raw mut value).cast())? };
    Ok(value.data != 0)
}

/// Receive queues that the interface uses now, and the most it could.
pub(crate) fn queues(interface: &str) -> io::Result<(u32, u32)> {
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: the command reads into a struct ethtool_channels, which `channels` is.
    unsafe { ethtool(interface, (&raw mut channels).cast())? };
    let Channels { most, now, .. } = channels;
    Ok((now[0] + now[3], most[0] + most[3]))
}

/// # Safety
/// `data` is to point to the struct of the ethtool command that stands in its first word, alive and
/// writable for the call.
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
    // SAFETY: the socket is open, the request complete, and its data is what the caller promises.
    let got = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens an `AF_XDP` socket, and closes it.
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

/// Has the kernel check an XDP program that passes everything on; attaches it nowhere.
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
    // SAFETY: the attribute and what it points to live through the call; its size is told, and
    // words behind those that are known are zero.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw mut load, size_of::<Load>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_answers() {
        // Loopback is in every network namespace, and its segmentation offload can be read.
        assert!(offload("lo", Get::Gso).is_ok());
        assert!(queues("lo").is_err(), "loopback has no channels");
        for name in ["", "a-name-that-is-too-long", "no\0", "none7"] {
            assert!(offload(name, Get::Gro).is_err());
        }
    }
}
