//! Frames longer than a page, which drivers hand to XDP in several pieces: Linux 5.18.

use std::os::fd::AsRawFd;

use aya::Ebpf;
use aya::programs::{ProgramError, Xdp};

/// What a program takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pieces {
    /// Frames in one piece: up to a page, less what the kernel needs of it.
    One,
    /// Frames of any length.
    Many,
}

/// The most that fits in a page of 4096 bytes beside what the kernel needs of it: 256 bytes in front, and some 320 behind.
const FITS: u32 = 3_500;

impl Pieces {
    /// What this kernel can.
    pub(crate) fn known(ebpf: &mut Ebpf) -> Result<Self, ProgramError> {
        let program = ebpf.program_mut("knows_frags").ok_or(ProgramError::NotLoaded)?;
        let program: &mut Xdp = program.try_into()?;
        match program.load() {
            Ok(()) => Ok(Self::Many),
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::EINVAL) =>
            {
                Ok(Self::One)
            }
            Err(error) => Err(error),
        }
    }

    /// The names of the programs in the object: at the interface, and at the end of a CPU's queue.
    pub(crate) const fn programs(self) -> [&'static str; 2] {
        match self {
            Self::One => ["steer", "arrived"],
            Self::Many => ["steer_long", "arrived_long"],
        }
    }

    /// Whether frames of this MTU may be longer than what the program takes.
    pub(crate) const fn is_exceeded(self, mtu: u32) -> bool {
        matches!(self, Self::One) && mtu > FITS
    }
}

/// The MTU of an interface of the calling thread's network namespace.
#[allow(unsafe_code, reason = "no crate wraps this ioctl")]
pub(crate) fn mtu(interface: &str) -> std::io::Result<u32> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    // SAFETY: all fields of the structure are plain data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request is a whole `ifreq`, which the kernel reads and writes, and its name ends with a zero.
    let answer =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if answer != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has written this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).unwrap_or_default())
}
