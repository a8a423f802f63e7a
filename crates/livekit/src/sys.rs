//! System calls: network namespaces of threads and commands, sockets of other processes, CPUs.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Moves the calling thread into a new network namespace.
///
/// # Errors
///
/// As unshare(2).
pub fn unshare() -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Moves the calling thread into the network namespace `net`.
///
/// # Errors
///
/// As setns(2).
pub fn enter(net: &File) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::setns(net.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Makes `command` run in the network namespace `net`, which must stay open until the command is started.
pub fn within(command: &mut Command, net: &File) {
    let fd = net.as_raw_fd();
    // SAFETY: between fork and exec, only setns(2) is called, which is safe to call there.
    unsafe {
        command.pre_exec(move || check(libc::setns(fd, libc::CLONE_NEWNET)));
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives a socket a receive buffer of 32 MiB, for datagrams that arrive while the receiver does not run.
pub fn big_buffer(socket: &impl AsRawFd) {
    let size: i32 = 32 << 20;
    // SAFETY: the pointer and the size are those of `size`, which the kernel only reads.
    let set = unsafe {
        let (level, value) = (libc::SOL_SOCKET, std::ptr::from_ref(&size).cast());
        libc::setsockopt(socket.as_raw_fd(), level, libc::SO_RCVBUFFORCE, value, 4)
    };
    assert_eq!(set, 0);
}

/// Pins thread `thread` to CPU `cpu`.
pub fn pin(thread: i32, cpu: u32) {
    // SAFETY: a CPU set is an array of bits, all of which may be zero; the kernel only reads it.
    let set = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut cpus);
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const cpus)
    };
    check(set).unwrap();
}

/// Duplicates descriptor `number` of process `process` into this one: pidfd_getfd(2).
///
/// # Errors
///
/// As pidfd_open(2) and pidfd_getfd(2).
pub fn descriptor_of(process: u32, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed, and each returned descriptor is new and owned by this process.
    unsafe {
        let owned = |fd: libc::c_long| match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        };
        let process = owned(libc::syscall(libc::SYS_pidfd_open, process, 0))?;
        owned(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0))
    }
}

/// The address of the peer, if `socket` is a connected IPv4 socket.
#[must_use]
pub fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    // SAFETY: a socket address consists of integers, and the kernel writes no more than its size.
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

/// The CPU that received the last packet of a socket.
#[must_use]
pub fn incoming_cpu(socket: &OwnedFd) -> u32 {
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

/// Raises the priority of thread `thread` (0 is the calling one) above that of ordinary work.
pub fn hurry(thread: u32) {
    // SAFETY: no memory is passed.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, -10) }).unwrap();
}
