//! Announces the VIPs of a balancer to the routing daemon of the machine, and withdraws them.
//!
//! ```text
//!  plan, health, drains ──50 ms──> which VIPs have backends ──> routes of the kernel ──learn──> BIRD, FRR ──BGP──> routers
//!  cores that do not answer, SIGTERM, `flowyard lb withdraw` ──> none
//! ```
//!
//! A VIP is announced while one of its services at least has a backend for new connections. Backends count as up until checks
//! find them down, so an announcement begins only when a check has found one that is up. Start: the cores forward for
//! `after_ms` before the first announcement. Stop: all VIPs are withdrawn,
//! and the cores forward for `withdraw_ms` after that, until routers know other ways. If the process is killed, the kernel
//! removes the routes ([`kernel`]). If another process takes over, the routes stay, and that process continues to announce
//! them at once.
//!
//! Invariants: no VIP is announced that no service has; none is announced before [`Announcer::start`], or after
//! [`Announcer::has_left`] was called.
//! Thread-safety: one thread changes the routes; any thread may read the state and ask for a withdrawal.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::sync::Synchronization;
use flowyard_config::AnnounceConfig;
use flowyard_frame::Nanos;
use flowyard_lb::{AllDown, Hub, ServiceState};
use flowyard_yard::ask::Question;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};
use flowyard_yard::{ControlPlane, Handle};

pub mod kernel;

/// The time between two looks at the plan.
const PERIOD: Duration = Duration::from_millis(50);
/// The time between two questions to the cores, and the longest wait for their answers.
const ASK: Duration = Duration::from_millis(500);
/// The number of questions in a row that a core may leave unanswered.
const SILENT: u32 = 3;
/// The time between two attempts to change a route after the kernel has refused a change.
const RETRY: Nanos = 1_000_000_000;

/// A routing table.
pub trait RouteTable: Send {
    /// Adds a route to `address`, which may be there already.
    ///
    /// # Errors
    /// The error of the kernel.
    fn add(&mut self, address: IpAddr) -> io::Result<()>;

    /// Removes the route to `address`, which may have gone already.
    ///
    /// # Errors
    /// The error of the kernel.
    fn remove(&mut self, address: IpAddr) -> io::Result<()>;
}

/// Why a VIP is not announced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// The instance has started only now.
    Starting,
    /// The connections of other nodes are still arriving.
    Synchronizing,
    /// No service of the VIP has a backend for new connections.
    NoBackend,
    /// There are such backends, but none whose last health check passed.
    Unchecked,
    /// Nodes agree that a backend is up, but the checks of this node reach none.
    Unreached,
    /// The operator has withdrawn all VIPs.
    Withdrawn,
    /// A core does not answer.
    Silent,
    /// The kernel has refused the route, which the log reports.
    Refused,
    /// The instance ends.
    Stopping,
}

impl Why {
    /// The reason as text, for tables and logs.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Starting => "the instance has just started",
            Self::Synchronizing => "the connections of other nodes are still arriving",
            Self::NoBackend => "no service of this address has a backend for new connections",
            Self::Unchecked => "no backend of this address has passed a health check yet",
            Self::Unreached => "the health checks of this node reach no backend of this address",
            Self::Withdrawn => "withdrawn by 'flowyard lb withdraw'",
            Self::Silent => "a core does not answer",
            Self::Refused => "the kernel has refused the route (see the log)",
            Self::Stopping => "the instance ends",
        }
    }
}

/// The state of the announcements.
#[derive(Debug, Default)]
struct State {
    /// By VIP: `None` if it is announced.
    vips: BTreeMap<IpAddr, Option<Why>>,
    is_withdrawn: bool,
    is_stopping: bool,
    /// Increases when the thread has applied what was asked for before.
    rounds: u64,
    /// How long the cores run before the first announcement, and go on after the withdrawal.
    waits: [Nanos; 2],
    /// What the process had announced that this one has taken over from.
    inherited: Option<BTreeSet<IpAddr>>,
}

