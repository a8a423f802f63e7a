//! Network namespaces of threads and commands; sockets of other processes.
#![allow(unsafe_code, reason = "system calls")]

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    // SAFETY: has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Puts the calling thread into a new namespace.
pub(crate) fn unshare() -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Puts the calling thread into the namespace of `net`.
pub(crate) fn enter(net: &File) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::setns(net.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Has `command` run in the namespace of `net`, which outlives its start.
pub(crate) fn within(command: &mut Command, net: &File) {
    let fd = net.as_raw_fd();
    // SAFETY: between fork and exec, only setns(2) is called, which is safe to call there.
    unsafe {
        command.pre_exec(move || check(libc::setns(fd, libc::CLONE_NEWNET)));
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for what comes while the receiver is not scheduled.
pub(crate) fn big_buffer(socket: &impl AsRawFd) {
    let size: i32 = 32 << 20;
    // SAFETY: the pointer and the size are those of `size`, which the kernel only reads.
    let set = unsafe {
        let (level, value) = (libc::SOL_SOCKET, std::ptr::from_ref(&size).cast());
        libc::setsockopt(socket.as_raw_fd(), level, libc::SO_RCVBUFFORCE, value, 4)
    };
    assert_eq!(set, 0);
}

/// Has thread `thread` run on processor `cpu` alone.
pub(crate) fn pin(thread: i32, cpu: u32) {
    // SAFETY: a set of processors is bits, all of which may be zero; the kernel only reads it.
    let set = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut cpus);
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const cpus)
    };
    check(set).unwrap();
}

/// Descriptor `number` of process `process`, as one of ours: pidfd_getfd(2).
pub(crate) fn descriptor_of(process: u32, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed, and each descriptor that comes is new, and ours.
    unsafe {
        let owned = |fd: libc::c_long| match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        };
        let process = owned(libc::syscall(libc::SYS_pidfd_open, process, 0))?;
        owned(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0))
    }
}

/// The other end of a connection over IPv4, if `socket` is one.
pub(crate) fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    // SAFETY: an address is numbers, and the kernel writes no more than its size.
    let (result, address) = unsafe {
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        let mut size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let to = (&raw mut address).cast();
        (libc::getpeername(socket.as_raw_fd(), to, &raw mut size), address)
    };
    check(result).ok()?;
    let ip = u32::from_be(address.sin_addr.s_addr);
    let is_ipv4 = i32::from(address.sin_family) == libc::AF_INET;
    is_ipv4.then(|| (std::net::Ipv4Addr::from(ip), u16::from_be(address.sin_port)).into())
}

/// The processor on which the last packet of a socket was received.
pub(crate) fn incoming_cpu(socket: &OwnedFd) -> u32 {
    let (mut cpu, mut size) = (0_u32, 4);
    // SAFETY: the kernel writes four bytes into `cpu`.
    let got = unsafe {
        let to = (&raw mut cpu).cast();
        let name = libc::SO_INCOMING_CPU;
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &raw mut size)
    };
    check(got).unwrap();
    cpu
}

/// Has thread `thread` (0 is this one) go before ordinary work of the machine.
pub(crate) fn hurry(thread: u32) {
    // SAFETY: no memory is passed.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, -10) }).unwrap();
}
