//! The parts of a port that is opened again: one for each core, opened together.
//!
//! ```text
//!  core 0 sees the interface first ── opens ──> [part 0] [part 1]
//!                                     takes <──────┘        │
//!  core 1 sees it up to 20 ms later ─────────────── takes <─┘   frames wait there meanwhile
//! ```
//!
//! A port has many lives, numbered from 0: each time it is opened, a new one begins. The index of the
//! interface does not tell them apart, because an interface may come back with its index. The core
//! that finds its part of the present life dead opens the next life; a core whose part is older
//! takes what was opened meanwhile, and finds out by itself if that is dead already.
//!
//! Before a life begins, the parts of the one before are silenced: what they hold is still received,
//! but no frame is received twice.
//!
//! If the parts were opened one by one, the first one would receive every flow and later lose some
//! of them to the second, which could overtake the frames still in the first.
//!
//! Invariant: the parts of a life are opened once, and each is taken once.
//! Thread-safety: shared by the cores of a port; locked only when the port is opened.

use std::sync::{Mutex, PoisonError};

use super::calls::Silencer;
use crate::live::{Interface, OpenError};

/// The parts of the present life of a port.
pub(super) struct Parts<T>(Mutex<Life<T>>);

struct Life<T> {
    number: u64,
    parts: Vec<Option<T>>,
    silencers: Vec<Silencer>,
}

impl<T> Parts<T> {
    /// Life 0, whose parts were handed out.
    pub(super) const fn new(silencers: Vec<Silencer>) -> Self {
        Self(Mutex::new(Life { number: 0, parts: Vec::new(), silencers }))
    }

    /// Takes part `at`, in exchange for one of life `mine`. The first caller of each life opens all
    /// parts of the next one. Also returns the life.
    pub(super) fn take(
        &self,
        at: usize,
        mine: u64,
        on: &Interface,
        open: impl FnOnce() -> Result<Vec<T>, OpenError>,
        silencer: impl Fn(&T) -> Option<Silencer>,
    ) -> Result<(T, u64), OpenError> {
        let mut life = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if life.number == mine {
            life.silencers.drain(..).for_each(|silence| silence());
            let parts = open()?;
            *life = Life {
                number: mine + 1,
                silencers: parts.iter().filter_map(silencer).collect(),
                parts: parts.into_iter().map(Some).collect(),
            };
        }
        let number = life.number;
        let part = life.parts.get_mut(at).and_then(Option::take).ok_or_else(|| OpenError {
            what: format!("the queue of this core on '{}' is already in use", on.name),
            fix: "restart flowyard".into(),
        })?;
        Ok((part, number))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn interface() -> Interface {
        Interface { name: "eth0".into(), index: 7, mtu: 1500, is_up: true }
    }

    #[test]
    fn parts_are_opened_together_once_a_life() {
        let silenced = Arc::new(AtomicUsize::new(0));
        let silencer = |_: &_| {
            let silenced = Arc::clone(&silenced);
            let silence = move || {
                silenced.fetch_add(1, Ordering::Relaxed);
            };
            Some(Box::new(silence) as Silencer)
        };
        let (parts, mut opened) = (Parts::new(Vec::new()), 0);
        for life in [0, 1] {
            for at in [1, 0] {
                let part = parts.take(
                    at,
                    life,
                    &interface(),
                    || {
                        opened += 1;
                        Ok(vec![(life, 0), (life, 1)])
                    },
                    silencer,
                );
                assert_eq!(part.unwrap(), ((life, at), life + 1));
                assert_eq!(silenced.load(Ordering::Relaxed), 2 * life as usize);
            }
        }
        assert_eq!(opened, 2);
        // Nobody holds a part of an older life than the last one whose part was not taken.
        assert!(parts.take(0, 1, &interface(), || Ok(Vec::new()), silencer).is_err());
    }

    #[test]
    fn a_core_that_missed_a_life_takes_the_present_one() {
        let parts = Parts::new(Vec::new());
        let open = |number| move || Ok(vec![(number, 0), (number, 1)]);
        assert_eq!(parts.take(0, 0, &interface(), open(1), |_| None).unwrap(), ((1, 0), 1));
        assert_eq!(parts.take(0, 1, &interface(), open(2), |_| None).unwrap(), ((2, 0), 2));
        assert_eq!(parts.take(1, 0, &interface(), open(9), |_| None).unwrap(), ((2, 1), 2));
    }

    #[test]
    fn opening_is_retried_after_an_error() {
        let parts = Parts::new(Vec::new());
        let refused = || Err(OpenError { what: "no".into(), fix: "yes".into() });
        assert!(parts.take(0, 0, &interface(), refused, |_| None).is_err());
        assert_eq!(parts.take(0, 0, &interface(), || Ok(vec![3]), |_| None).unwrap(), (3, 1));
    }
}
