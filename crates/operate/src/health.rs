//! Health checks of the backends of a balancer. Their results change the balancer's plan.
//!
//! ```text
//!  plan ──(services with a check)──> Health: which is due? ──job──> probers, at most 64 threads
//!  hub <──one plan for all changes─ rise, fall <──────────result──┘
//! ```
//!
//! The engine's cores take no part: checks use the network stack of the machine, and run with the user
//! and the capabilities that remain after the start; commands run as a user of their own ([`commands`]).
//!
//! Invariants: a backend has at most one check in progress; a check begins only when a prober is free,
//! so that none waits while its timeout runs.
//! Thread-safety: one thread schedules, other threads (probers) run the checks. Dropping the checker
//! ends the scheduler at once; probers end when their current check does.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_lb::Hub;
use flowyard_lb::check::Check;
use flowyard_lb::health::{Change, Health};
use flowyard_lb::{AllDown, ServiceState};
use flowyard_yard::Handle;

mod agreed;
pub mod commands;
pub(crate) mod deadline;
pub(crate) mod dns;
mod grpc;
pub(crate) mod http;
pub(crate) mod probe;
pub(crate) mod tls;
pub(crate) mod udp;

use crate::sync::Synchronization;
pub use commands::Commands;
use deadline::{Deadline, Fault};
use probe::{Asked, Probe};

/// The most checks in progress.
const MOST: usize = 64;
/// The scheduler's period.
const NAP: Duration = Duration::from_millis(10);
/// A check has failed if its prober has no result this long after the timeout.
const GRACE: Nanos = 1_000_000_000;
/// The time between two warnings about late checks.
const QUIET: Nanos = 60_000_000_000;
/// The time between two comparisons with the verdicts of other nodes.
const COMPARE: Nanos = 100_000_000;
/// A check is late if it begins this long after it was due.
const LATE: Nanos = 1_000_000_000;

/// The running health checks.
#[derive(Debug)]
pub struct Checker {
    stop: Arc<AtomicBool>,
    commands: Commands,
    limit: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

/// A check for a prober to run.
struct Job {
    backend: u32,
    asked: Asked,
    probe: Arc<Probe>,
    timeout: Nanos,
}

/// The result of a check.
struct Done {
    backend: u32,
    took: Nanos,
    fault: Option<Fault>,
}

impl Checker {
    /// Starts the health checks of a balancer's backends; `None` if the engine does not run a
    /// balancer. At most `per_second` checks begin in a second; 0 is no limit. `commands` runs commands.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(yard: &Handle, per_second: u32, commands: Commands) -> io::Result<Option<Self>> {
        let Some(hub) = yard.control_plane::<Hub>() else { return Ok(None) };
        commands.listen()?;
        let stop = Arc::<AtomicBool>::default();
        let limit = Arc::new(AtomicU32::new(per_second));
        let (stopped, yard, runs) = (Arc::clone(&stop), yard.clone(), commands.clone());
        let limited = Arc::clone(&limit);
        let decide = move || {
            let mut checks = Checks::new(yard, hub, per_second, runs);
            while !stopped.load(Ordering::Acquire) {
                checks.health.limit(limited.load(Ordering::Relaxed));
                checks.step();
            }
        };
        let thread = thread::Builder::new().name("health".into()).spawn(decide)?;
        Ok(Some(Self { stop, commands, limit, thread: Some(thread) }))
    }

    /// The largest number of checks that begin in a second, which may be changed; 0 is no limit.
    #[must_use]
    pub fn limit(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.limit)
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
        self.commands.end();
    }
}

/// A backend that is checked.
#[derive(Clone)]
struct Known {
    asked: Asked,
    check: Check,
    probe: Arc<Probe>,
    /// Whether the last check could not run, which is logged once.
    cannot: bool,
    /// The backend's identity on all nodes, and whether it is up in the plan, if nodes agree on it.
    agreed: Option<(u64, bool)>,
}

/// The state of the scheduler.
struct Checks {
    yard: Handle,
    /// The verdicts of other nodes, if they are known.
    sync: Option<Arc<Synchronization>>,
    /// When the nodes' verdicts were last compared.
    compared: Nanos,
    hub: Arc<Hub>,
    health: Health,
    /// The generation of the plan that `known` was read from.
    generation: u64,
    /// By the backend's ID.
    known: BTreeMap<u32, Known>,
    /// Services without a backend that is up.
    down: HashSet<String>,
    /// Services whose new connections go to backups.
    on_backups: HashSet<String>,
    jobs: Sender<Job>,
    /// The other end of `jobs`, which the probers share.
    take_job: Arc<Mutex<Receiver<Job>>>,
    /// Cloned for each prober.
    send_done: Sender<Done>,
    done: Receiver<Done>,
    probers: usize,
    /// Jobs in progress.
    busy: usize,
    /// When the last warning about late checks was logged.
    warned: Option<Nanos>,
    commands: Commands,
}

