//! Synchronization of connections between the nodes of a fleet (`[balance.sync]`).
//!
//! ```text
//!  tables of the cores ──Scan, each interval──> reports ──TCP, a session to each peer──> other nodes
//!  other nodes ──TCP, a session from each peer──> Replica <──miss of an established connection── cores
//! ```
//!
//! Nodes with equal services have equal Maglev tables, so most connections go to the same backend on every node without any
//! message. The others are reported ([`flowyard_lb::Scan`]): when they are found first, once in each eighth of the longest
//! time-out, and when they are gone. A session begins with all of them. Ends of connections of which another node may have an entry
//! are sent when they are seen ([`flowyard_lb::End`]). If a session ends, what it has reported stays until its
//! time is over, because the node may have been killed.
//!
//! Invariants: a scan takes no more than a tenth of a processor; a peer that is slow or gone does not delay others; what a peer
//! sends is used after its authentication only, and only if it has the same seed.
//! Thread-safety: threads of their own; cores only read the replica.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use flowyard_lb::{Hub, Scan, SyncReport};
use flowyard_yard::{Clock, ControlPlane, Handle};
use ring::hmac::{self, HMAC_SHA256, Key};

mod ends;
mod peers;
mod session;
pub mod wire;

use ends::Ends;
use wire::{Packed, Packer};

/// The most messages that wait for a peer. With more, its session ends, and the next one begins with all connections.
const WAITING: usize = 4096;
/// The time between two looks at whether the tables have changed.
const LOOK: Duration = Duration::from_millis(50);
/// The fewest bytes of a key.
pub const SHORTEST_KEY: usize = 16;

/// Settings of the synchronization.
#[derive(Clone, Debug)]
pub struct SyncSettings {
    /// Where this node accepts sessions. Its address is the source of the sessions to peers.
    pub listen: SocketAddr,
    /// Where the other nodes do.
    pub peers: Vec<SocketAddr>,
    /// The time between two scans.
    pub interval: Duration,
    /// How long announcements of VIPs wait for the connections of peers that do not answer.
    pub wait: Duration,
}

/// What is known of a peer.
#[derive(Debug, Default)]
pub struct Peer {
    /// Whether this node has a session to it.
    pub sends: AtomicBool,
    /// The number of sessions from it.
    pub receives: AtomicU64,
    /// Whether it has reported all its connections since the start.
    pub is_complete: AtomicBool,
    /// Reports that were sent to it.
    pub sent: AtomicU64,
    /// Bytes that were sent to it, without the headers of TCP.
    pub sent_bytes: AtomicU64,
    /// Reports that it has sent.
    pub received: AtomicU64,
    /// Bytes that it has sent.
    pub received_bytes: AtomicU64,
    /// Ends of connections that were sent to it.
    pub sent_ends: AtomicU64,
    /// Ends of connections that it has sent.
    pub received_ends: AtomicU64,
    /// What its health checks say of backends, by their identity; empty while there is no session from it.
    verdicts: Mutex<BTreeMap<u64, bool>>,
    /// Why there is no session to it.
    wrong: Mutex<Option<String>>,
    /// The number of sessions to it so far.
    session: AtomicU64,
    /// Whether the present session must end, because the peer is too slow.
    is_slow: AtomicBool,
}

impl Peer {
    /// Why there is no session to it.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        lock(&self.wrong).clone()
    }
}

/// The state of the synchronization.
#[derive(Debug)]
pub struct Synchronization {
    settings: SyncSettings,
    peers: Vec<Peer>,
    /// The connections that this node reports.
    reported: AtomicU64,
    /// The duration of the last scan in nanoseconds, and the connections that it has looked at.
    scan_ns: AtomicU64,
    scanned: AtomicU64,
    /// The number of scans whose reports are on their way.
    scans: AtomicU64,
    /// What the health checks of this node say of backends of which nodes agree, by their identity.
    verdicts: Mutex<BTreeMap<u64, bool>>,
    /// Hashes that peers have reported as gone.
    gone: Mutex<Vec<u64>>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

impl ControlPlane for Synchronization {}

impl Synchronization {
    /// The state before the start.
    #[must_use]
    pub fn new(settings: SyncSettings) -> Self {
        Self {
            peers: settings.peers.iter().map(|_| Peer::default()).collect(),
            settings,
            reported: AtomicU64::new(0),
            scan_ns: AtomicU64::new(0),
            scanned: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            verdicts: Mutex::default(),
            gone: Mutex::default(),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        }
    }

    /// The peers with their addresses.
    pub fn peers(&self) -> impl Iterator<Item = (SocketAddr, &Peer)> {
        self.settings.peers.iter().copied().zip(&self.peers)
    }

