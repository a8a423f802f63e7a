//! Attaching queues and programs to a TAP interface.
#![allow(unsafe_code, reason = "a system call on a pointer")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::live::sys::{Request, ask, check};

/// Attaches a queue to the interface `name`, which is created if necessary.
pub(super) fn attach(name: &str, multi: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | if multi { libc::IFF_MULTI_QUEUE } else { 0 };
    let request = Request::new(name).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut request = request.with(&(flags as u16).to_ne_bytes());
    ask(&file, libc::TUNSETIFF as _, &mut request)?;
    if request.name() != name {
        // The kernel expanded a pattern in the name ("tap%d").
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(file)
}

/// Sets the program that filters the frames sent by the host, or removes it.
pub(super) fn filter(queue: &File, program: Option<&OwnedFd>) -> io::Result<()> {
    program_of(queue, libc::TUNSETFILTEREBPF, program)
}

/// Sets the program that chooses a queue, or returns the choice to the kernel.
pub(super) fn steer(queue: &File, program: Option<&OwnedFd>) -> io::Result<()> {
    program_of(queue, libc::TUNSETSTEERINGEBPF, program)
}

fn program_of(queue: &File, request: libc::Ioctl, program: Option<&OwnedFd>) -> io::Result<()> {
    let program: libc::c_int = program.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: both requests read one int, which outlives the call.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), request, std::ptr::from_ref(&program)) })?;
    Ok(())
}
