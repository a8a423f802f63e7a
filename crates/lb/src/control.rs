//! Control: who knows what the user wants and how the backends are, and makes plans of it.
//!
//! Time is an argument. Every change that matters makes one plan; one that is refused changes
//! nothing and says why.
//!
//! Invariants: a backend keeps its number, its counts and what was set for it as long as its service
//! and its own name, address and port stay; plans have ever higher generations.
//! Thread-safety: one thread's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use flowyard_frame::Nanos;

use crate::counts::{Counts, Sum};
use crate::near::nearest;
use crate::plan::{Plan, next_id, place};
use crate::service::{Backend, Service};

mod check;
mod make;
mod show;

use check::check;
pub use check::{BadService, BadWhat};
pub use show::{BackendState, ServiceState};

/// The most that a backend can weigh: slow start counts in hundredths.
pub const HEAVIEST: u32 = 1_000_000;

/// Services, backends, and how they are.
#[derive(Debug)]
pub struct Control {
    services: Vec<Arc<Service>>,
    entries: u32,
    seed: u64,
    /// How many cores count.
    cores: usize,
    known: HashMap<Name, Known>,
    /// By the name of the service.
    totals: HashMap<String, Totals>,
    /// By place: the number last used there.
    numbers: Vec<u32>,
    /// Places that nobody has.
    free: Vec<u32>,
    plan: Arc<Plan>,
    /// The weights that the plan was made of.
    steps: Vec<u64>,
}

/// A backend that keeps its number: by service and name, and where it is.
type Name = (String, String, std::net::IpAddr, Option<u16>);

#[derive(Clone, Debug)]
struct Known {
    id: u32,
    active: Arc<AtomicU32>,
    counts: Arc<Counts>,
    is_up: bool,
    /// Since when it is up, or down.
    changed: Nanos,
    /// When it came up; `None` was up from the start, without slow start.
    since: Option<Nanos>,
    /// In place of the configured weight.
    weight: Option<u32>,
    /// Drained by somebody, whatever is configured.
    drained: bool,
}

/// What was counted for a service besides its backends.
#[derive(Debug)]
struct Totals {
    /// Drops before there was a backend.
    counts: Arc<Counts>,
    /// Of backends that went: cores may count there still, until they have the next plan.
    leaving: Vec<Arc<Counts>>,
    /// Of those that nobody counts in any more.
    gone: Sum,
}

impl Totals {
    fn sum(&self) -> Sum {
        let all = self.leaving.iter().fold(self.gone, |sum, counts| sum.plus(&counts.sum()));
        all.plus(&self.counts.sum())
    }

    /// Adds up what nobody counts in any more.
    fn settle(&mut self) {
        let gone = &mut self.gone;
        self.leaving.retain(|counts| {
            let is_over = Arc::strong_count(counts) == 1;
            if is_over {
                *gone = gone.plus(&counts.sum());
            }
            !is_over
        });
    }
}

/// There is no such backend.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unknown {
    /// No such service.
    #[error("there is no service '{service}'; {near}")]
    Service {
        /// The service asked for.
        service: String,
        /// What may have been meant.
        near: String,
    },
    /// The service has no such backend.
    #[error("service '{service}' has no backend '{backend}'; {near}")]
    Backend {
        /// The service asked for.
        service: String,
        /// The backend asked for.
        backend: String,
        /// What may have been meant.
        near: String,
    },
}

