//! Watches an interface: every 20 ms, and at once after a call that failed.
//!
//! ```text
//!  gone ──> down ──> up, not bound ──opened──> up, bound
//!   ^─────────┴─────────────┴─────────────────────┘
//! ```
//!
//! Whether the port is bound is asked each time the interface is up, because an interface that was
//! deleted or moved may be back, with the same name and the same index, between two looks.
//!
//! The interface may be deleted after the look and before that question. This is why the interface is
//! looked at again if the port is not bound: the kernel removes the name first and unbinds the port
//! after that.
//!
//! A look that fails changes nothing: it is evidence of nothing.
//!
//! Thread-safety: one core's.

use flowyard_frame::Nanos;

use super::calls::Link;
use crate::live::{Interface, State};

/// A change of an interface since it was last looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// The interface was set down.
    Down,
    /// The interface no longer exists under its name.
    Gone,
    /// The interface is up again, and the port is bound to it.
    Up,
    /// The interface is up, and the port is not bound to it: it must be opened again.
    Unbound(Interface),
}

/// Periodically looks at an interface.
#[derive(Debug)]
pub(super) struct Watch<L> {
    pub(super) link: L,
    name: String,
    /// The index of the interface that was last known to be bound.
    pub(super) index: u32,
    /// The longest packet without the link header.
    pub(super) mtu: u32,
    state: Seen,
    next: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Up,
    Down,
    Gone,
}

impl<L: Link> Watch<L> {
    /// Time between two looks, in nanoseconds.
    pub(super) const EVERY: Nanos = 20_000_000;

    /// Watches `interface`, on which the port is open.
    pub(super) fn new(interface: &Interface, link: L) -> Self {
        let state = if interface.is_up { Seen::Up } else { Seen::Down };
        let Interface { ref name, index, mtu, .. } = *interface;
        Self { link, name: name.clone(), index, mtu, state, next: 0 }
    }

    /// The name of the interface.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the interface was up at the last look.
    pub(super) fn is_up(&self) -> bool {
        self.state == Seen::Up
    }

    /// Makes the next call of [`Watch::look`] look at once, because a call failed.
    pub(super) const fn hurry(&mut self) {
        self.next = 0;
    }

    /// Whether it is time to look.
    #[inline]
    pub(super) const fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Looks; `is_bound` says whether the port is bound to the interface with an index.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        is_bound: impl FnOnce(u32) -> bool,
    ) -> Option<Change> {
        self.next = now + Self::EVERY;
        let Ok(mut found) = self.link.look() else { return None };
        let mut is_unbound = false;
        if let Some(State { index, is_up: true, .. }) = found {
            is_unbound = !is_bound(index);
            if is_unbound {
                found = self.link.look().ok()?;
            }
        }
        let state = match found {
            None => Seen::Gone,
            Some(found) if found.is_up => Seen::Up,
            Some(_) => Seen::Down,
        };
        let before = std::mem::replace(&mut self.state, state);
        if let Some(found) = found.filter(|found| found.is_up) {
            self.mtu = found.mtu;
            if is_unbound {
                let name = self.name.clone();
                let (index, mtu) = (found.index, found.mtu);
                return Some(Change::Unbound(Interface { name, index, mtu, is_up: true }));
            }
            self.index = found.index;
        }
        match (before, state) {
            (Seen::Up | Seen::Down, Seen::Gone) => Some(Change::Gone),
            (Seen::Up, Seen::Down) => Some(Change::Down),
            (Seen::Down | Seen::Gone, Seen::Up) => Some(Change::Up),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Counts;
    use std::io;

    struct Script(Vec<io::Result<Option<State>>>);

    impl Link for Script {
        fn look(&mut self) -> io::Result<Option<State>> {
            self.0.remove(0)
        }

        fn counts(&mut self) -> Option<Counts> {
            None
        }
    }

    fn up(index: u32) -> io::Result<Option<State>> {
        Ok(Some(State { index, mtu: 1500, is_up: true }))
    }

    fn interface(index: u32) -> Interface {
        Interface { name: "eth0".into(), index, mtu: 1500, is_up: true }
    }

    fn changes(script: Vec<io::Result<Option<State>>>, bound: &[bool]) -> Vec<Option<Change>> {
        let mut watch = Watch::new(&interface(7), Script(script));
        let (mut bound, mut found, mut now) = (bound.iter(), Vec::new(), 0);
        while !watch.link.0.is_empty() {
            assert!(watch.is_due(now));
            found.push(watch.look(now, |_| *bound.next().unwrap()));
            assert!(!watch.is_due(now + 1));
            now += Watch::<Script>::EVERY;
        }
        found
    }

    #[test]
    fn an_interface_that_returns_with_its_index_is_not_taken_for_bound() {
        let script = vec![up(7), Ok(None), up(7), up(7), up(7), up(7), up(7)];
        let unbound = Some(Change::Unbound(interface(7)));
        assert_eq!(
            changes(script, &[true, false, false, true]),
            [None, Some(Change::Gone), unbound.clone(), unbound, None]
        );
        // The same between two looks.
        assert!(changes(vec![up(7), up(7), up(7)], &[true, false])[1].is_some());
    }

    #[test]
    fn an_interface_that_is_deleted_after_the_look_is_gone() {
        let script = vec![up(7), up(7), Ok(None), up(8), up(8)];
        let recreated = Some(Change::Unbound(interface(8)));
        assert_eq!(changes(script, &[true, false, false]), [None, Some(Change::Gone), recreated]);
    }

    #[test]
    fn a_bound_interface_may_have_a_new_index() {
        assert_eq!(changes(vec![up(7), up(9), up(9)], &[true; 3]), [None, None, None]);
    }

    #[test]
    fn a_look_that_fails_is_evidence_of_nothing() {
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(changes(vec![up(7), failed(), up(7)], &[true; 2]), [None, None, None]);
    }
}
