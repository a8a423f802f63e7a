//! The services of a cluster of balancers, from a provider: etcd, or a document at a URL.
//!
//! ```text
//!  provider ──each second── poll ──offer──> Cluster ──take──> the run: compose, check, reload ──┐
//!    ^                                        ^  └── state: the last good services on disk      │
//!    └── etcd: status of this node ── watch ──┘<─────────── in use, or refused and why ─────────┘
//! ```
//!
//! All keys below `PREFIX/config/` at one revision of etcd are one *generation*. The nodes agree on its number by the key
//! `PREFIX/generation`: the first node that sees other contents writes their digest and the revision at which it saw
//! them, if nobody has since. So equal contents have the same number on all nodes, also after a key was deleted, which
//! no revision of the keys that are left shows.
//!
//! Invariants: an offer is used as a whole or not at all; an empty offer never replaces services; what is in use was
//! composed from one revision.
//! Thread-safety: [`Cluster`] may be used by any thread; one thread talks to the provider.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flowyard_config::{Fragment, Lookup};
use flowyard_frame::Nanos;
use flowyard_yard::ControlPlane;

mod client;
mod document;
mod etcd;
pub mod fleet;
mod found;
mod http;
mod kubernetes;
mod login;
mod lookup;
mod poll;
mod provider;
mod state;
pub mod status;
mod watch;

pub use etcd::{Etcd, EtcdError};
pub use found::{Found, Polled};
pub use login::OpenError;
pub use poll::{Poller, place};
pub use provider::{Provider, name};
pub use state::{StateError, StateFile};
pub use watch::{UnixClock, Watcher, WatcherSettings, first_poll};

/// The services of a generation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// The number of the generation.
    pub generation: u64,
    /// Services and backends.
    pub fragments: Vec<Fragment>,
}

impl Snapshot {
    /// Whether there is no service.
    fn is_empty(&self) -> bool {
        self.fragments.iter().all(Fragment::is_empty)
    }
}

/// Why an empty offer is refused.
const EMPTY: &str = "has no services any more, which is more likely a mistake than intended; the services in use stay. \
     To remove all services, delete the file in 'state' of [cluster] on each node and restart it";

/// What this node knows of its cluster, for metrics and for its status.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// The generation in use.
    pub generation: u64,
    /// The newest generation that was seen.
    pub seen: u64,
    /// Why the newest generation is not in use, if it was refused.
    pub error: Option<String>,
    /// The number of generations that were refused since the start.
    pub refusals: u64,
    /// Whether the services in use are those of the file in `state`, because the provider had none that could be used at the start.
    pub is_from_file: bool,
    /// Why a query of the provider has failed, if one has.
    pub unreachable: Option<String>,
    /// When the provider last answered all queries, if it ever did.
    pub answered: Option<Nanos>,
    /// Whether another instance writes its status under the name of this node.
    pub has_namesake: bool,
}

#[derive(Debug, Default)]
struct Inner {
    view: View,
    used: Snapshot,
    /// Waits for the run.
    offered: Option<Snapshot>,
    /// Was refused by the run.
    refused: Option<Snapshot>,
    /// The records that backends come from.
    lookups: Vec<Lookup>,
    is_over: bool,
}

/// What the run and the thread that talks to the provider share.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The name of the provider in messages.
    name: String,
    inner: Mutex<Inner>,
    /// Notified when the run has decided about an offer, and at the end.
    changed: Condvar,
}

impl ControlPlane for Cluster {}

impl Inner {
    fn offer(&mut self, snapshot: Snapshot) {
        self.view.seen = snapshot.generation;
        self.refused = None;
        self.offered = Some(snapshot);
    }

    /// Refuses a generation. The services in `refused` are offered again when the file of the configuration has changed.
    fn refuse(&mut self, generation: u64, why: String, refused: Option<Snapshot>) {
        self.view.seen = generation;
        self.view.error = Some(why);
        self.view.refusals += 1;
        (self.offered, self.refused) = (None, refused);
    }