impl Checks {
    fn new(yard: Handle, hub: Arc<Hub>, per_second: u32, commands: Commands) -> Self {
        let (jobs, take_job) = channel();
        let (send_done, done) = channel();
        // Two machines of a cluster must not check at the same times.
        // Not derived from the seed of the balancer: backends see the times.
        let seed = RandomState::new().build_hasher().finish();
        Self {
            sync: yard.control_plane::<Synchronization>(),
            compared: 0,
            yard,
            hub,
            health: Health::new(per_second, seed),
            generation: 0,
            known: BTreeMap::new(),
            down: HashSet::new(),
            on_backups: HashSet::new(),
            jobs,
            take_job: Arc::new(Mutex::new(take_job)),
            send_done,
            done,
            probers: 0,
            busy: 0,
            warned: None,
            commands,
        }
    }

    /// Waits for results up to `NAP`, and begins the checks that are due.
    fn step(&mut self) {
        if self.hub.generation() != self.generation {
            self.read_plan();
        }
        let mut changes = Vec::new();
        let first = self.done.recv_timeout(NAP);
        let rest: Vec<_> = std::iter::from_fn(|| self.done.try_recv().ok()).collect();
        for done in first.into_iter().chain(rest) {
            self.busy = self.busy.saturating_sub(1);
            changes.extend(self.take(&done));
        }
        let now = self.yard.now();
        while let Some((backend, change)) = self.health.late(GRACE, now) {
            let why = "the check exceeded its timeout and has not ended";
            self.hub.report(backend, now, GRACE, Some(why.into()));
            changes.extend(change);
        }
        changes.extend(self.agree(now));
        if !changes.is_empty() {
            self.hub.set_health(&changes, now);
            self.read_plan();
        }
        self.begin(now);
    }

    /// Reads from the current plan which backends are checked, and which services are down.
    fn read_plan(&mut self) {
        self.generation = self.hub.generation();
        let (mut known, plan) = (BTreeMap::new(), self.hub.plan());
        let mut probes: Vec<Arc<Probe>> = Vec::new();
        let states = self.hub.states();
        let now = self.yard.now();
        for state in &states {
            let service = &state.service;
            let Some(check) = &service.check else { continue };
            for (backend, is) in service.backends.iter().zip(&state.backends) {
                let port = check.port.or(backend.port).unwrap_or(*service.ports.start());
                let asked = Asked {
                    service: service.name.clone(),
                    backend: backend.name.clone(),
                    addr: SocketAddr::new(backend.addr, port),
                };
                let old = self.known.get(&is.id).filter(|old| old.check == *check);
                let made = probes.iter().find(|probe| *probe.asks() == check.asks);
                let probe = old.map(|old| &old.probe).or(made).cloned();
                let probe = probe.unwrap_or_else(|| Arc::new(Probe::new(&check.asks)));
                probes.push(Arc::clone(&probe));
                let cannot = old.is_some_and(|old| old.cannot);
                let identity =
                    plan.target(is.id).filter(|_| check.agreed).map(|target| target.identity);
                let agreed = identity.map(|identity| (identity, is.is_up));
                // What the nodes have agreed on does not change the verdict of this one.
                let is_own = self.known.get(&is.id).is_some_and(|known| known.agreed.is_some());
                let is_up =
                    if agreed.is_some() && is_own { self.health.is_up(is.id) } else { is.is_up };
                known.insert(is.id, Known { asked, check: check.clone(), probe, cannot, agreed });
                self.health.add(is.id, check.rules, is_up, now);
            }
        }
        self.health.retain(|backend| known.contains_key(&backend));
        self.hub.retain_reports(|backend| known.contains_key(&backend));
        self.known = known;
        self.log_down(&states);
        self.log_backups(&states);
    }

    /// Logs the services whose last backend went down, and those that have a backend again.
    fn log_down(&mut self, states: &[ServiceState]) {
        let mut down = HashSet::new();
        for state in states {
            if state.backends.is_empty() || state.backends.iter().any(|backend| backend.is_up) {
                continue;
            }
            let service = &state.service.name;
            if !self.down.contains(service) {
                let then = match state.service.all_down {
                    AllDown::Drop => "new connections are dropped",
                    AllDown::Use => "all backends are used as if they were up",
                };
                tracing::error!(
                    service,
                    "every backend of the service is down: {then}; 'flowyard lb show' prints why the checks failed"
                );
            }
            down.insert(service.clone());
        }
        for service in self.down.difference(&down) {
            let found = states.iter().find(|state| state.service.name == *service);
            if let Some(state) = found.filter(|state| !state.backends.is_empty()) {
                let up = state.backends.iter().filter(|backend| backend.is_up).count();
                let all = state.backends.len();
                tracing::info!(service, "the service is up again ({up} of {all} backends)");
            }
        }
        self.down = down;
    }