impl Control {
    /// Control of `services`, all backends up. Maglev tables have `entries` entries. `seed` is the same on all
    /// machines of a cluster.
    ///
    /// # Errors
    /// The first service that is wrong.
    pub fn new(services: Vec<Service>, entries: u32, seed: u64) -> Result<Self, BadService> {
        let plan = Arc::new(Plan {
            generation: 0,
            seed,
            services: Vec::new(),
            fronts: Vec::new(),
            targets: Vec::new(),
            returns: Vec::new(),
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

    /// Has so many cores count, from the next plan on, which is made at once. What was counted is
    /// forgotten: to be called before cores have a plan.
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

    /// The plan as it is now.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    /// Other services from `now` on. Backends that stay keep their connections, health and what was
    /// set for them; new ones are up, and start slowly.
    ///
    /// # Errors
    /// The first service that is wrong; nothing is changed then.
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
        for service in &services {
            let counts = || Arc::new(Counts::new(self.cores));
            let totals = || Totals { counts: counts(), leaving: Vec::new(), gone: Sum::default() };
            self.totals.entry(service.name.clone()).or_insert_with(totals);
        }
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
        // Who is not asked any more could never come up again.
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

    /// Forgets what is not among these any more.
    fn forget(&mut self, services: &[Service], names: &[Name]) {
        let names: HashSet<&Name> = names.iter().collect();
        let gone: Vec<Name> = self.known.keys().filter(|k| !names.contains(k)).cloned().collect();
        for name in gone {
            let Some(known) = self.known.remove(&name) else { continue };
            self.free.push(place(known.id));
            if let Some(totals) = self.totals.get_mut(&name.0) {
                totals.leaving.push(known.counts);
            }
        }
        self.totals.retain(|name, totals| {
            totals.settle();
            services.iter().any(|service| service.name == *name)
        });
    }

    /// Sets the weight of a backend until it is set again; `None` is the configured one. 0 drains it:
    /// connections that it has stay. A new plan, if that is news.
    ///
    /// # Errors
    /// When there is no such backend.
    pub fn set_weight(
        &mut self,
        service: &str,
        backend: &str,
        weight: Option<u32>,
        now: Nanos,
    ) -> Result<Arc<Plan>, Unknown> {
        let weight = weight.map(|weight| weight.min(HEAVIEST));
        let known = self.known(service, backend)?;
        let is_news = std::mem::replace(&mut known.weight, weight) != weight;
        Ok(if is_news { self.remake(now) } else { self.plan() })
    }

    /// Drains a backend whatever its weight, until that is undone: connections that it has stay, and
    /// no new ones come.
    ///
    /// # Errors
    /// When there is no such backend.
    pub fn drain(
        &mut self,
        service: &str,
        backend: &str,
        drained: bool,
        now: Nanos,
    ) -> Result<Arc<Plan>, Unknown> {
        let known = self.known(service, backend)?;
        let is_news = std::mem::replace(&mut known.drained, drained) != drained;
        Ok(if is_news { self.remake(now) } else { self.plan() })
    }

    /// Says that a backend is up, or down. A new plan, if that is news.
    ///
    /// # Errors
    /// When there is no such backend.
    pub fn set_up(
        &mut self,
        service: &str,
        backend: &str,
        is_up: bool,
        now: Nanos,
    ) -> Result<Option<Arc<Plan>>, Unknown> {
        let id = self.known(service, backend)?.id;
        Ok(self.set_health(&[(id, is_up)], now))
    }

    /// Says of backends, by number, that they are up or down: all of it is one plan, if any of it is
    /// news. Numbers of backends that are gone say nothing.
    pub fn set_health(&mut self, health: &[(u32, bool)], now: Nanos) -> Option<Arc<Plan>> {
        let mut is_news = false;
        for known in self.known.values_mut() {
            let Some((_, is_up)) = health.iter().rfind(|(id, _)| *id == known.id) else { continue };
            if known.is_up != *is_up {
                (known.is_up, known.changed, known.since) = (*is_up, now, Some(now));
                is_news = true;
            }
        }
        is_news.then(|| self.remake(now))
    }

    /// The next plan, if slow start has come a step further by `now`.
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

fn name(service: &Service, backend: &Backend) -> Name {
    (service.name.clone(), backend.name.clone(), backend.addr, backend.port)
}

#[cfg(test)]
mod tests;
