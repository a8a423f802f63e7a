//! Hub: where control leaves a new plan, and the cores find it.
//!
//! ```text
//!  user, operator, health ──> control ──make──> newest plan ──> cores, before their next batch
//! ```
//!
//! Thread-safety: any thread; a core reads one number for each batch, and takes a lock only when it
//! changed: one that is held for as long as a pointer is copied, not while a plan is made.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{BadService, Conns, Control, Plan, Service, ServiceState, Unknown};
use flowyard_frame::Nanos;

use super::hops::Hops;
use flowyard_works::neighbour::Neighbours;
use flowyard_yard::ControlPlane;

/// Control of the services of a running yard.
#[derive(Debug)]
pub struct Hub {
    generation: AtomicU64,
    newest: Mutex<(Arc<Plan>, Arc<Hops>)>,
    /// Next hops; set once cores are there that ask for them.
    neighbours: OnceLock<Arc<Neighbours>>,
    inner: Mutex<Inner>,
    /// The connections of the cores, by core: for those who ask.
    conns: Mutex<Option<Tables>>,
    /// What came of the last check of backends, by number.
    reports: Mutex<BTreeMap<u32, Report>>,
}

/// Connections by core.
pub(super) type Tables = Arc<[Mutex<Conns>]>;

#[derive(Debug)]
struct Inner {
    control: Control,
    /// Plans that a core may have still: they are dropped here, not on a core.
    old: Vec<(Arc<Plan>, Arc<Hops>)>,
}

/// What came of a backend's last check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// When.
    pub at: Nanos,
    /// How long it took.
    pub took: Nanos,
    /// What was wrong; `None` if nothing was.
    pub fault: Option<String>,
    /// Checks so far.
    pub checks: u64,
    /// Of these, those that something was wrong with.
    pub faults: u64,
}

impl Hub {
    /// The hub of `control`.
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
        }
    }

    /// The next hops that its cores ask for: those that are there, or `new`.
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

    /// Every service with its backends, as they are.
    #[must_use]
    pub fn states(&self) -> Vec<ServiceState> {
        lock(&self.inner).control.states()
    }

    /// The newest plan, and the ways to its backends.
    pub(super) fn ways(&self) -> (Arc<Plan>, Arc<Hops>) {
        lock(&self.newest).clone()
    }

    /// Other services from `now` on.
    ///
    /// # Errors
    /// The first service that is wrong; nothing is changed then.
    pub fn set(&self, services: Vec<Service>, now: Nanos) -> Result<(), BadService> {
        self.change(|control| control.set(services, now).map(|_| ()))
    }

    /// Sets the weight of a backend; see [`Control::set_weight`].
    ///
    /// # Errors
    /// When there is no such backend.
    pub fn set_weight(
        &self,
        service: &str,
        backend: &str,
        weight: Option<u32>,
        now: Nanos,
    ) -> Result<(), Unknown> {
        self.change(|control| control.set_weight(service, backend, weight, now).map(|_| ()))
    }

    /// Drains a backend, or undoes that; see [`Control::drain`].
    ///
    /// # Errors
    /// When there is no such backend.
    pub fn drain(
        &self,
        service: &str,
        backend: &str,
        drained: bool,
        now: Nanos,
    ) -> Result<(), Unknown> {
        self.change(|control| control.drain(service, backend, drained, now).map(|_| ()))
    }

    /// Says that a backend is up, or down.
    ///
    /// # Errors
    /// When there is no such backend.
    pub fn set_up(
        &self,
        service: &str,
        backend: &str,
        is_up: bool,
        now: Nanos,
    ) -> Result<(), Unknown> {
        self.change(|control| control.set_up(service, backend, is_up, now).map(|_| ()))
    }

    /// Says of backends, by number, that they are up or down: one plan for all.
    pub fn set_health(&self, health: &[(u32, bool)], now: Nanos) {
        self.change(|control| control.set_health(health, now));
    }

    /// Notes what came of a check; the numbers of checks are added up here.
    pub fn report(&self, backend: u32, at: Nanos, took: Nanos, fault: Option<String>) {
        let mut reports = lock(&self.reports);
        let before = reports.get(&backend).map_or((0, 0), |report| (report.checks, report.faults));
        let (checks, faults) = (before.0 + 1, before.1 + u64::from(fault.is_some()));
        reports.insert(backend, Report { at, took, fault, checks, faults });
    }

    /// Forgets the reports of backends of which `stays` is not true.
    pub fn retain_reports(&self, mut stays: impl FnMut(u32) -> bool) {
        lock(&self.reports).retain(|backend, _| stays(*backend));
    }

    /// What came of the last check of a backend, if it was checked.
    #[must_use]
    pub fn reported(&self, backend: u32) -> Option<Report> {
        lock(&self.reports).get(&backend).cloned()
    }

    /// The balancers of so many cores begin, with these connections.
    pub(super) fn begin(&self, cores: usize, conns: &Tables) {
        self.change(|control| control.count_by(cores));
        *lock(&self.conns) = Some(Arc::clone(conns));
    }

    /// The connections by core, once cores have begun.
    pub(super) fn conns(&self) -> Option<Tables> {
        lock(&self.conns).clone()
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
    /// Continues slow starts.
    fn tick(&self, now: Nanos) {
        self.change(|control| control.tick(now));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
