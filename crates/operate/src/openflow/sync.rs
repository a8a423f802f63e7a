//! Clock and locks of the OpenFlow threads.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The clock that measures the idle time of connections.
#[allow(clippy::disallowed_methods, reason = "idle time of a live connection is measured")]
pub(super) fn clock() -> Instant {
    Instant::now()
}

/// Locks a mutex. Its data is consistent even if a holder panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
