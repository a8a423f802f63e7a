//! Counts allocations, for tests that code does not allocate, or only a bounded amount.
//!
//! A test program installs the counting allocator:
//!
//! ```standalone_crate
//! use flowyard_testkit::alloc::{Count, Counting};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! fn main() {
//!     let before = Count::of_this_thread();
//!     drop(std::hint::black_box(Box::new([0_u8; 100])));
//!     assert_eq!(Count::of_this_thread().since(before), Count { calls: 1, bytes: 100 });
//! }
//! ```
//!
//! Counts of a thread are not disturbed by other threads, such as those of the test runner. The
//! memory in use is that of the whole process.
//!
//! Thread-safety: counts are thread-local or atomic.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement; this one forwards every call")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    static THREAD: Cell<Count> = const { Cell::new(Count { calls: 0, bytes: 0 }) };
}

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Allocations since a thread started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Number of allocations.
    pub calls: u64,
    /// Bytes allocated; freed memory is not subtracted.
    pub bytes: u64,
}

impl Count {
    /// The allocations of the calling thread so far.
    #[must_use]
    pub fn of_this_thread() -> Self {
        THREAD.get()
    }

    /// The allocations since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, bytes: self.bytes - before.bytes }
    }
}

/// The memory of the whole process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Allocations since the process started.
    pub calls: usize,
    /// Bytes in use.
    pub bytes: usize,
    /// The largest number of bytes in use since [`Memory::reset_peak`].
    pub peak: usize,
}

impl Memory {
    /// The memory in use now.
    #[must_use]
    pub fn now() -> Self {
        let load = |number: &AtomicUsize| number.load(Relaxed);
        Self { calls: load(&CALLS), bytes: load(&IN_USE), peak: load(&PEAK) }
    }

    /// Sets the peak to the bytes in use now, and returns the memory in use.
    pub fn reset_peak() -> Self {
        PEAK.store(IN_USE.load(Relaxed), Relaxed);
        Self::now()
    }
}

/// The system's allocator, with counters.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        // A thread that is being destroyed has no counter any more.
        let _counted = THREAD.try_with(|count| {
            let Count { calls, bytes } = count.get();
            count.set(Count { calls: calls + 1, bytes: bytes + size as u64 });
        });
        CALLS.fetch_add(1, Relaxed);
        PEAK.fetch_max(IN_USE.fetch_add(size, Relaxed) + size, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` came from `alloc` above, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}