    /// The number of connections that this node reports to others.
    #[must_use]
    pub fn reported(&self) -> u64 {
        self.reported.load(Relaxed)
    }

    /// The duration of the last scan, and the number of connections that it has looked at.
    #[must_use]
    pub fn last_scan(&self) -> (Duration, u64) {
        (Duration::from_nanos(self.scan_ns.load(Relaxed)), self.scanned.load(Relaxed))
    }

    /// The number of scans so far.
    #[must_use]
    pub fn scans(&self) -> u64 {
        self.scans.load(Relaxed)
    }

    /// Whether all peers have reported their connections, or do not need to be waited for at this time after the start.
    #[must_use]
    pub fn is_ready(&self, age: Duration) -> bool {
        age >= self.settings.wait || self.peers.iter().all(|peer| peer.is_complete.load(Relaxed))
    }

    /// The number of all nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.peers.len() + 1
    }

    /// Replaces what this node's health checks say of backends of which nodes agree, by their identity.
    pub(crate) fn set_verdicts(&self, verdicts: BTreeMap<u64, bool>) {
        *lock(&self.verdicts) = verdicts;
    }

    /// What this node's health checks say of a backend; `None` if nodes do not agree on it.
    #[must_use]
    pub fn verdict(&self, backend: u64) -> Option<bool> {
        lock(&self.verdicts).get(&backend).copied()
    }

    /// What the health checks of other nodes say of a backend, as far as it is known.
    #[must_use]
    pub fn votes(&self, backend: u64) -> Vec<bool> {
        self.peers.iter().filter_map(|peer| lock(&peer.verdicts).get(&backend).copied()).collect()
    }

    fn has_stopped(&self) -> bool {
        *lock(&self.stop)
    }

    /// Waits for this time, or until the threads must end. Returns whether they must.
    fn pause(&self, time: Duration) -> bool {
        let stop = lock(&self.stop);
        let waited = self.stopped.wait_timeout_while(stop, time, |stop| !*stop);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The socket on which sessions are accepted.
#[derive(Debug)]
pub struct Bound(TcpListener);

impl Bound {
    /// Binds the address.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self)
    }

    /// Continues with the socket of the process that is taken over.
    #[must_use]
    pub fn adopt(socket: OwnedFd) -> Self {
        Self(TcpListener::from(socket))
    }

    /// A duplicate, for a process that takes over.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone().map(OwnedFd::from)
    }
}

/// The threads. Dropping it ends them.
#[derive(Debug)]
pub struct Synchronizer {
    shared: Arc<Synchronization>,
    threads: Vec<JoinHandle<()>>,
}

impl Synchronizer {
    /// Starts to synchronize the connections of the balancer of `yard`. `secret` is the content of the file with the key.
    ///
    /// # Errors
    /// A thread cannot be started, or the engine does not run a balancer with room for the connections of other nodes.
    pub fn start(
        yard: &Handle,
        shared: &Arc<Synchronization>,
        bound: Bound,
        secret: &[u8],
    ) -> io::Result<Self> {
        let hub = yard.control_plane::<Hub>();
        let hub = hub.ok_or_else(|| io::Error::other("the engine does not run a balancer"))?;
        let yard = yard.clone();
        Self::start_for((hub, Arc::new(move || yard.now())), shared, bound, secret)
    }

    fn start_for(
        (hub, clock): (Arc<Hub>, Clock),
        shared: &Arc<Synchronization>,
        bound: Bound,
        secret: &[u8],
    ) -> io::Result<Self> {
        let key = Key::new(HMAC_SHA256, secret);
        let check = check(&key, hub.plan().seed());
        let mut all = Self { shared: Arc::clone(shared), threads: Vec::new() };
        let mut queues = Vec::new();
        for at in 0..shared.peers.len() {
            let (sender, receiver) = bounded(WAITING);
            queues.push(sender);
            let (shared, key) = (Arc::clone(shared), key.clone());
            all.spawn("sync-to", move || peers::send(&shared, at, &key, check, &receiver))?;
        }
        let (of_hub, of_clock, of_shared) =
            (Arc::clone(&hub), Arc::clone(&clock), Arc::clone(shared));
        all.spawn("sync-scan", move || scan(&of_shared, &of_hub, &of_clock, &queues))?;
        let of_shared = Arc::clone(shared);
        bound.0.set_nonblocking(true)?;
        all.spawn("sync-accept", move || {
            peers::accept(&of_shared, &bound.0, &peers::Local { key, check, hub, clock });
        })?;
        Ok(all)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }
}

