//! Attaching queues and programs to a TAP interface, and where a queue is attached.
#![allow(unsafe_code, reason = "a system call on a pointer")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use crate::live::Carries;
use crate::live::sys::{Request, ask, check};

/// Attaches a queue to the interface `name`, which is created if necessary.
pub(super) fn attach(name: &str, multi: bool, carries: Carries) -> io::Result<File> {
    let mut flags = libc::IFF_TAP;
    if multi {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if carries.csum() {
        flags |= libc::IFF_VNET_HDR;
    }
    open(name, flags)
}

/// Creates the TUN interface `name`, which is removed when the file is closed. `EBUSY` if there is one already.
pub(super) fn tun(name: &str) -> io::Result<File> {
    open(name, libc::IFF_TUN | libc::IFF_TUN_EXCL)
}

fn open(name: &str, flags: libc::c_int) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let flags = flags | libc::IFF_NO_PI;
    let request = Request::new(name).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut request = request.with(&(flags as u16).to_ne_bytes());
    ask(&file, libc::TUNSETIFF as _, &mut request)?;
    if request.name() != name {
        // The kernel expanded a pattern in the name ("tap%d").
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(file)
}

/// Says which unfinished frames the host may send. Returns what it knows of these: kernels before Linux 6.2 do not
/// leave UDP segmentation to a TAP.
pub(super) fn offload(queue: &File, carries: Carries) -> io::Result<Carries> {
    let mut flags = 0;
    if carries.csum() {
        flags |= libc::TUN_F_CSUM;
    }
    if carries.tso() {
        flags |= libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    }
    let uso = if carries.uso() { libc::TUN_F_USO4 | libc::TUN_F_USO6 } else { 0 };
    let set = |flags: libc::c_uint| {
        // SAFETY: the request takes a number.
        check(unsafe {
            libc::ioctl(queue.as_raw_fd(), libc::TUNSETOFFLOAD, flags as libc::c_ulong)
        })
    };
    match set(flags | uso) {
        Err(error) if uso != 0 && error.raw_os_error() == Some(libc::EINVAL) => {
            set(flags)?;
            Ok(Carries::new(carries.csum(), carries.tso(), false))
        }
        result => result.map(|_| carries),
    }
}

/// The name of the interface that `queue` is attached to; `None` if it was detached with [`detach`].
/// The interface was deleted if the error is EBADFD.
pub(super) fn name(queue: &File) -> io::Result<Option<String>> {
    attached(queue).map(|(name, is_attached)| is_attached.then_some(name))
}

/// The name of the interface of `queue`, and whether the queue is attached to it.
pub(super) fn attached(queue: &File) -> io::Result<(String, bool)> {
    let mut request = Request::new("x").ok_or(io::ErrorKind::InvalidInput)?;
    ask(queue, libc::TUNGETIFF as _, &mut request)?;
    let is_attached = request.short() & libc::IFF_DETACH_QUEUE as u16 == 0;
    Ok((request.name(), is_attached))
}

/// Detaches `queue` from its interface until it is closed. The kernel discards the frames in it.
pub(super) fn detach(queue: &File) -> io::Result<()> {
    let request = Request::new("x").ok_or(io::ErrorKind::InvalidInput)?;
    let mut request = request.with(&(libc::IFF_DETACH_QUEUE as u16).to_ne_bytes());
    ask(queue, libc::TUNSETQUEUE as _, &mut request)
}

/// Device and inode of the network namespace of the interface that `queue` is attached to. Kernels
/// before Linux 5.9 do not tell, nor does any without CAP_NET_ADMIN.
pub(super) fn namespace(queue: &File) -> Option<(u64, u64)> {
    // SAFETY: the request takes no argument.
    let fd = check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETDEVNETNS, 0) }).ok()?;
    // SAFETY: the call succeeded, so `fd` is open and has no other owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let found = file.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// Detaches the classic filter of the interface.
pub(super) fn detach_filter(queue: &File) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNDETACHFILTER, 0) }).map(drop)
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
