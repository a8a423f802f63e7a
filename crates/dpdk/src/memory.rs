//! The memory of ports: buffers of the yard that DPDK may use, or a pool of DPDK's own.
//!
//! ```text
//!  yard ──lend──> [ pool of mbufs ] ──driver receives into a buffer──> Queue::rx ──> yard
//!  yard ──tx_lent──> driver transmits ──> [ pool of mbufs ] ──take_back──> yard
//! ```
//!
//! Each buffer of the yard has one mbuf for its whole life (a pool with pinned external buffers). The pool has the
//! mbufs of the buffers that a driver may receive into; a driver puts there what it has transmitted.
//!
//! Invariants: the ledger has a mark for each buffer that DPDK has, in the pool or in a driver. If a driver still has
//! some when the memory is no longer needed, the memory is not freed.
//! Thread-safety: all functions may be called by any thread; a buffer is handed over by one thread at a time.
#![allow(unsafe_code, reason = "memory is shared with drivers; the ledger says who has a buffer")]

use std::any::Any;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::eal::{Eal, c_text};
use crate::{BURST, Error, sys};

/// The memory of a port.
#[derive(Clone, Debug)]
pub enum Buffers {
    /// Frames are received into buffers of the yard and transmitted from them.
    External(Arc<External>),
    /// Frames are copied between DPDK's buffers and the yard's.
    Copying(Arc<Copying>),
}

impl Buffers {
    pub(crate) fn pool(&self) -> *mut c_void {
        match self {
            Self::External(memory) => memory.pool,
            Self::Copying(memory) => memory.pool,
        }
    }
}

/// The yard's memory, registered with DPDK.
pub struct External {
    pool: *mut c_void,
    base: *mut u8,
    bytes: u64,
    /// The size of a buffer, as a power of two.
    log2_buffer: u32,
    /// The mbuf of each buffer.
    mbufs: Box<[*mut c_void]>,
    ledger: Box<[AtomicU8]>,
    mapped_ports: MappedPorts,
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the pointers are to memory that lives as long as this, and DPDK's pool may be used by all threads.
unsafe impl Send for External {}
// SAFETY: as above; the ledger is atomic.
unsafe impl Sync for External {}

static NAMES: AtomicU64 = AtomicU64::new(0);

fn name() -> String {
    format!("flowyard-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

const MEMORY: &str =
    "give DPDK more memory (option '-m', or huge pages), or reduce 'frames' in [yard]";

impl External {
    /// Registers `frames` buffers of `buffer` bytes, a power of two from 2048 to 32768, at `base`. The yard has all
    /// of them. `keep` keeps the memory alive.
    ///
    /// # Safety
    /// The memory starts on a page and is valid for reads and writes, up to the end of the page of the last buffer, while
    /// `keep` lives.
    ///
    /// # Errors
    /// When the memory cannot be registered, or DPDK has no memory for the mbufs: about 320 bytes for each buffer.
    pub unsafe fn new(
        _: Eal,
        base: *mut u8,
        buffer: usize,
        frames: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, Error> {
        if !(buffer.is_power_of_two() && (2048..=32_768).contains(&buffer)) {
            return Err(Error::new(
                format!("buffers of {buffer} bytes cannot be lent to DPDK"),
                "write 2048",
            ));
        }
        // Memory is registered by pages.
        let bytes = (frames * buffer).next_multiple_of(4096) as u64;
        let (name, mut error) = (c_text(&name())?, 0);
        let mut mbufs = vec![std::ptr::null_mut(); frames].into_boxed_slice();
        // SAFETY: the memory is as large as said, as the caller promises; there is an entry for each buffer.
        let pool = unsafe {
            sys::fy_pool_external(
                name.as_ptr(),
                base.cast(),
                bytes,
                buffer as u32,
                frames as u32,
                mbufs.as_mut_ptr(),
                &raw mut error,
            )
        };
        if pool.is_null() {
            return Err(Error::code(
                &format!("registering {frames} buffers with DPDK"),
                error,
                MEMORY,
            ));
        }
        let ledger = std::iter::repeat_with(|| AtomicU8::new(0)).take(frames).collect();
        let log2_buffer = buffer.trailing_zeros();
        let (mapped_ports, keep) = (MappedPorts::default(), Some(keep));
        Ok(Self { pool, base, bytes, log2_buffer, mbufs, ledger, mapped_ports, keep })
    }

    /// The number of buffers in the pool of mbufs: those that no driver has at the moment.
    #[must_use]
    #[inline]
    pub fn available(&self) -> usize {
        // SAFETY: the pool exists.
        unsafe { sys::fy_pool_available(self.pool) as usize }
    }

    /// The number of buffers that DPDK has, in the pool or in drivers.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.ledger.iter().filter(|mark| mark.load(Ordering::Acquire) != 0).count()
    }

    /// Gives the buffers at these places, at most [`BURST`], to DPDK, for receiving.
    ///
    /// # Safety
    /// The caller owns the buffers, and does not touch one until it is taken back or received.
    #[inline]
    pub unsafe fn lend(&self, places: &[u32]) {
        let (mut mbufs, mut count) = ([std::ptr::null_mut(); BURST], 0);
        for (to, place) in mbufs.iter_mut().zip(places) {
            *to = self.mbufs[*place as usize];
            self.mark(*place);
            count += 1;
        }
        // SAFETY: mbufs of this pool that the yard has.
        unsafe { sys::fy_pool_put(self.pool, mbufs.as_ptr(), count) };
    }

    /// Takes buffers back from the pool, as many as `places` has room for, at most [`BURST`]. Returns how many. They
    /// are the caller's.
    #[inline]
    pub fn take_back(&self, places: &mut [u32]) -> usize {
        let mut mbufs = [std::ptr::null_mut(); BURST];
        let most = places.len().min(BURST) as u32;
        // SAFETY: there is room for as many.
        let count = unsafe { sys::fy_pool_get(self.pool, mbufs.as_mut_ptr(), most) } as usize;
        let mut taken = 0;
        for mbuf in &mbufs[..count] {
            // SAFETY: an mbuf of this pool, whose buffer is fixed.
            let buffer = unsafe { sys::fy_mbuf_buffer(*mbuf) };
            let place = self.place(buffer).0;
            if self.claim(place) {
                places[taken] = place;
                taken += 1;
            }
        }
        taken
    }

    /// The place and the offset of an address in this memory.
    #[inline]
    pub(crate) fn place(&self, at: *const u8) -> (u32, u32) {
        let offset = (at as usize).wrapping_sub(self.base as usize);
        ((offset >> self.log2_buffer) as u32, (offset & ((1 << self.log2_buffer) - 1)) as u32)
    }

    /// DPDK gives the buffer at `place` back; `false` if it has not got it.
    #[inline]
    pub(crate) fn claim(&self, place: u32) -> bool {
        let Some(mark) = self.ledger.get(place as usize) else { return false };
        let was = mark.load(Ordering::Relaxed);
        mark.store(0, Ordering::Relaxed);
        was != 0
    }

    #[inline]
    pub(crate) fn mark(&self, place: u32) {
        self.ledger[place as usize].store(1, Ordering::Relaxed);
    }

    pub(crate) fn mbufs(&self) -> *const *mut c_void {
        self.mbufs.as_ptr()
    }

    /// The ports whose devices the memory is mapped for.
    pub(crate) const fn mapped_ports(&self) -> &MappedPorts {
        &self.mapped_ports
    }

    /// The start and the size of the memory.
    pub(crate) fn range(&self) -> (*mut u8, u64) {
        (self.base, self.bytes)
    }
}

impl Drop for External {
    fn drop(&mut self) {
        if self.lent() > self.available() {
            // A driver did not give everything back: it might write to the memory at any time.
            std::mem::forget(self.keep.take());
            return;
        }
        // SAFETY: no driver has an mbuf of the pool.
        unsafe { sys::fy_pool_free(self.pool, self.base.cast(), self.bytes) };
    }
}

impl std::fmt::Debug for External {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "External({} buffers of {} bytes)", self.mbufs.len(), 1 << self.log2_buffer)
    }
}

/// How many ports the memory is mapped for. It is unmapped with the last one.
#[derive(Default)]
pub(crate) struct MappedPorts(Mutex<usize>);

impl MappedPorts {
    /// Maps the memory for one more port. Returns the result of `map`; a negative one is an error, and the port is no user.
    pub(crate) fn add(&self, map: impl FnOnce() -> i32) -> i32 {
        let mut count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = map();
        *count += usize::from(result >= 0);
        result
    }