    /// Logs the services whose new connections go to backups now, and those of which they do not any more.
    fn log_backups(&mut self, states: &[ServiceState]) {
        let uses_backups = |state: &&ServiceState| {
            let mut all = state.service.backends.iter().zip(&state.backends);
            all.any(|(described, is)| described.backup && is.weight > 0)
        };
        let now: HashSet<String> =
            states.iter().filter(uses_backups).map(|state| state.service.name.clone()).collect();
        for service in now.difference(&self.on_backups) {
            tracing::warn!(
                service,
                "new connections of the service go to its backups: no other backend accepts any"
            );
        }
        for service in self.on_backups.difference(&now) {
            tracing::info!(service, "new connections of the service no longer go to its backups");
        }
        self.on_backups = now;
    }

    /// Records a result, and returns the change of state if there is one.
    fn take(&mut self, done: &Done) -> Option<Change> {
        let (backend, now) = (done.backend, self.yard.now());
        let known = self.known.get_mut(&backend)?;
        let fault = done.fault.as_ref().map(ToString::to_string);
        self.hub.report(backend, now, done.took, fault.clone());
        let name = format!("{}/{}", known.asked.service, known.asked.backend);
        let cannot = matches!(done.fault, Some(Fault::Cannot(_)));
        if cannot && !known.cannot {
            let why = fault.as_deref().unwrap_or_default();
            tracing::error!(backend = name, "{why}; this counts as a failed check");
        }
        known.cannot = cannot;
        let change = self.health.record(backend, done.fault.is_none(), now)?;
        let addr = known.asked.addr;
        if known.agreed.is_some() {
            let why = fault.unwrap_or_default();
            let is_up = change.is_up;
            tracing::info!(backend = name, %addr, is_up, why, "the checks of this node have another result");
            self.compared = 0;
            return None;
        }
        match (change.is_up, fault) {
            (true, _) => tracing::info!(backend = name, %addr, "backend is up"),
            (false, why) => {
                let why = why.unwrap_or_default();
                tracing::warn!(backend = name, %addr, "backend is down: {why}");
            }
        }
        Some(change)
    }

    /// The changes of backends on which nodes agree.
    fn agree(&mut self, now: Nanos) -> Vec<Change> {
        let Some(sync) = &self.sync else { return Vec::new() };
        if self.compared > 0 && now.saturating_sub(self.compared) < COMPARE {
            return Vec::new();
        }
        self.compared = now;
        let mut verdicts = BTreeMap::new();
        let mut changes = Vec::new();
        for (&backend, known) in &self.known {
            let Some((identity, is_up)) = known.agreed else { continue };
            let own = self.health.is_up(backend);
            verdicts.insert(identity, own);
            let votes = sync.votes(identity);
            let (up, all, nodes) = (
                votes.iter().filter(|up| **up).count() + usize::from(own),
                votes.len() + 1,
                sync.nodes(),
            );
            let agreed = agreed::agreed(own, votes, is_up, nodes);
            if agreed == is_up {
                continue;
            }
            let name = format!("{}/{}", known.asked.service, known.asked.backend);
            match agreed {
                true => tracing::info!(
                    backend = name,
                    "backend is up: {up} of {all} nodes say so, of {nodes}"
                ),
                false => tracing::warn!(
                    backend = name,
                    "backend is down: {} of {all} nodes say so, of {nodes}",
                    all - up
                ),
            }
            changes.push(Change { backend, is_up: agreed });
        }
        sync.set_verdicts(verdicts);
        changes
    }

    /// Begins the checks that are due, as long as probers are free.
    fn begin(&mut self, now: Nanos) {
        while self.busy < MOST
            && let Some(backend) = self.health.due(now)
        {
            let Some(known) = self.known.get(&backend) else { continue };
            let (asked, probe) = (known.asked.clone(), Arc::clone(&known.probe));
            let job = Job { backend, asked, probe, timeout: known.check.rules.timeout };
            self.busy += 1;
            if self.busy > self.probers {
                self.spawn();
            }
            let _sent = self.jobs.send(job); // a job without a prober is late, which is a failure
        }
        let behind = self.health.behind(now);
        let is_due = self.warned.is_none_or(|warned| now.saturating_sub(warned) > QUIET);
        if behind > LATE && is_due {
            self.warned = Some(now);
            let late_ms = behind / 1_000_000;
            tracing::warn!(
                late_ms,
                "health checks are late: raise 'checks_per_second' in [balance] or 'interval_ms', or \
                 lower 'timeout_ms'"
            );
        }
    }

    /// Starts one more prober.
    fn spawn(&mut self) {
        let (jobs, done) = (Arc::clone(&self.take_job), self.send_done.clone());
        let (yard, commands) = (self.yard.clone(), self.commands.clone());
        let work = move || {
            loop {
                let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(Job { backend, asked, probe, timeout }) = next else { return };
                let now = || yard.now();
                let began = now();
                let fault = probe.ask(&asked, &commands, Deadline::new(&now, timeout)).err();
                let took = now().saturating_sub(began);
                if done.send(Done { backend, took, fault }).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("probe".into()).stack_size(512 << 10).spawn(work);
        match thread {
            Ok(_) => self.probers += 1,
            Err(error) => {
                tracing::error!(%error, "a health check cannot run: its thread could not be started");
            }
        }
    }
}
