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
//!     let after = Count::of_this_thread();
//!     assert_eq!((after.calls - before.calls, after.bytes - before.bytes), (1, 100));
//!     assert_eq!(after.in_use, before.in_use);
//! }
//! ```
//!
//! Counts are per thread, so that other tests and the threads of the test runner do not disturb them.
//!
//! Thread-safety: counts are thread-local.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement; this one forwards every call")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { calls: 0, bytes: 0, in_use: 0, peak: 0 }) };
}

/// The allocations of a thread since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// Number of allocations.
    pub calls: u64,
    /// Bytes allocated; freed memory is not subtracted.
    pub bytes: u64,
    /// Bytes allocated less bytes freed. Negative if the thread has freed memory of other threads.
    pub in_use: i64,
    /// The largest value of `in_use` since [`Count::reset_peak`].
    pub peak: i64,
}

impl Count {
    /// The counts of the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        COUNT.get()
    }

    /// Sets the peak of the calling thread to the bytes in use, and returns the counts.
    pub fn reset_peak() -> Self {
        let count = COUNT.get();
        COUNT.set(Self { peak: count.in_use, ..count });
        COUNT.get()
    }

    const fn add(self, size: usize) -> Self {
        let in_use = self.in_use + size as i64;
        Self {
            calls: self.calls + 1,
            bytes: self.bytes + size as u64,
            in_use,
            peak: if in_use > self.peak { in_use } else { self.peak },
        }
    }
}

/// The system's allocator, with counters.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

// SAFETY: every call goes to the system's allocator unchanged, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is being destroyed has no counter any more.
        let _counted = COUNT.try_with(|count| count.set(count.get().add(layout.size())));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _counted = COUNT.try_with(|count| {
            let before = count.get();
            count.set(Count { in_use: before.in_use - layout.size() as i64, ..before });
        });
        // SAFETY: `at` came from `alloc` above, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}
