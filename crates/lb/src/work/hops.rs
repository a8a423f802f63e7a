//! Hops: what is known of the way to each backend, beside the plan.
//!
//! Made with every plan, where plans are made; what is known of a backend that stays, stays.
//!
//! Thread-safety: shared and read-only; neighbours are atomic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Exit, Plan, Target};
use flowyard_frame::Nanos;

use flowyard_works::neighbour::{Neighbour, Neighbours};

/// The way to a backend.
#[derive(Debug)]
pub(super) struct Hop {
    /// The backend's number.
    id: u32,
    /// The next hop, if its MAC address is asked for.
    pub(super) neighbour: Option<Arc<Neighbour>>,
    /// What a router said fits through to it, in bytes, and until when that is believed, in seconds: in the low
    /// 32 bits and the high ones. 0 is nothing.
    path: AtomicU64,
}

/// For how long the MTU of a path is believed (RFC 1191 section 6.3, RFC 8201 section 4).
const BELIEVED: Nanos = 600_000_000_000;
const SECOND: Nanos = 1_000_000_000;

impl Hop {
    fn new(id: u32, neighbour: Option<Arc<Neighbour>>) -> Self {
        Self { id, neighbour, path: AtomicU64::new(0) }
    }

    /// A router says that no more than `mtu` bytes fit through.
    pub(super) fn note_mtu(&self, mtu: usize, now: Nanos) {
        let until = now.saturating_add(BELIEVED) / SECOND;
        self.path.store(until << 32 | mtu.min(65_535) as u64, Ordering::Relaxed);
    }

    /// What fits through, as far as anybody has said.
    #[inline]
    pub(super) fn mtu(&self, now: Nanos) -> Option<usize> {
        let path = self.path.load(Ordering::Relaxed);
        (now / SECOND < path >> 32).then_some(path as u32 as usize)
    }
}

/// The ways to all backends, by place.
#[derive(Debug, Default)]
pub(super) struct Hops(Vec<Option<Arc<Hop>>>);

impl Hops {
    /// Those of `plan`, with what `old` knows of them.
    pub(super) fn of(plan: &Plan, old: &Self, neighbours: &Neighbours) -> Self {
        let places = plan.targets().map(|target| target.place() + 1).max().unwrap_or(0);
        let mut all = vec![None; places];
        for target in plan.targets() {
            let neighbour = neighbour(target.exit, neighbours);
            let known = old.0.get(target.place()).and_then(Option::as_ref);
            // The way to a backend may be another after a reload, the backend the same.
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

    /// The way to a backend.
    #[inline]
    pub(super) fn get(&self, target: &Target) -> Option<&Hop> {
        self.0.get(target.place())?.as_deref()
    }
}

/// The entry of the next hop at `exit`, if it has to be asked for.
pub(super) fn neighbour(exit: Exit, neighbours: &Neighbours) -> Option<Arc<Neighbour>> {
    Some(neighbours.entry(exit.port, exit.via?))
}
