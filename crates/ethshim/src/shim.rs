//! The replaced `ioctl`.
#![allow(unsafe_code, reason = "replaces ioctl(2) in other programs")]
#![allow(unreachable_pub, reason = "the linker exports it, not the crate")]

use std::ffi::{CStr, c_int, c_ulong, c_void};

use flowyard_host::ntuple::{Request, SIZE};

use crate::driver::{self, Answer};
use crate::words;

/// The interface that the driver has.
const INTERFACE: &[u8] = b"eth9";

/// Its index, which no other interface has.
const INDEX: c_int = 1_000_009;

/// Offsets in struct `ethtool_rxnfc`.
const DATA: usize = 8;
const COUNT: usize = 184;
const LIST: usize = 188;

/// The `ioctl` of the program that this library is preloaded into.
///
/// # Safety
/// As for ioctl(2): `argument` must be what `request` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == libc::SIOCETHTOOL as c_ulong && !argument.is_null() {
        // SAFETY: the argument of SIOCETHTOOL is a struct ifreq.
        let ifreq = unsafe { &*argument.cast::<libc::ifreq>() };
        // SAFETY: the name in an ifreq ends with a zero byte within its 16 bytes.
        let name = unsafe { CStr::from_ptr(ifreq.ifr_name.as_ptr()) };
        if name.to_bytes() == INTERFACE {
            // SAFETY: with SIOCETHTOOL, the union in an ifreq is a pointer to the request.
            return unsafe { answer(ifreq.ifr_ifru.ifru_data.cast()) };
        }
    }
    if request == libc::SIOCGIFINDEX as c_ulong && !argument.is_null() {
        // SAFETY: the argument of SIOCGIFINDEX is a struct ifreq.
        let ifreq = unsafe { &mut *argument.cast::<libc::ifreq>() };
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(ifreq.ifr_name.as_ptr()) };
        if name.to_bytes() == INTERFACE {
            ifreq.ifr_ifru.ifru_ifindex = INDEX;
            return 0;
        }
    }
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}

/// # Safety
/// `data` must point to a request of ethtool, which begins with its command.
unsafe fn answer(data: *mut u8) -> c_int {
    // SAFETY: every request begins with its command.
    let command = unsafe { data.cast::<u32>().read_unaligned() };
    if !driver::KNOWN.contains(&command) {
        // SAFETY: as above, and the request has the room that its command says.
        return match unsafe { words::answer(command, data) } {
            Ok(()) => 0,
            Err(errno) => fail(errno),
        };
    }
    let mut bytes = [0; SIZE];
    // SAFETY: the requests of these commands are a struct ethtool_rxnfc of SIZE bytes.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(data, SIZE) };
    let given = Request::from_bytes(bytes);
    match driver::answer(command, &given) {
        Err(errno) => fail(errno),
        Ok(Answer::Data { data: value, count }) => {
            bytes[DATA..][..8].copy_from_slice(&value.to_ne_bytes());
            if let Some(count) = count {
                bytes[COUNT..][..4].copy_from_slice(&count.to_ne_bytes());
            }
            // SAFETY: as above.
            unsafe { data.copy_from_nonoverlapping(bytes.as_ptr(), SIZE) };
            0
        }
        Ok(Answer::Rule(rule)) => {
            // SAFETY: as above.
            unsafe { data.copy_from_nonoverlapping(rule.as_bytes().as_ptr(), SIZE) };
            0
        }
        Ok(Answer::Locations { size, list }) => {
            let mut room = [0; 4];
            room.copy_from_slice(&bytes[COUNT..][..4]);
            if list.len() > u32::from_ne_bytes(room) as usize {
                return fail(libc::EMSGSIZE);
            }
            bytes[DATA..][..8].copy_from_slice(&size.to_ne_bytes());
            bytes[COUNT..][..4].copy_from_slice(&(list.len() as u32).to_ne_bytes());
            // SAFETY: the struct up to the list, and as many locations as the request has room for.
            unsafe {
                data.copy_from_nonoverlapping(bytes.as_ptr(), LIST);
                data.add(LIST).copy_from_nonoverlapping(list.as_ptr().cast(), 4 * list.len());
            }
            0
        }
    }
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the location of errno of this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}
