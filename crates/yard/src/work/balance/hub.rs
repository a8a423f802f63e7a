//! Hub: where control leaves a new plan, and the cores find it.
//!
//! Thread-safety: any thread; a core reads one number for each batch and locks only when it changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flowyard_frame::Nanos;
use flowyard_lb::{BadService, Control, Plan, Service, Unknown};

use super::hops::Hops;
use crate::neighbour::Neighbours;

/// Control of the services of a running yard.
#[derive(Debug)]
pub struct Hub {
    generation: AtomicU64,
    /// Next hops; set once cores are there that ask for them.
    neighbours: OnceLock<Arc<Neighbours>>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    control: Control,
    /// Of the plan of now.
    hops: Arc<Hops>,
    /// Plans that a core may have still: they are dropped here, not on a core.
    old: Vec<(Arc<Plan>, Arc<Hops>)>,
}

impl Hub {
    /// The hub of `control`.
    #[must_use]
    pub fn new(control: Control) -> Self {
        let generation = AtomicU64::new(control.plan().generation());
        let inner = Inner { control, hops: Arc::default(), old: Vec::new() };
        Self { generation, neighbours: OnceLock::new(), inner: Mutex::new(inner) }
    }

    /// The next hops that its cores ask for: those that are there, or `new`.
    pub(super) fn neighbours(&self, new: impl FnOnce() -> Neighbours) -> Arc<Neighbours> {
        let neighbours = Arc::clone(self.neighbours.get_or_init(|| Arc::new(new())));
        let mut inner = self.inner();
        inner.hops = Arc::new(Hops::of(&inner.control.plan(), &inner.hops, &neighbours));
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
        self.inner().control.plan()
    }

    /// The newest plan, and the ways to its backends.
    pub(super) fn ways(&self) -> (Arc<Plan>, Arc<Hops>) {
        let inner = self.inner();
        (inner.control.plan(), Arc::clone(&inner.hops))
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

    /// Goes on with what takes time: slow start.
    pub fn tick(&self, now: Nanos) {
        self.change(|control| control.tick(now));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Control) -> T) -> T {
        let mut inner = self.inner();
        let before = (inner.control.plan(), Arc::clone(&inner.hops));
        let done = change(&mut inner.control);
        inner.old.retain(|(plan, hops)| Arc::strong_count(plan) > 1 || Arc::strong_count(hops) > 1);
        if let Some(neighbours) = self.neighbours.get() {
            inner.hops = Arc::new(Hops::of(&inner.control.plan(), &before.1, neighbours));
        }
        inner.old.push(before);
        self.generation.store(inner.control.plan().generation(), Ordering::Release);
        done
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
