//! Network namespaces of threads and commands.
#![allow(unsafe_code, reason = "system calls")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
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