    fn used(&mut self, snapshot: Snapshot, is_from_file: bool) {
        self.view.generation = snapshot.generation;
        if self.view.seen == 0 {
            self.view.seen = snapshot.generation;
        }
        self.view.is_from_file = is_from_file;
        if self.view.seen == snapshot.generation {
            self.view.error = None;
        }
        self.used = snapshot;
    }
}

impl Cluster {
    /// Nothing is in use yet. The name of the provider is for messages.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The name of the provider in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Offers services to the run. An offer that was not taken yet is replaced.
    pub fn offer(&self, snapshot: Snapshot) {
        let mut inner = self.lock();
        if snapshot.is_empty() && !inner.used.is_empty() {
            let why = format!("{} {EMPTY}", self.name);
            inner.refuse(snapshot.generation, why.clone(), None);
            drop(inner);
            self.log_refusal(snapshot.generation, &why);
            self.changed.notify_all();
            return;
        }
        inner.offer(snapshot);
    }

    /// The services that wait for the run, if there are any.
    pub fn take(&self) -> Option<Snapshot> {
        self.lock().offered.take()
    }

    /// Offers what was refused again: the file of the configuration has changed.
    pub fn offer_again(&self) {
        let mut inner = self.lock();
        if inner.offered.is_none() {
            inner.offered = inner.refused.take();
        }
    }

    /// Records that these services are in use.
    pub fn used(&self, snapshot: Snapshot) {
        self.lock().used(snapshot, false);
        self.changed.notify_all();
    }

    /// Records that these services of the file in `state` are in use.
    pub fn used_saved(&self, snapshot: Snapshot) {
        self.lock().used(snapshot, true);
        self.changed.notify_all();
    }

    /// Records that these services were refused, and logs it.
    pub fn refuse(&self, snapshot: Snapshot, why: String) {
        self.log_refusal(snapshot.generation, &why);
        self.lock().refuse(snapshot.generation, why, Some(snapshot));
        self.changed.notify_all();
    }

    /// As [`Cluster::refuse`], whatever the file of the configuration says.
    pub fn refuse_for_good(&self, generation: u64, why: String) {
        self.log_refusal(generation, &why);
        self.lock().refuse(generation, why, None);
        self.changed.notify_all();
    }

    fn log_refusal(&self, generation: u64, why: &str) {
        tracing::error!(generation, "services of {} refused, nothing changed: {why}", self.name);
    }

    /// The services in use.
    #[must_use]
    pub fn in_use(&self) -> Snapshot {
        self.lock().used.clone()
    }

    /// Looks up these records from now on: those of the file.
    pub fn look_up(&self, lookups: Vec<Lookup>) {
        self.lock().lookups = lookups;
    }

    /// The records that backends come from.
    fn lookups(&self) -> Vec<Lookup> {
        self.lock().lookups.clone()
    }

    /// What this node knows of its cluster.
    #[must_use]
    pub fn view(&self) -> View {
        self.lock().view.clone()
    }

    /// Records whether the provider has answered.
    fn contact(&self, now: Nanos, unreachable: Option<String>) {
        let view = &mut self.lock().view;
        if unreachable.is_none() {
            view.answered = Some(now);
        }
        view.unreachable = unreachable;
    }

    /// Records whether another instance has the name of this node.
    fn namesake(&self, has_namesake: bool) {
        self.lock().view.has_namesake = has_namesake;
    }

    /// Waits for a decision of the run, or for this time; returns whether the run is over.
    fn wait(&self, seen: &View, time: Duration) -> bool {
        let waits = |inner: &mut Inner| !inner.is_over && inner.view == *seen;
        let inner = self.changed.wait_timeout_while(self.lock(), time, waits);
        inner.map_or(true, |(inner, _)| inner.is_over)
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
