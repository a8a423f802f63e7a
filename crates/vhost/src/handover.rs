//! How a value is given to a core, and taken back before anything that it depends on changes.
//!
//! ```text
//!  control thread ── place ──> Seat ──(generation)──> Holder.attend, on a core
//!                 <─ recall ──      <──────────────── the value, at the core's next call
//! ```
//!
//! Invariants: when [`Seat::recall`] returns, the core has no value and uses none. A core that has ended
//! gives its value back. Thread-safety: one thread places and recalls, one thread holds. A core that has its
//! value and is not asked for it makes one atomic load.

use std::sync::PoisonError;

use sync::{Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

mod sync {
    #[cfg(loom)]
    pub(super) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic::AtomicU64};
    pub(super) use std::sync::atomic::Ordering;
    #[cfg(not(loom))]
    pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic::AtomicU64};
}

/// What both sides share.
#[derive(Debug)]
struct State<T> {
    /// For the core to take.
    offered: Option<T>,
    /// For the control thread to take.
    returned: Option<T>,
    /// Whether the core has a value.
    is_held: bool,
    /// Whether the core is to give its value back.
    is_wanted: bool,
}

#[derive(Debug)]
struct Shared<T> {
    /// Grows when the core has something to look at.
    generation: AtomicU64,
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The control thread's side.
#[derive(Debug)]
pub struct Seat<T>(Arc<Shared<T>>);

/// The core's side.
#[derive(Debug)]
pub struct Holder<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
    value: Option<T>,
}

/// Both sides of a place for a value.
#[must_use]
pub fn seat<T>() -> (Seat<T>, Holder<T>) {
    let state = State { offered: None, returned: None, is_held: false, is_wanted: false };
    let shared = Arc::new(Shared {
        generation: AtomicU64::new(0),
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    (Seat(Arc::clone(&shared)), Holder { shared, seen: 0, value: None })
}

impl<T> Seat<T> {
    /// Offers a value to the core, which has none.
    pub fn place(&self, value: T) {
        let mut state = self.0.lock();
        state.offered = Some(value);
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Asks the core for its value, without waiting.
    pub fn ask(&self) {
        self.request(&mut self.0.lock());
    }

    /// Tells the core, if it has the value, that it is to give the value back.
    fn request(&self, state: &mut State<T>) {
        if state.is_held && !state.is_wanted {
            state.is_wanted = true;
            self.0.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Takes the value back, and waits until the core has given it up.
    pub fn recall(&self) -> Option<T> {
        let mut state = self.0.lock();
        loop {
            if let Some(value) = state.offered.take().or_else(|| state.returned.take()) {
                return Some(value);
            }
            if !state.is_held {
                return None;
            }
            // Under the same lock as the look at `offered`: the core may have taken the value after `ask`, which
            // then found nothing to ask for.
            self.request(&mut state);
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Holder<T> {
    /// The value, if there is one. Gives it back first, if it is wanted back.
    #[inline]
    pub fn attend(&mut self) -> Option<&mut T> {
        if self.shared.generation.load(Ordering::Acquire) != self.seen {
            self.exchange();
        }
        self.value.as_mut()
    }

    #[cold]
    fn exchange(&mut self) {
        let mut state = self.shared.lock();
        self.seen = self.shared.generation.load(Ordering::Acquire);
        if state.is_wanted {
            state.is_wanted = false;
            state.is_held = false;
            state.returned = self.value.take();
            self.shared.changed.notify_all();
        }
        if let Some(value) = state.offered.take() {
            state.is_held = true;
            self.value = Some(value);
        }
    }
}

/// Gives the value back.
impl<T> Drop for Holder<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_held = false;
        state.is_wanted = false;
        if self.value.is_some() {
            state.returned = self.value.take();
        }
        self.shared.changed.notify_all();
    }
}
