//! Limits of the connections of a backend.
//!
//! ```text
//!  connections  0 ........ resume ........ most
//!               accepts    accepts, or not  does not accept
//!                          (as before)
//! ```
//!
//! The number of connections of a backend is one for all cores. It is written when a connection is entered or removed, not
//! with each packet. A core reads it when it places a connection, and writes it when it enters the connection. Between both,
//! each other core can enter one more connection.
//!
//! Invariants: a backend that does not accept connections has at least `resume` of them.
//! Thread-safety: atomic numbers; any thread may read them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use super::{Plan, Table, Target};
use crate::conns::ConnKey;
use flowyard_yard::DropReason;

/// The most entries of the Maglev table that are examined for a backend that accepts connections, before all backends of the
/// service are.
const NEAR: usize = 64;

/// Thresholds of a backend's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ceiling {
    most: u32,
    resume: u32,
}

impl Ceiling {
    /// A backend with `most` connections accepts no new ones, until it has less than `resume`. The default of `resume` is that
    /// of IPVS: three quarters of `most`. Both are at least 1, and `resume` is at most `most`.
    #[must_use]
    pub fn new(most: u32, resume: Option<u32>) -> Self {
        let most = most.max(1);
        Self { most, resume: resume.unwrap_or(most - most / 4).clamp(1, most) }
    }

    /// The number of connections with which the backend accepts no new ones.
    #[must_use]
    pub const fn most(&self) -> u32 {
        self.most
    }

    /// With less connections than this the backend accepts new ones again.
    #[must_use]
    pub const fn resume(&self) -> u32 {
        self.resume
    }
}

/// The current connections of a backend over all cores.
#[derive(Debug, Default)]
pub struct Active {
    count: AtomicU32,
    /// Whether the backend has reached its limit, and was not seen below the lower threshold since.
    is_full: AtomicBool,
}

impl Active {
    /// The number of connections.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Counts a connection that was entered or removed.
    fn count(&self, came: bool) {
        // Saturates, because an entry may have been counted for an earlier backend with the same ID.
        let change = |n: u32| Some(if came { n.saturating_add(1) } else { n.saturating_sub(1) });
        let _ = self.count.fetch_update(Relaxed, Relaxed, change);
    }

    /// Whether there is room for another connection below `ceiling`.
    fn has_room(&self, ceiling: Ceiling) -> bool {
        let (count, was_full) = (self.get(), self.is_full.load(Relaxed));
        let is_full = count >= if was_full { ceiling.resume } else { ceiling.most };
        if is_full != was_full {
            self.is_full.store(is_full, Relaxed);
        }
        !is_full
    }

    #[cfg(test)]
    pub(crate) fn set(&self, count: u32) {
        self.count.store(count, Relaxed);
    }
}

impl Target {
    /// Counts a connection that was entered or removed.
    pub(crate) fn count(&self, came: bool) {
        self.active.count(came);
        if let Some(ceiling) = self.ceiling {
            self.active.has_room(ceiling);
        }
    }

    /// Whether the backend accepts new connections, as far as its limit of connections decides.
    #[must_use]
    #[inline]
    pub fn has_room(&self) -> bool {
        self.ceiling.is_none_or(|ceiling| self.active.has_room(ceiling))
    }
}

impl Plan {
    /// The backend for a new connection in place of `full`, which has reached its limit, or cannot have it. `None` if no other
    /// backend of the service accepts connections and `may` have this one.
    ///
    /// The next entries of the Maglev table are examined first, so that the connections are spread over the others by weight.
    #[must_use]
    pub fn instead(
        &self,
        full: &Target,
        key: &ConnKey,
        hash: u64,
        may: impl Fn(&Target) -> bool,
    ) -> Option<&Target> {
        let table = self.services.get(usize::from(full.service))?;
        let accepts = |target: &&Target| target.weight > 0 && target.has_room() && may(target);
        if table.service.choice.compares() {
            return self.compared(table, |target| accepts(&target));
        }
        let (entries, at) =
            (table.maglev.entries(), table.maglev.entry(self.hash_of(table, key, hash)));
        let near = (1..=NEAR.min(entries.len())).map(|next| entries[(at + next) % entries.len()]);
        let mut near = near.filter_map(|index| self.member(table, index));
        if let Some(target) = near.find(accepts) {
            return Some(target);
        }
        let all = table.members.len();
        let from = usize::from(full.index);
        let mut others = (1..all).map(|next| ((from + next) % all) as u16);
        others.find_map(|index| self.member(table, index).filter(accepts))
    }

    /// Why no backend of a service was chosen.
    #[must_use]
    pub fn why_none(&self, service: u16) -> DropReason {
        let table = self.services.get(usize::from(service));
        match table.is_some_and(|table| !table.maglev.entries().is_empty()) {
            true => DropReason::BackendLimit, // of weights that are limits
            false => DropReason::NoBackend,
        }
    }

    /// Whether a backend of the service accepts connections.
    #[must_use]
    pub fn has_room(&self, table: &Table) -> bool {
        self.members(table).any(|target| target.weight > 0 && target.has_room())
    }
}

#[cfg(test)]
mod tests;
