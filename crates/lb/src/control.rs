//! Control plane of the balancer: holds the configuration and the state of the backends, and builds
//! plans from them.
//!
//! Time is an argument. Every change with an effect builds one plan. A change that is refused has no
//! effect and returns the reason.
//!
//! Invariants: a backend keeps its ID, its counters and its manual settings as long as the name of its
//! service and its own name, address and port are unchanged; generations only increase.
//! Thread-safety: used by one thread at a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flowyard_frame::Nanos;

use crate::counts::{Counts, Sum};
use crate::health::Change;
use crate::near::nearest;
use crate::plan::{Fronts, Plan, next_id, place};
use crate::service::Service;

mod check;
pub(crate) mod make;
mod show;
mod state;

use check::check;
pub use check::{BadService, BadWhat, HEAVIEST};
pub use show::{BackendState, ServiceState};
pub use state::Control;
use state::{Known, Name, Totals, name};

/// A service or backend was named that does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unknown {
    /// There is no service with this name.
    #[error("there is no service '{service}'; {near}")]
    Service {
        /// The requested name.
        service: String,
        /// Suggestion from [`nearest`].
        near: String,
    },
    /// The service has no backend with this name.
    #[error("service '{service}' has no backend '{backend}'; {near}")]
    Backend {
        /// The requested service.
        service: String,
        /// The requested backend.
        backend: String,
        /// Suggestion from [`nearest`].
        near: String,
    },
}

impl Control {
    /// Starts with `services` and all their backends up. Each Maglev table has `entries` entries. All
    /// machines of a cluster must use the same `seed`.
    ///
    /// # Errors
    /// The first service with an invalid configuration.
    pub fn new(services: Vec<Service>, entries: u32, seed: u64) -> Result<Self, BadService> {
        let plan = Arc::new(Plan {
            generation: 0,
            entries,
            seed,
            services: Vec::new(),
            fronts: Fronts::default(),
            targets: Vec::new(),
            identities: Vec::new(),
        });
        let mut control = Self {
            services: Vec::new(),
            entries,
            seed,
            cores: 1,
            known: HashMap::new(),
            totals: HashMap::new(),
            numbers: Vec::new(),
            free: Vec::new(),
            plan,
            steps: Vec::new(),
        };
        control.change(services, None)?;
        Ok(control)
    }

    /// Validates services as [`Control::new`] does, without building their tables.
    ///
    /// # Errors
    /// The first service that is invalid.
    pub fn check(services: &[Service], entries: u32, seed: u64) -> Result<(), BadService> {
        check(services, entries, seed).map(drop)
    }

    /// Allocates counters for `cores` cores, and builds a plan that uses them. Resets all counters, so
    /// it must be called before any core has a plan.
    pub fn count_by(&mut self, cores: usize) -> Arc<Plan> {
        self.cores = cores;
        for known in self.known.values_mut() {
            known.counts = Arc::new(Counts::new(cores));
        }
        for totals in self.totals.values_mut() {
            totals.counts = Arc::new(Counts::new(cores));
        }
        self.remake(0)
    }

    /// The current plan.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    /// Replaces the services at time `now`. Backends that exist before and after keep their
    /// connections, health and manual settings. New backends are up and begin with slow start.
    ///
    /// # Errors
    /// The first service with an invalid configuration; nothing is changed then.
    pub fn set(&mut self, services: Vec<Service>, now: Nanos) -> Result<Arc<Plan>, BadService> {
        self.change(services, Some(now))
    }

    fn change(
        &mut self,
        services: Vec<Service>,
        now: Option<Nanos>,
    ) -> Result<Arc<Plan>, BadService> {
        let fronts = check(&services, self.entries, self.seed)?;
        let named = services.iter().flat_map(|s| s.backends.iter().map(|b| name(s, b)));
        let names: Vec<Name> = named.collect();
        self.forget(&services, &names);
        self.number(&services);
        for name in names {
            if self.known.contains_key(&name) {
                continue;
            }
            let at = self.free.pop().unwrap_or(self.numbers.len() as u32);
            let id = next_id(self.numbers.get(at as usize).copied(), at);
            match self.numbers.get_mut(at as usize) {
                Some(number) => *number = id,
                None => self.numbers.push(id),
            }
            let known = Known {
                id,
                active: Arc::default(),
                counts: Arc::new(Counts::new(self.cores)),
                is_up: true,
                changed: now.unwrap_or(0),
                since: now,
                weight: None,
                drained: false,
            };
            self.known.insert(name, known);
        }
        self.services = services.into_iter().map(Arc::new).collect();
        // A backend that is no longer checked could never come up again.
        for service in self.services.iter().filter(|service| service.check.is_none()) {
            for backend in &service.backends {
                if let Some(known) = self.known.get_mut(&name(service, backend))
                    && !known.is_up
                {
                    let at = now.unwrap_or(0);
                    (known.is_up, known.changed, known.since) = (true, at, Some(at));
                }
            }
        }
        Ok(self.make(fronts, now.unwrap_or(0)))
    }

