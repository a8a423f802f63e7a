//! Keeps a truncated file from ending the process.
//!
//! A front end that truncates the file behind shared memory makes the next access to that memory raise
//! SIGBUS, whose default is to end the process. Sealing would prevent the truncation, but the memory of DPDK
//! and of huge pages is not sealed. So this module handles the signal: it maps zeros in place of a mapping
//! that it watches, and counts a loss. The rings notice the loss at their next burst, and their port goes
//! down.
//!
//! Invariants: a mapping is watched from its creation until before it is unmapped, so its range belongs to
//! nobody else while it is watched. A SIGBUS of any other address has its former effect. The handler uses
//! atomics and system calls that are safe in a signal handler only.
//! Thread-safety: all functions may be called by any thread.
#![allow(unsafe_code, reason = "a signal handler")]

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The number of mappings that can exist at once: 32 of each of 64 ports.
const SLOTS: usize = 2048;

/// The states of a slot, in `start`: free, taken but without a range, or the first address of the range.
const FREE: usize = 0;
const TAKEN: usize = 1;

struct Slot {
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot { start: AtomicUsize::new(FREE), len: AtomicUsize::new(0), lost: AtomicBool::new(false) }
}; SLOTS];

static LOSSES: AtomicU64 = AtomicU64::new(0);

/// What handled SIGBUS before.
static FORMER: OnceLock<Former> = OnceLock::new();

struct Former(libc::sigaction);

// SAFETY: plain data, which is read only.
unsafe impl Send for Former {}
// SAFETY: as above.
unsafe impl Sync for Former {}

/// The number of mappings that were lost since the process began.
#[inline]
pub(crate) fn losses() -> u64 {
    LOSSES.load(Ordering::Relaxed)
}

/// The watch over one mapping.
#[derive(Debug)]
pub(crate) struct Watch(usize);

impl Watch {
    /// Reserves a slot.
    ///
    /// # Errors
    /// When the signal cannot be handled, or too many mappings exist.
    pub(crate) fn new() -> io::Result<Self> {
        install()?;
        let taken = TABLE.iter().position(|slot| {
            let free = (FREE, TAKEN);
            slot.start
                .compare_exchange(free.0, free.1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let at = taken.ok_or_else(|| {
            io::Error::other(format!("more than {SLOTS} regions of guest memory are in use"))
        })?;
        TABLE[at].lost.store(false, Ordering::Relaxed);
        Ok(Self(at))
    }

    /// Watches `len` bytes from the address `start` on, which have just been mapped.
    pub(crate) fn begin(&self, start: usize, len: usize) {
        let slot = &TABLE[self.0];
        slot.len.store(len, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
    }

    /// Watches no longer, because the mapping will be unmapped.
    pub(crate) fn end(&self) {
        TABLE[self.0].start.store(TAKEN, Ordering::Release);
    }

    pub(crate) fn is_lost(&self) -> bool {
        TABLE[self.0].lost.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        TABLE[self.0].start.store(FREE, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    static INSTALLING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = INSTALLING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if FORMER.get().is_some() {
        return Ok(());
    }
    let mut former = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: both actions are valid for the call; the handler is safe in a signal, see `handle`.
    unsafe {
        // First the former action is read, because the handler needs it from its first call on.
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), former.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let _first = FORMER.set(Former(former.assume_init()));
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The slot of the mapping with this address.
fn slot_of(address: usize) -> Option<(&'static Slot, usize, usize)> {
    TABLE.iter().find_map(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        let len = slot.len.load(Ordering::Relaxed);
        let is_in = start > TAKEN && address.wrapping_sub(start) < len;
        is_in.then_some((slot, start, len))
    })
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo. Atomics, mmap, sigaction and raise may be used in a signal
    // handler, and errno is left as it was. The mapping that is replaced is watched: its owner exists,
    // because the thread that was interrupted was using it, and accesses it by copies and atomics only, for
    // which zeros are as good as any bytes.
    unsafe {
        let errno = *libc::__errno_location();
        let is_fault = (*info).si_code > 0;
        let found = if is_fault { slot_of((*info).si_addr() as usize) } else { None };
        let replaced = found.is_some_and(|(slot, start, len)| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags =
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let at = libc::mmap(start as *mut libc::c_void, len, protection, flags, -1, 0);
            let is_mapped = at != libc::MAP_FAILED;
            if is_mapped {
                slot.lost.store(true, Ordering::Relaxed);
                LOSSES.fetch_add(1, Ordering::Release);
            }
            is_mapped
        });
        if !replaced && let Some(former) = FORMER.get() {
            // The access is repeated after the return, or the signal is sent again, and has its former
            // effect.
            libc::sigaction(libc::SIGBUS, &raw const former.0, std::ptr::null_mut());
            if !is_fault {
                libc::raise(signal);
            }
        }
        *libc::__errno_location() = errno;
    }
}
