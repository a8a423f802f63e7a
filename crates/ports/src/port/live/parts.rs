//! The parts of a port on an interface that came back: one for each core, opened together.
//!
//! ```text
//!  core 0 sees the interface first ── opens ──> [part 0] [part 1]
//!                                     takes <──────┘        │
//!  core 1 sees it up to 20 ms later ─────────────── takes <─┘   what came meanwhile waits in it
//! ```
//!
//! Opened one by one, the first part would get every flow, and lose some of them to the second while
//! it still has their frames: those would be overtaken.
//!
//! Invariant: of one interface, parts are opened once, and each is taken once.
//! Thread-safety: shared by the cores of a port; locked when an interface came back only.

use std::sync::{Mutex, PoisonError};

use crate::live::{Interface, OpenError};

/// The parts, by the number of the interface that they are on.
#[derive(Debug)]
pub(super) struct Parts<T>(Mutex<(u32, Vec<Option<T>>)>);

impl<T> Parts<T> {
    /// Of no interface yet.
    pub(super) const fn new() -> Self {
        Self(Mutex::new((0, Vec::new())))
    }

    /// Part `at` on `interface`; whoever asks first opens all of them.
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
            what: format!("this core's part of '{}' is in use", interface.name),
            fix: "restart the yard".into(),
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
    fn what_cannot_be_opened_is_tried_again() {
        let parts = Parts::new();
        let refused = || Err(OpenError { what: "no".into(), fix: "yes".into() });
        assert!(parts.take(0, &interface(7), refused).is_err());
        assert_eq!(parts.take(0, &interface(7), || Ok(vec![3])).unwrap(), 3);
    }
}