    /// Adds totals for new services, each with a free number.
    fn number(&mut self, services: &[Service]) {
        let used: HashSet<u16> = self.totals.values().map(|totals| totals.number).collect();
        let mut free = (0..=u16::MAX).filter(|number| !used.contains(number));
        for service in services {
            let totals = self.totals.entry(service.name.clone()).or_insert_with(|| Totals {
                number: free.next().unwrap_or(u16::MAX),
                counts: Arc::new(Counts::new(self.cores)),
                asked: None,
                persist: None,
                leaving: Vec::new(),
                gone: Sum::default(),
            });
            totals.prepare(service);
        }
    }

    /// Removes backends that are not in `names`, and services that are not in `services`.
    fn forget(&mut self, services: &[Service], names: &[Name]) {
        let names: HashSet<&Name> = names.iter().collect();
        let gone: Vec<Name> = self.known.keys().filter(|k| !names.contains(k)).cloned().collect();
        for name in gone {
            let Some(known) = self.known.remove(&name) else { continue };
            self.free.push(place(known.id));
            if let Some(totals) = self.totals.get_mut(&name.service) {
                totals.leaving.push(known.counts);
            }
        }
        self.totals.retain(|name, totals| {
            totals.settle();
            services.iter().any(|service| service.name == *name)
        });
    }

    /// Sets the weight of a backend until it is set again; `None` restores the configured weight. A
    /// weight of 0 drains the backend: existing connections stay. Returns the current plan, which is
    /// a new one if the weight changed.
    ///
    /// # Errors
    /// The backend does not exist.
    pub fn set_weight(
        &mut self,
        service: &str,
        backend: &str,
        weight: Option<u32>,
        now: Nanos,
    ) -> Result<Arc<Plan>, Unknown> {
        let weight = weight.map(|weight| weight.min(HEAVIEST));
        let known = self.known(service, backend)?;
        let has_changed = std::mem::replace(&mut known.weight, weight) != weight;
        Ok(if has_changed { self.remake(now) } else { self.plan() })
    }

    /// Drains a backend whatever its weight, or ends that: a drained backend keeps its connections and
    /// gets no new ones. Returns the current plan, which is a new one if the setting changed.
    ///
    /// # Errors
    /// The backend does not exist.
    pub fn drain(
        &mut self,
        service: &str,
        backend: &str,
        drained: bool,
        now: Nanos,
    ) -> Result<Arc<Plan>, Unknown> {
        let known = self.known(service, backend)?;
        let has_changed = std::mem::replace(&mut known.drained, drained) != drained;
        Ok(if has_changed { self.remake(now) } else { self.plan() })
    }

    /// Marks a backend as up or down. Returns a plan if that changed its state.
    ///
    /// # Errors
    /// The backend does not exist.
    pub fn set_up(
        &mut self,
        service: &str,
        backend: &str,
        is_up: bool,
        now: Nanos,
    ) -> Result<Option<Arc<Plan>>, Unknown> {
        let backend = self.known(service, backend)?.id;
        Ok(self.set_health(&[Change { backend, is_up }], now))
    }

    /// Marks backends, given by ID, as up or down. All changes together build one plan, which is
    /// returned if any state changed. IDs of removed backends are ignored.
    pub fn set_health(&mut self, changes: &[Change], now: Nanos) -> Option<Arc<Plan>> {
        let mut has_changed = false;
        for known in self.known.values_mut() {
            let change = changes.iter().rfind(|change| change.backend == known.id);
            let Some(Change { is_up, .. }) = change else { continue };
            if known.is_up != *is_up {
                (known.is_up, known.changed, known.since) = (*is_up, now, Some(now));
                has_changed = true;
            }
        }
        has_changed.then(|| self.remake(now))
    }

    /// Builds the next plan if the slow start of any backend has reached another step by `now`.
    pub fn tick(&mut self, now: Nanos) -> Option<Arc<Plan>> {
        (self.steps(now) != self.steps).then(|| self.remake(now))
    }

    fn known(&mut self, service: &str, backend: &str) -> Result<&mut Known, Unknown> {
        let Some(found) = self.services.iter().find(|s| s.name == service) else {
            let near = nearest(service, self.services.iter().map(|s| s.name.as_str()));
            return Err(Unknown::Service { service: service.into(), near });
        };
        let unknown = || Unknown::Backend {
            service: service.into(),
            backend: backend.into(),
            near: nearest(backend, found.backends.iter().map(|b| b.name.as_str())),
        };
        let backend = found.backends.iter().find(|b| b.name == backend).ok_or_else(unknown)?;
        self.known.get_mut(&name(found, backend)).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests;
