//! The parts of a port on a recreated interface: one for each core, opened together.
//!
//! ```text
//!  core 0 sees the interface first ── opens ──> [part 0] [part 1]
//!                                     takes <──────┘        │
//!  core 1 sees it up to 20 ms later ─────────────── takes <─┘   frames wait there meanwhile
//! ```
//!
//! If the parts were opened one by one, the first one would receive every flow and later lose some
//! of them to the second, which could overtake the frames still in the first.
//!
//! Invariant: the parts of an interface are opened once, and each is taken once.
//! Thread-safety: shared by the cores of a port; locked only when an interface was recreated.

use std::sync::{Mutex, PoisonError};

use crate::live::{Interface, OpenError};

/// The index of the interface, and its parts.
#[derive(Debug)]
pub(super) struct Parts<T>(Mutex<(u32, Vec<Option<T>>)>);

impl<T> Parts<T> {
    /// No parts yet.
    pub(super) const fn new() -> Self {
        Self(Mutex::new((0, Vec::new())))
    }

    /// Takes part `at` on `interface`; the first caller opens all parts.
    pub(super) fn take(
        &self,
        at: usize,
        interface: &Interface,
        open: impl FnOnce() -> Result<Vec<T>, OpenError>,
    ) -> Result<T, OpenError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0 != interface.index {
            *held = (interface.index, open()?.into_iter().map(Some).collect());
        }
        held.1.get_mut(at).and_then(Option::take).ok_or_else(|| OpenError {
            what: format!("the queue of this core on '{}' is already in use", interface.name),
            fix: "restart flowyard".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32) -> Interface {
        Interface { name: "eth0".into(), index, mtu: 1500, is_up: true }
    }

    #[test]
    fn parts_are_opened_together_once() {
        let (parts, mut opened) = (Parts::new(), 0);
        for index in [7, 8] {
            for at in [1, 0] {
                let part = parts.take(at, &interface(index), || {
                    opened += 1;
                    Ok(vec![(index, 0), (index, 1)])
                });
                assert_eq!(part.unwrap(), (index, at));
            }
        }
        assert_eq!(opened, 2);
        assert!(parts.take(0, &interface(8), || Ok(Vec::new())).is_err());
    }

    #[test]
    fn opening_is_retried_after_an_error() {
        let parts = Parts::new();
        let refused = || Err(OpenError { what: "no".into(), fix: "yes".into() });
        assert!(parts.take(0, &interface(7), refused).is_err());
        assert_eq!(parts.take(0, &interface(7), || Ok(vec![3])).unwrap(), 3);
    }
}