/// What other threads see of the announcements.
#[derive(Debug, Default)]
pub struct Announcements {
    state: Mutex<State>,
    /// Notified after each round, and when something is asked for.
    changed: Condvar,
}

impl ControlPlane for Announcements {
    fn kind(&self) -> &'static str {
        KIND
    }

    /// The announced VIPs, and whether the operator has withdrawn all.
    fn hand_over(&self, _now: Nanos) -> Option<(&'static str, Vec<u8>)> {
        let state = self.lock();
        let announced: Vec<String> = state
            .vips
            .iter()
            .filter(|(_, why)| why.is_none())
            .map(|(vip, _)| vip.to_string())
            .collect();
        let mut writer = Writer::default();
        writer.number(state.is_withdrawn.into()).number(announced.len() as u64);
        announced.iter().for_each(|vip| {
            writer.text(vip);
        });
        Some((KIND, writer.finish()))
    }

    fn go_on(&self, state: &[u8], _now: Nanos) -> Result<(), String> {
        let mut reader = Reader::new(state);
        let is_withdrawn = reader.number()? != 0;
        let count = reader.number()?;
        let one = |_| reader.text()?.parse().map_err(|_| BadState);
        let announced = (0..count).map(one).collect::<Result<_, BadState>>()?;
        let mut state = self.lock();
        (state.is_withdrawn, state.inherited) = (is_withdrawn, Some(announced));
        Ok(())
    }
}

/// The name under which the announcements are handed over.
const KIND: &str = "announce";

impl Announcements {
    /// Each VIP, and why it is not announced; `None` if it is.
    #[must_use]
    pub fn vips(&self) -> BTreeMap<IpAddr, Option<Why>> {
        self.lock().vips.clone()
    }

    /// Withdraws all VIPs until this is undone, and returns when that is done. `false` undoes it.
    pub fn withdraw(&self, withdrawn: bool) {
        let mut state = self.lock();
        state.is_withdrawn = withdrawn;
        self.wait(state);
    }

    /// Changes how long the cores run before the first announcement, and go on after the withdrawal.
    pub fn wait_for(&self, how: &AnnounceConfig) {
        self.lock().waits = [how.after_ms, how.withdraw_ms].map(|ms| ms.saturating_mul(1_000_000));
    }

