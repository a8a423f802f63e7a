//! Hub: publishes new plans of the control plane to the cores.
//!
//! ```text
//!  user, operator, health ──> control ──make──> newest plan ──> cores, before their next batch
//! ```
//!
//! Thread-safety: any thread may use the hub. A core reads one atomic number for each batch and takes a lock
//! only when that number has changed; the lock is held while a pointer is copied, not while a plan is built.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::handed::{self, Places};
use crate::health::Change;
use crate::{BadService, Conns, Control, LocalPort, Plan, Service, ServiceState, Unknown};
use flowyard_flow::table::Replica;
use flowyard_frame::Nanos;

use super::ends::Ends;
use super::hops::Hops;
use super::locals::Locals;
use flowyard_works::neighbour::Neighbours;
use flowyard_yard::ControlPlane;

/// The control plane of a running balancer.
#[derive(Debug)]
pub struct Hub {
    generation: AtomicU64,
    newest: Mutex<(Arc<Plan>, Arc<Hops>)>,
    /// Neighbour entries of the next hops; set when the cores are created.
    neighbours: OnceLock<Arc<Neighbours>>,
    inner: Mutex<Inner>,
    /// The connection tables of the cores, for queries.
    conns: Mutex<Option<Tables>>,
    /// Results of health checks, by the backend's ID.
    reports: Mutex<BTreeMap<u32, Report>>,
    /// For packets of no service: the port by which they leave, by the port at which they came in.
    pass: Mutex<Vec<Option<u16>>>,
    /// The local addresses, for queries.
    locals: OnceLock<Arc<Locals>>,
    /// Where the connections of the process belong that this one has taken over from.
    inherited: OnceLock<Arc<Places>>,
    /// The connections that other machines have reported.
    pub(super) replica: OnceLock<Arc<Replica>>,
    /// Ends of connections that other machines must learn.
    pub(super) ends: OnceLock<Ends>,
}

/// The connection table of each core.
pub(super) type Tables = Arc<[Mutex<Conns>]>;

#[derive(Debug)]
struct Inner {
    control: Control,
    /// Older plans that a core may still use. They are freed here and not on a core.
    old: Vec<(Arc<Plan>, Arc<Hops>)>,
}

/// The result of a backend's last health check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// When the check ended.
    pub at: Nanos,
    /// The duration of the check.
    pub took: Nanos,
    /// Why the check failed; `None` if it passed.
    pub failure: Option<String>,
    /// The number of checks so far.
    pub checks: u64,
    /// The number of failed checks so far.
    pub failures: u64,
}

impl Hub {
    /// Publishes the plans of `control`.
    #[must_use]
    pub fn new(control: Control) -> Self {
        let plan = control.plan();
        Self {
            generation: AtomicU64::new(plan.generation()),
            newest: Mutex::new((plan, Arc::default())),
            neighbours: OnceLock::new(),
            inner: Mutex::new(Inner { control, old: Vec::new() }),
            conns: Mutex::default(),
            reports: Mutex::default(),
            pass: Mutex::default(),
            locals: OnceLock::new(),
            inherited: OnceLock::new(),
            replica: OnceLock::new(),
            ends: OnceLock::new(),
        }
    }

    /// The neighbour entries; `new` creates them at the first call.
    pub(super) fn neighbours(&self, new: impl FnOnce() -> Neighbours) -> Arc<Neighbours> {
        let neighbours = Arc::clone(self.neighbours.get_or_init(|| Arc::new(new())));
        let _alone = lock(&self.inner);
        let mut newest = lock(&self.newest);
        newest.1 = Arc::new(Hops::of(&newest.0, &newest.1, &neighbours));
        neighbours
    }

