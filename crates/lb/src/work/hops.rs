//! Next hops: what has been learnt about the path to each backend.
//!
//! The next hops are rebuilt with every plan, by the thread that builds plans. The state of a backend
//! that exists in both plans is kept.
//!
//! Thread-safety: shared and read-only; neighbours and path MTUs are atomic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Exit, Plan, Target};
use flowyard_frame::Nanos;

use flowyard_works::neighbour::{Neighbour, Neighbours};

/// The path to a backend.
#[derive(Debug)]
pub(super) struct Hop {
    /// The backend's ID.
    id: u32,
    /// The next hop, if its MAC address must be resolved.
    pub(super) neighbour: Option<Arc<Neighbour>>,
    /// The low 32 bits are the path MTU that a router reported, in bytes; the high 32 bits are the time at
    /// which it expires, in seconds. 0 is no report.
    path: AtomicU64,
}

/// Lifetime of a path MTU (RFC 1191 section 6.3, RFC 8201 section 4).
const LIFETIME: Nanos = 600_000_000_000;
const SECOND: Nanos = 1_000_000_000;

impl Hop {
    fn new(id: u32, neighbour: Option<Arc<Neighbour>>) -> Self {
        Self { id, neighbour, path: AtomicU64::new(0) }
    }

    /// Records a path MTU that a router reported.
    pub(super) fn note_mtu(&self, mtu: usize, now: Nanos) {
        let until = now.saturating_add(LIFETIME) / SECOND;
        self.path.store(until << 32 | mtu.min(65_535) as u64, Ordering::Relaxed);
    }

    /// The path MTU, if a report has not expired.
    #[inline]
    pub(super) fn mtu(&self, now: Nanos) -> Option<usize> {
        let path = self.path.load(Ordering::Relaxed);
        (now / SECOND < path >> 32).then_some(path as u32 as usize)
    }
}

/// The paths to all backends, by their index in the plan.
#[derive(Debug, Default)]
pub(super) struct Hops(Vec<Option<Arc<Hop>>>);

impl Hops {
    /// The paths to the backends of `plan`. State is taken over from `old`.
    pub(super) fn of(plan: &Plan, old: &Self, neighbours: &Neighbours) -> Self {
        let places = plan.targets().map(|target| target.place() + 1).max().unwrap_or(0);
        let mut all = vec![None; places];
        for target in plan.targets() {
            let neighbour = neighbour(target.exit, neighbours);
            let known = old.0.get(target.place()).and_then(Option::as_ref);
            // A reload may change the next hop of a backend that stays.
            let same = |known: &&Arc<Hop>| {
                known.id == target.id
                    && known.neighbour.as_ref().map(Arc::as_ptr)
                        == neighbour.as_ref().map(Arc::as_ptr)
            };
            let hop = known.filter(same).cloned();
            all[target.place()] =
                Some(hop.unwrap_or_else(|| Arc::new(Hop::new(target.id, neighbour))));
        }
        Self(all)
    }

    /// The path to a backend.
    #[inline]
    pub(super) fn get(&self, target: &Target) -> Option<&Hop> {
        self.0.get(target.place())?.as_deref()
    }
}

/// The neighbour entry of the next hop at `exit`, if its MAC address must be resolved.
pub(super) fn neighbour(exit: Exit, neighbours: &Neighbours) -> Option<Arc<Neighbour>> {
    Some(neighbours.entry(exit.port, exit.via?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reported_mtu_lasts_ten_minutes() {
        let hop = Hop::new(1, None);
        assert_eq!(hop.mtu(0), None);
        for start in [0, 5 * SECOND, 1_000_000 * SECOND] {
            hop.note_mtu(1400, start);
            for (after, mtu) in [(0, Some(1400)), (LIFETIME - 1, Some(1400)), (LIFETIME, None)] {
                assert_eq!(hop.mtu(start + after), mtu, "{after} ns after {start}");
            }
        }
        hop.note_mtu(70_000, 0);
        assert_eq!(hop.mtu(0), Some(65_535));
    }
}