impl Drop for Synchronizer {
    fn drop(&mut self) {
        *lock(&self.shared.stop) = true;
        self.shared.stopped.notify_all();
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// A number that is the same for nodes with the same key and seed, and that does not tell the seed.
fn check(key: &Key, seed: u64) -> u64 {
    let tag = hmac::sign(key, &[&b"seed"[..], &seed.to_le_bytes()].concat());
    let first = tag.as_ref().first_chunk().copied();
    u64::from_le_bytes(first.unwrap_or_default())
}

/// The shortest time between two scans, of which the last one took `took`: scans use a tenth of a core, but a session does
/// not become silent because they are slow.
fn least_rest(took: Duration) -> Duration {
    took.saturating_mul(9).min(peers::SILENT / 2)
}

/// Waits for the next scan: for the interval, or until `is_due`, but for `least` in any case. Calls `meanwhile` again and again.
/// Returns whether the threads must end.
fn rest(
    shared: &Synchronization,
    mut meanwhile: impl FnMut(),
    is_due: impl Fn() -> bool,
    least: Duration,
) -> bool {
    let (mut waited, interval) = (Duration::ZERO, shared.settings.interval);
    while waited < least || waited < interval && !is_due() {
        let slice = LOOK.min(if waited < least { least } else { interval } - waited);
        if shared.pause(slice) {
            return true;
        }
        waited += slice;
        meanwhile();
    }
    shared.has_stopped()
}

/// A message for a peer, with the number of the session that it is for.
type Queued = (u64, Packed);

/// Scans the tables until the threads must end.
fn scan(shared: &Synchronization, hub: &Hub, clock: &Clock, queues: &[Sender<Queued>]) {
    let (mut scan, mut ends) = (Scan::default(), Ends::default());
    let mut sessions = vec![0; queues.len()];
    loop {
        let (began, generation) = (clock(), hub.generation());
        let gone = std::mem::take(&mut *lock(&shared.gone));
        gone.into_iter().for_each(|hash| scan.report_again(hash));
        // Sessions that have begun since the last scan get all connections.
        let now: Vec<u64> = shared.peers.iter().map(|peer| peer.session.load(Acquire)).collect();
        let needs_all = now != sessions;
        let (mut new, mut old) = (Packer::default(), Packer::default());
        let looked_at = scan.pass(
            hub,
            || clock(),
            |report| match report {
                SyncReport::Has { hash, backend, lifetime, is_new: true } => {
                    new.has(hash, backend, lifetime);
                }
                SyncReport::Has { hash, backend, lifetime, .. } if needs_all => {
                    old.has(hash, backend, lifetime);
                }
                SyncReport::Has { .. } => {}
                SyncReport::Gone { hash } => new.gone(hash),
            },
        );
        let new_ends = ends.take(hub, clock());
        let mut old_ends = if needs_all { ends.all(clock()) } else { Vec::new() };
        let (new, old) = (new.finish(), old.finish());
        // Ends come first, so that a report of a later connection is not forgotten because of them.
        old_ends.extend(old);
        let (old, mut new) = (old_ends, [new_ends, new].concat());
        let verdicts: Vec<_> = lock(&shared.verdicts).clone().into_iter().collect();
        new.extend(wire::health(&verdicts));
        new.push(Packed::complete());
        for (at, queue) in queues.iter().enumerate() {
            if !shared.peers[at].sends.load(Relaxed) {
                continue;
            }
            let is_old = std::mem::replace(&mut sessions[at], now[at]) == now[at];
            let old = if is_old { &[][..] } else { &old[..] };
            let mut all = old.iter().chain(&new).cloned();
            if all.any(|message| queue.try_send((now[at], message)).is_err()) {
                shared.peers[at].is_slow.store(true, Relaxed);
            }
        }
        shared.reported.store(scan.len() as u64, Relaxed);
        let took = clock().saturating_sub(began);
        shared.scan_ns.store(took, Relaxed);
        shared.scanned.store(looked_at, Relaxed);
        shared.scans.fetch_add(1, Relaxed);
        let least = least_rest(Duration::from_nanos(took));
        let is_due = || {
            let has_new = |(peer, session): (&Peer, &u64)| {
                peer.sends.load(Relaxed) && peer.session.load(Relaxed) != *session
            };
            hub.generation() != generation || shared.peers.iter().zip(&sessions).any(has_new)
        };
        let meanwhile = || {
            let new = ends.take(hub, clock());
            ends::send(shared, (queues, &sessions), &new);
        };
        if rest(shared, meanwhile, is_due, least) {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The messages of a peer's queue.
type Queue = Receiver<Queued>;

#[cfg(test)]
mod tests;
