//! System calls of the doctor: whether the kernel accepts an XDP program, which changes nothing; and that commands
//! inherit no descriptors.
#![allow(
    unsafe_code,
    reason = "bpf(2) and close_range(2) have no safe wrapper in the libraries that are used"
)]

use std::io;
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};

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
    use std::os::fd::AsRawFd;

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
}