    /// Waits until the thread has made a whole round since now, or for two seconds if it does not.
    fn wait(&self, state: MutexGuard<'_, State>) {
        let until = state.rounds + 2; // the present round may have begun before the request
        self.changed.notify_all();
        let waits = |state: &mut State| state.rounds < until && !state.vips.is_empty();
        let _done = self.changed.wait_timeout_while(state, Duration::from_secs(2), waits);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the health checks of this node say of a backend.
#[derive(Clone, Copy)]
struct Checked {
    /// The last check passed.
    has_passed: bool,
    /// It is up, as far as this node can see.
    is_up: bool,
}

/// What a thread that announces needs to know in each round.
struct Facts {
    /// How long the cores have been running.
    age: Nanos,
    /// Whether the connections of other nodes are known.
    is_synchronized: bool,
    cores_answer: bool,
}

/// The decisions, and the routes that follow from them.
struct Reconciler<T> {
    table: T,
    after: Nanos,
    announced: BTreeSet<IpAddr>,
    /// When the kernel last refused a change.
    refused: BTreeMap<IpAddr, Nanos>,
}

impl<T: RouteTable> Reconciler<T> {
    fn new(table: T, after: Nanos) -> Self {
        Self { table, after, announced: BTreeSet::new(), refused: BTreeMap::new() }
    }

    /// Brings the routes to what the facts demand. `checked` gives what the health checks of this node say of a backend.
    fn round(
        &mut self,
        services: &[ServiceState],
        checked: impl Fn(u32) -> Checked,
        facts: &Facts,
        shared: &Announcements,
    ) {
        let (is_withdrawn, is_stopping) = {
            let state = shared.lock();
            (state.is_withdrawn, state.is_stopping)
        };
        let for_all = match facts {
            _ if is_stopping => Some(Why::Stopping),
            _ if is_withdrawn => Some(Why::Withdrawn),
            Facts { age, .. } if *age < self.after => Some(Why::Starting),
            Facts { cores_answer: false, .. } => Some(Why::Silent),
            Facts { is_synchronized: false, .. } => Some(Why::Synchronizing),
            Facts { .. } => None,
        };
        let mut vips: BTreeMap<IpAddr, Option<Why>> = BTreeMap::new();
        for state in services {
            let vip = state.service.vip;
            let of_backends = if state.entries == 0 {
                Some(Why::NoBackend)
            } else if self.announced.contains(&vip) {
                (!reaches(state, &checked)).then_some(Why::Unreached)
            } else {
                (!serves(state, &checked)).then_some(Why::Unchecked)
            };
            let why = for_all.or(of_backends);
            let vip = vips.entry(vip).or_insert(why);
            *vip = vip.and(why); // one service with a backend is enough
        }
        let gone: Vec<_> =
            self.announced.iter().filter(|vip| !vips.contains_key(vip)).copied().collect();
        for vip in gone {
            self.change(vip, Some("no service has it any more"), facts.age);
        }
        for (vip, why) in &mut vips {
            if why.is_some() == self.announced.contains(vip) {
                self.change(*vip, why.map(Why::text), facts.age);
            }
            // The kernel may have refused the change.
            match (&why, self.announced.contains(vip)) {
                (None, false) => *why = Some(Why::Refused),
                (Some(_), true) => *why = None,
                _ => {}
            }
        }
        let mut state = shared.lock();
        state.vips = vips;
        state.rounds += 1;
        shared.changed.notify_all();
    }

    /// Announces a VIP, or withdraws it for this reason.
    fn change(&mut self, vip: IpAddr, why: Option<&'static str>, now: Nanos) {
        if self.refused.get(&vip).is_some_and(|at| now.saturating_sub(*at) < RETRY) {
            return;
        }
        let done = match why {
            None => self.table.add(vip),
            Some(_) => self.table.remove(vip),
        };
        match (done, why) {
            (Err(error), _) => {
                let what = if why.is_none() { "announced" } else { "withdrawn" };
                let hint = match vip {
                    IpAddr::V4(_) => "",
                    IpAddr::V6(_) => {
                        "; IPv6 must be enabled on new interfaces: sysctl -w net.ipv6.conf.default.disable_ipv6=0, and restart"
                    }
                };
                tracing::error!(%vip, %error, "the route could not be {what}; the next attempt is in a second{hint}");
                self.refused.insert(vip, now);
                return;
            }
            (Ok(()), None) => {
                self.announced.insert(vip);
                tracing::info!(%vip, "announced: the route is in the kernel's table");
            }
            (Ok(()), Some(why)) => {
                self.announced.remove(&vip);
                tracing::info!(%vip, why, "withdrawn: the route was removed");
            }
        }
        self.refused.remove(&vip);
    }
}

/// Whether a service that has backends for new connections is known to have one that is up.
fn serves(state: &ServiceState, checked: impl Fn(u32) -> Checked) -> bool {
    let service = &state.service;
    let mut taking = state.backends.iter().filter(|backend| backend.entries > 0);
    service.check.is_none()
        || service.all_down == AllDown::Use
        || taking.any(|backend| checked(backend.id).has_passed)
}

/// Whether this node reaches a backend of a service whose nodes agree on health. The node alone decides on health otherwise, so
/// backends that it does not reach are down.
fn reaches(state: &ServiceState, checked: impl Fn(u32) -> Checked) -> bool {
    let service = &state.service;
    let mut taking = state.backends.iter().filter(|backend| backend.entries > 0);
    service.check.as_ref().is_none_or(|check| !check.agreed)
        || service.all_down == AllDown::Use
        || taking.any(|backend| checked(backend.id).is_up)
}

/// The thread that announces. Dropping it withdraws everything.
#[derive(Debug)]
pub struct Announcer {
    shared: Arc<Announcements>,
    thread: Option<JoinHandle<()>>,
    /// When everything was withdrawn.
    left: Option<Nanos>,
}

impl Announcer {
    /// Starts to announce the VIPs of the balancer of `yard` in `table`.
    ///
    /// # Errors
    /// The thread cannot be started, or the engine does not run a balancer.
    pub fn start(
        yard: &Handle,
        shared: Arc<Announcements>,
        table: impl RouteTable + 'static,
        how: &AnnounceConfig,
    ) -> io::Result<Self> {
        let hub = yard.control_plane::<Hub>();
        let hub = hub.ok_or_else(|| io::Error::other("the engine does not run a balancer"))?;
        shared.wait_for(how);
        let sync = yard.control_plane::<Synchronization>();
        let (yard, seen) = (yard.clone(), Arc::clone(&shared));
        let announce = move || {
            let mut reconciler = Reconciler::new(table, 0);
            // The routes are there, and health checks have had their first results in the other process.
            let inherited = seen.lock().inherited.take();
            let starts = inherited.is_none();
            // It stays true: a peer that is lost later is no reason to withdraw.
            let mut is_synchronized = sync.is_none() || !starts;
            reconciler.announced = inherited.unwrap_or_default();
            let (mut cores, began) = (Cores::default(), yard.now());
            loop {
                let age = yard.now().saturating_sub(began);
                is_synchronized |=
                    sync.as_ref().is_some_and(|sync| sync.is_ready(Duration::from_nanos(age)));
                let facts = Facts { age, is_synchronized, cores_answer: cores.answer(&yard) };
                let is_last = {
                    let state = seen.lock();
                    reconciler.after = if starts { state.waits[0] } else { 0 };
                    state.is_stopping
                };
                let plan = hub.plan();
                let checked = |id| {
                    let report = hub.reported(id);
                    let own = plan.target(id).zip(sync.as_ref());
                    let own = own.and_then(|(target, sync)| sync.verdict(target.identity));
                    Checked {
                        has_passed: report.is_some_and(|report| report.failure.is_none()),
                        is_up: own.unwrap_or(true),
                    }
                };
                reconciler.round(&hub.states(), checked, &facts, &seen);
                if is_last {
                    break; // the table is closed, so a route that could not be withdrawn goes, too
                }
                let state = seen.lock();
                if !state.is_stopping {
                    let _timeout = seen.changed.wait_timeout(state, PERIOD);
                }
            }
        };
        let thread = thread::Builder::new().name("announce".into()).spawn(announce)?;
        Ok(Self { shared, thread: Some(thread), left: None })
    }

    /// Withdraws all VIPs for good at the first call. Returns whether routers have had the time to learn of it, so that
    /// the cores may stop.
    pub fn has_left(&mut self, now: Nanos) -> bool {
        let withdraw = self.shared.lock().waits[1];
        let left = match self.left {
            Some(left) => left,
            None => {
                self.end();
                let wait = Duration::from_nanos(withdraw);
                tracing::info!(
                    ?wait,
                    "VIPs withdrawn: forwarding goes on while routers learn of it; a second signal ends it"
                );
                *self.left.insert(now)
            }
        };
        now.saturating_sub(left) >= withdraw
    }

    /// Withdraws all VIPs and closes the table.
    fn end(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether the cores answer.
#[derive(Default)]
struct Cores {
    asked: Option<Nanos>,
    unanswered: u32,
}

impl Cores {
    fn answer(&mut self, yard: &Handle) -> bool {
        let now = yard.now();
        if self.asked.is_none_or(|at| now.saturating_sub(at) >= ASK.as_nanos() as Nanos) {
            self.asked = Some(now);
            let answers = yard.ask(&Question::Alive, ASK);
            let all = answers.iter().all(Option::is_some);
            self.unanswered = if all { 0 } else { self.unanswered.saturating_add(1) };
            if self.unanswered == SILENT {
                let silent: Vec<_> =
                    (0..answers.len()).filter(|&core| answers[core].is_none()).collect();
                tracing::error!(?silent, "cores do not answer; all VIPs are withdrawn");
            }
        }
        self.unanswered < SILENT
    }
}

#[cfg(test)]
mod tests;