    /// The generation of the newest plan.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The newest plan.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&lock(&self.newest).0)
    }

    /// The state of every service, with its backends.
    #[must_use]
    pub fn states(&self) -> Vec<ServiceState> {
        lock(&self.inner).control.states()
    }

    /// The newest plan, and the paths to its backends.
    pub(super) fn ways(&self) -> (Arc<Plan>, Arc<Hops>) {
        lock(&self.newest).clone()
    }

    /// Replaces the services at time `now`; see [`Control::set`].
    ///
    /// # Errors
    /// The first service with an invalid configuration; nothing is changed then.
    pub fn set(&self, services: Vec<Service>, now: Nanos) -> Result<(), BadService> {
        self.change(|control| control.set(services, now).map(|_| ()))
    }

    /// Sets the weight of a backend; see [`Control::set_weight`].
    ///
    /// # Errors
    /// The backend does not exist.
    pub fn set_weight(
        &self,
        service: &str,
        backend: &str,
        weight: Option<u32>,
        now: Nanos,
    ) -> Result<(), Unknown> {
        self.change(|control| control.set_weight(service, backend, weight, now).map(|_| ()))
    }

    /// Drains a backend, or ends that; see [`Control::drain`].
    ///
    /// # Errors
    /// The backend does not exist.
    pub fn drain(
        &self,
        service: &str,
        backend: &str,
        drained: bool,
        now: Nanos,
    ) -> Result<(), Unknown> {
        self.change(|control| control.drain(service, backend, drained, now).map(|_| ()))
    }

    /// Marks a backend as up or down; see [`Control::set_up`].
    ///
    /// # Errors
    /// The backend does not exist.
    pub fn set_up(
        &self,
        service: &str,
        backend: &str,
        is_up: bool,
        now: Nanos,
    ) -> Result<(), Unknown> {
        self.change(|control| control.set_up(service, backend, is_up, now).map(|_| ()))
    }

    /// Marks backends as up or down; see [`Control::set_health`].
    pub fn set_health(&self, changes: &[Change], now: Nanos) {
        self.change(|control| control.set_health(changes, now));
    }

    /// Records the result of a check, and counts it.
    pub fn report(&self, backend: u32, at: Nanos, took: Nanos, failure: Option<String>) {
        let mut reports = lock(&self.reports);
        let before = reports.get(&backend).map_or((0, 0), |last| (last.checks, last.failures));
        let (checks, failures) = (before.0 + 1, before.1 + u64::from(failure.is_some()));
        reports.insert(backend, Report { at, took, failure, checks, failures });
    }

    /// Removes the results of backends for which `stays` is false.
    pub fn retain_reports(&self, mut stays: impl FnMut(u32) -> bool) {
        lock(&self.reports).retain(|backend, _| stays(*backend));
    }

    /// The result of the last check of a backend, if it was checked.
    #[must_use]
    pub fn reported(&self, backend: u32) -> Option<Report> {
        lock(&self.reports).get(&backend).cloned()
    }

    /// Prepares counters for `cores` cores and keeps their connection tables, local addresses and `pass` for queries.
    pub(super) fn begin(
        &self,
        cores: usize,
        conns: &Tables,
        locals: &Arc<Locals>,
        pass: &[Option<u16>],
    ) {
        self.change(|control| control.count_by(cores));
        self.set_pass(pass);
        let _kept = self.locals.set(Arc::clone(locals));
        *lock(&self.conns) = Some(Arc::clone(conns));
    }

    /// For packets of no service: the port by which they leave, by the port at which they came in; `None` where
    /// they are dropped.
    #[must_use]
    pub fn pass(&self) -> Vec<Option<u16>> {
        lock(&self.pass).clone()
    }

    /// Notes what becomes of packets of no service, for queries.
    pub(super) fn set_pass(&self, pass: &[Option<u16>]) {
        *lock(&self.pass) = pass.to_vec();
    }

    /// The connection tables of the cores; `None` before [`Self::begin`].
    pub(super) fn conns(&self) -> Option<Tables> {
        lock(&self.conns).clone()
    }

    /// The address and port that a FullNAT connection has on a core.
    pub(super) fn local(&self, core: usize, local: LocalPort, v6: bool) -> Option<SocketAddr> {
        let addr = self.locals.get()?.addr(core, local, v6)?;
        Some(SocketAddr::new(addr, local.port))
    }

    /// Where the connections of another process belong here.
    pub(super) fn inherited(&self) -> Arc<Places> {
        self.inherited.get().cloned().unwrap_or_default()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Control) -> T) -> T {
        let mut inner = lock(&self.inner);
        let before = inner.control.plan();
        let done = change(&mut inner.control);
        inner.old.retain(|(plan, hops)| Arc::strong_count(plan) > 1 || Arc::strong_count(hops) > 1);
        let plan = inner.control.plan();
        if plan.generation() != before.generation() {
            let (old_plan, old_hops) = lock(&self.newest).clone();
            let hops = match self.neighbours.get() {
                Some(neighbours) => Arc::new(Hops::of(&plan, &old_hops, neighbours)),
                None => Arc::clone(&old_hops),
            };
            inner.old.push((old_plan, old_hops));
            let generation = plan.generation();
            *lock(&self.newest) = (plan, hops);
            self.generation.store(generation, Ordering::Release);
        }
        done
    }
}

impl ControlPlane for Hub {
    /// Advances slow starts.
    fn tick(&self, now: Nanos) {
        self.change(|control| control.tick(now));
    }

    fn kind(&self) -> &'static str {
        handed::KIND
    }

    fn hand_over(&self, now: Nanos) -> Option<(&'static str, Vec<u8>)> {
        let inner = lock(&self.inner);
        let all: Vec<_> = inner.control.handed(now).collect();
        Some((handed::KIND, handed::write(&all, &inner.control.handed_tables(now))))
    }

    fn go_on(&self, state: &[u8], now: Nanos) -> Result<(), String> {
        let all = handed::read(state)?;
        let places = self.change(|control| control.inherit(&all, now))?;
        let _once = self.inherited.set(Arc::new(places)); // before any core runs, and once
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