    /// A port that is stopped no longer uses the memory. Calls `unmap` if it was the last one.
    pub(crate) fn remove(&self, unmap: impl FnOnce()) {
        let mut count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        if *count == 0 {
            unmap();
        }
    }
}

/// A pool of DPDK's own, from which frames are copied.
#[derive(Debug)]
pub struct Copying {
    pool: *mut c_void,
    /// The longest frame in bytes.
    longest: usize,
    frames: usize,
}

// SAFETY: DPDK's pool may be used by all threads.
unsafe impl Send for Copying {}
// SAFETY: as above.
unsafe impl Sync for Copying {}

/// Bytes in front of a frame in DPDK's buffers.
const HEADROOM: usize = 128;

impl Copying {
    /// Makes `frames` buffers for frames of up to `longest` bytes.
    ///
    /// # Errors
    /// When DPDK has not so much memory.
    pub fn new(_: Eal, frames: usize, longest: usize) -> Result<Self, Error> {
        let room = (longest + HEADROOM).min(usize::from(u16::MAX));
        let (name, mut error) = (c_text(&name())?, 0);
        // SAFETY: the name ends with a zero.
        let pool =
            unsafe { sys::fy_pool_new(name.as_ptr(), frames as u32, room as u32, &raw mut error) };
        if pool.is_null() {
            let doing = format!("allocating {frames} buffers of {room} bytes in DPDK's memory");
            return Err(Error::code(&doing, error, MEMORY));
        }
        Ok(Self { pool, longest: room - HEADROOM, frames })
    }

    /// The longest frame in bytes.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// The number of buffers that a driver or a received frame has.
    #[must_use]
    pub fn in_use(&self) -> usize {
        // SAFETY: the pool exists.
        self.frames - unsafe { sys::fy_pool_available(self.pool) as usize }
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        if self.in_use() == 0 {
            // SAFETY: no mbuf of the pool is in use.
            unsafe { sys::fy_pool_free(self.pool, std::ptr::null_mut(), 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices can share an address space: what is unmapped for one of them is unmapped for all.
    #[test]
    fn memory_is_unmapped_with_its_last_port_and_a_failed_port_is_no_user() {
        let (mapped, unmapped) = (MappedPorts::default(), AtomicU64::new(0));
        let leave = || mapped.remove(|| _ = unmapped.fetch_add(1, Ordering::Relaxed));
        let count = || unmapped.load(Ordering::Relaxed);
        assert_eq!((mapped.add(|| 0), mapped.add(|| 0), mapped.add(|| -19)), (0, 0, -19));
        leave();
        assert_eq!(count(), 0);
        leave();
        assert_eq!(count(), 1);
        assert_eq!(mapped.add(|| 0), 0, "it is mapped again");
        leave();
        assert_eq!(count(), 2);
    }
}
