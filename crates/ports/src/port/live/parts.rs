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
//! takes what was opened meanwhile, life by life if frames wait in parts that it has not taken.
//!
//! Before a life begins, the parts of the one before are silenced: what a ring holds is still received,
//! but no frame is received twice, and no part receives a frame that is newer than those of a newer part.
//!
//! If the parts were opened one by one, the first one would receive every flow and later lose some
//! of them to the second, which could overtake the frames still in the first.
//!
//! Invariant: the parts of a life are opened once, and each is taken once.
//! Thread-safety: shared by the cores of a port; locked only when the port is opened.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::calls::Silencer;
use crate::live::{Interface, OpenError};

/// The parts of a port.
pub(super) struct Parts<T> {
    /// The number of the present life.
    number: AtomicU64,
    /// Whether the parts of the present life were silenced. They stay so if the next life cannot be opened.
    is_silenced: AtomicBool,
    life: Mutex<Life<T>>,
}

struct Life<T> {
    /// By core: the parts that it has not taken, oldest first, with their lives.
    waiting: Vec<VecDeque<(u64, T)>>,
    /// Of the present life.
    silencers: Vec<Silencer>,
    /// Frames that were discarded by silencing, and are not reported yet.
    discarded: u32,
}

/// Parts that wait for a core, which may have died.
const MOST: usize = 8;

impl<T> Parts<T> {
    /// Life 0, whose parts were handed out.
    pub(super) const fn new(silencers: Vec<Silencer>) -> Self {
        let life = Life { waiting: Vec::new(), silencers, discarded: 0 };
        let is_silenced = AtomicBool::new(false);
        Self { number: AtomicU64::new(0), is_silenced, life: Mutex::new(life) }
    }

    /// Whether `life` is the present one; a part of an older one receives nothing more.
    pub(super) fn is_present(&self, life: u64) -> bool {
        self.number.load(Ordering::Relaxed) == life
    }

    /// Whether `life` is the present one and its parts were not silenced.
    pub(super) fn receives(&self, life: u64) -> bool {
        self.is_present(life) && !self.is_silenced.load(Ordering::Relaxed)
    }

    /// Takes the next part for the core at position `at`, in exchange for one of life `mine`. The
    /// first caller of each life opens all parts of the next one. A core that missed a life takes its
    /// part of that first, unless `holds` says that no frames wait in it. Also returns the life.
    /// `open` receives the number of frames that were discarded in older parts.
    pub(super) fn take(
        &self,
        (at, mine): (usize, u64),
        on: &Interface,
        open: impl FnOnce(u32) -> Result<Vec<T>, OpenError>,
        silencer: impl Fn(&T) -> Silencer,
        holds: impl Fn(&mut T) -> bool,
    ) -> Result<(T, u64), OpenError> {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_present(mine) {
            let Life { silencers, discarded, .. } = &mut *life;
            self.is_silenced.store(true, Ordering::Relaxed);
            *discarded += silencers.drain(..).map(|silence| silence()).sum::<u32>();
            let parts = open(*discarded)?;
            *discarded = 0;
            silencers.extend(parts.iter().map(silencer));
            life.waiting.resize_with(parts.len(), VecDeque::new);
            for (waiting, part) in life.waiting.iter_mut().zip(parts) {
                waiting.retain_mut(|(_, old)| holds(old));
                waiting.truncate(MOST);
                waiting.push_back((mine + 1, part));
            }
            self.number.store(mine + 1, Ordering::Relaxed);
            self.is_silenced.store(false, Ordering::Relaxed);
        }
        let next = life.waiting.get_mut(at).and_then(VecDeque::pop_front);
        let (number, part) = next.ok_or_else(|| OpenError {
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
            Box::new(move || {
                silenced.fetch_add(1, Ordering::Relaxed);
                3_u32
            }) as Silencer
        };
        let (parts, mut opened) = (Parts::new(Vec::new()), 0);
        for life in [0, 1] {
            for at in [1, 0] {
                let open = |discarded| {
                    opened += 1;
                    assert_eq!(discarded, if life == 0 { 0 } else { 6 });
                    Ok(vec![(life, 0), (life, 1)])
                };
                let part = parts.take((at, life), &interface(), open, silencer, |_| true);
                assert_eq!(part.unwrap(), ((life, at), life + 1));
                assert_eq!(silenced.load(Ordering::Relaxed), 2 * life as usize);
            }
        }
        assert_eq!(opened, 2);
        // Each part is taken once.
        assert!(parts.take((0, 1), &interface(), |_| Ok(Vec::new()), silencer, |_| true).is_err());
    }

    /// Takes a part; opening gives parts of life `number`. `holds`: frames wait in old parts.
    fn take(parts: &Parts<(u64, usize)>, at: usize, mine: u64, holds: bool) -> ((u64, usize), u64) {
        let open = |_| Ok(vec![(mine + 1, 0), (mine + 1, 1)]);
        parts.take((at, mine), &interface(), open, |_| done(), |_| holds).unwrap()
    }

    fn done() -> Silencer {
        Box::new(|| 0)
    }

    #[test]
    fn frames_that_were_discarded_are_reported_when_the_port_is_open() {
        let parts: Parts<u32> = Parts::new(vec![Box::new(|| 5)]);
        let refused = |_| Err(OpenError { what: "no".into(), fix: "yes".into() });
        assert!(parts.take((0, 0), &interface(), refused, |_| done(), |_| true).is_err());
        let mut seen = Vec::new();
        for life in [0, 1] {
            let open = |discarded| {
                seen.push(discarded);
                Ok(vec![discarded])
            };
            parts.take((0, life), &interface(), open, |_| done(), |_| true).unwrap();
        }
        assert_eq!(seen, [5, 0]);
    }

    #[test]
    fn a_core_that_missed_a_life_takes_the_present_one() {
        let parts = Parts::new(Vec::new());
        assert_eq!(take(&parts, 0, 0, false), ((1, 0), 1));
        assert_eq!(take(&parts, 0, 1, false), ((2, 0), 2));
        assert_eq!(take(&parts, 1, 0, false), ((2, 1), 2));
        assert!(parts.is_present(2) && !parts.is_present(1));
    }

    #[test]
    fn a_part_in_which_frames_wait_is_not_left_out() {
        let parts = Parts::new(Vec::new());
        assert_eq!(take(&parts, 0, 0, true), ((1, 0), 1));
        assert_eq!(take(&parts, 0, 1, true), ((2, 0), 2));
        assert_eq!(take(&parts, 1, 0, true), ((1, 1), 1));
        assert_eq!(take(&parts, 1, 1, true), ((2, 1), 2));
    }

    #[test]
    fn opening_is_retried_after_an_error() {
        let parts = Parts::new(Vec::new());
        let refused = |_| Err(OpenError { what: "no".into(), fix: "yes".into() });
        assert!(parts.receives(0));
        assert!(parts.take((0, 0), &interface(), refused, |_| done(), |_: &mut _| true).is_err());
        assert!(parts.is_present(0) && !parts.receives(0));
        let open = |_| Ok(vec![3]);
        assert_eq!(parts.take((0, 0), &interface(), open, |_| done(), |_| true).unwrap(), (3, 1));
        assert!(parts.receives(1));
    }
}
