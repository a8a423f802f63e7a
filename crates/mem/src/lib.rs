//! What the hot path does with memory: prefetches of cache lines, copies of short frames, a full barrier, and when to look whether
//! the other side of a ring wants to be notified.
//!
//! A line that another core wrote last takes about a hundred nanoseconds to arrive. A program that prefetches the lines of
//! many frames before it uses them waits once for all of them.
//!
//! A line that will be *written* has its own instruction. After a prefetch for reading, both cores have the line, and the first
//! store must take it from the other core again. The compiler has a hint for this, `_MM_HINT_ET0`, but translates it to a
//! prefetch for reading unless the whole program is built for newer processors, so the instruction is written out here.
//! Every 64-bit processor accepts `prefetchw`; old ones ignore it.
//!
//! Invariants: a prefetch changes nothing that a program can observe except time. Any address is allowed.
//! Thread-safety: all functions may be called by any thread.
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, PREFETCHh and PREFETCHW.
#![allow(
    unsafe_code,
    reason = "instructions of the processor, and copies to memory of other processes"
)]

mod pending;

use std::ptr;

pub use pending::Pending;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// What a cache line is prefetched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It will be read.
    Read,
    /// It will be written: no other core has it afterwards.
    Write,
}

/// Prefetches the cache line at `place`.
#[inline]
pub fn prefetch<T>(place: *const T, access: Access) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: hints, which have no effect on memory or registers and raise no fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        match access {
            Access::Read => _mm_prefetch::<_MM_HINT_T0>(place.cast()),
            Access::Write => {
                std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags));
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (place, access);
}

/// Prefetches the cache lines of `bytes` bytes from `start` on.
#[inline]
pub fn prefetch_all(start: *const u8, bytes: usize, access: Access) {
    for at in (0..bytes).step_by(LINE) {
        prefetch(start.wrapping_add(at), access);
    }
}

/// A full memory barrier: what this thread stored before is visible to other threads before it loads anything after. For memory
/// that is shared with other processes; between threads of this program, use [`std::sync::atomic::fence`].
///
/// That function becomes `mfence`, which also orders stores that bypass the caches, and takes longer on many processors. A
/// locked instruction orders loads and stores of normal memory as strictly. Linux and DPDK use one for the same purpose.
#[inline]
pub fn barrier() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: adds zero to a word on the stack. The block may access memory for all that the compiler knows, so the compiler
    // moves no access across it.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0");
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Copies `len` bytes. Short frames are copied here by two blocks that overlap: a call of memcpy for an unknown length
/// takes longer than that.
///
/// # Safety
/// As of [`ptr::copy_nonoverlapping`] for `len` bytes.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Two blocks of `N` bytes, for `N <= len <= 2 * N`.
    #[inline]
    unsafe fn two<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: both blocks lie in the `len` bytes; arrays of bytes need no alignment.
        unsafe {
            let first = from.cast::<[u8; N]>().read();
            let last = from.add(len - N).cast::<[u8; N]>().read();
            to.cast::<[u8; N]>().write(first);
            to.add(len - N).cast::<[u8; N]>().write(last);
        }
    }
    // SAFETY: as the caller promises.
    unsafe {
        match len {
            8..=16 => two::<8>(from, to, len),
            32..=64 => two::<32>(from, to, len),
            65..=128 => two::<64>(from, to, len),
            _ => ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of addresses that are not mapped.
    #[test]
    fn prefetches_change_nothing() {
        let bytes = [7_u8; 3 * LINE];
        for access in [Access::Read, Access::Write] {
            prefetch_all(bytes.as_ptr(), bytes.len(), access);
            prefetch(ptr::null::<u8>(), access);
            prefetch(ptr::without_provenance::<u8>(64), access);
        }
        assert_eq!(bytes, [7; 3 * LINE]);
    }

    /// All lengths up to several blocks; the bytes around the copy stay as they are.
    #[test]
    fn copies_of_all_lengths() {
        let from: Vec<u8> = (0..=255).collect();
        for len in 0..=200 {
            let mut to = [0xee; 256];
            // SAFETY: both have the bytes.
            unsafe { copy(from.as_ptr().add(3), to.as_mut_ptr().add(5), len) };
            assert_eq!(to[5..5 + len], from[3..3 + len], "{len}");
            assert!(to[..5].iter().chain(&to[5 + len..]).all(|byte| *byte == 0xee), "{len}");
        }
    }
}
