//! Control: who knows what the user wants and how the backends are, and makes plans of it.
//!
//! Time is an argument. Every change that matters makes one plan; one that is refused changes
//! nothing and says why.
//!
//! Invariants: a backend keeps its number and its count of connections as long as its service and
//! its own name, address and port stay; plans have ever higher generations.
//! Thread-safety: one thread's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use flowyard_flow::table::Maglev;
use flowyard_flow::table::maglev::{BadMaglev, Choice as MaglevChoice};
use flowyard_frame::{Nanos, proto};

use crate::plan::{Front, PLACES, Plan, Table, Target, keeps, next_id, place, turns};
use crate::quic::{Reader, ServerId};
use crate::service::{AllDown, Backend, Mode, Service};

/// Slow start goes in so many steps, each a plan.
const STEPS: u64 = 10;

/// The most that a backend can weigh: slow start counts in hundredths.
pub const HEAVIEST: u32 = 1_000_000;

/// Services, backends, and how they are.
#[derive(Debug)]
pub struct Control {
    services: Vec<Arc<Service>>,
    entries: u32,
    seed: u64,
    known: HashMap<Name, Known>,
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
    is_up: bool,
    /// When it came up; `None` was up from the start, without slow start.
    since: Option<Nanos>,
    /// In place of the configured weight.
    weight: Option<u32>,
}

/// Why services cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("service '{service}': {what}")]
pub struct BadService {
    /// Its name.
    pub service: String,
    /// The index of the backend that is wrong, if one is.
    pub backend: Option<usize>,
    /// What is wrong.
    pub what: BadWhat,
}

/// What is wrong with a service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadWhat {
    /// Its name is taken.
    #[error("there is one of this name already; give each its own name")]
    Twice,
    /// Its ports are another's.
    #[error("'{0}' has this address and port already; give each its own")]
    Overlap(String),
    /// The ports are none.
    #[error("there is no port in this range; write first-last, from 1 to 65535")]
    Ports,
    /// One for each port would be needed.
    #[error("a backend has a port of its own, and the service has many; leave the backend's out")]
    PortOfRange,
    /// Only addresses and ports that are translated can be others.
    #[error(
        "a backend has a port of its own, and this mode changes none; leave it out, or use dnat"
    )]
    PortKept,
    /// IPv4 is not translated to IPv6.
    #[error(
        "backend '{0}' is not of the address family of the VIP; this mode needs that, ipip and gue do not"
    )]
    Family(String),
    /// Answers could not be told apart.
    #[error(
        "backend '{0}' is one of '{1}' too, with the same port; answers could not be told apart: use fullnat or another port"
    )]
    Returns(String, String),
    /// It weighs too much.
    #[error("a weight of {0} is not possible; write 0 to 1000000")]
    Weight(u32),
    /// What Maglev's table says.
    #[error(transparent)]
    Maglev(#[from] BadMaglev),
    /// Each has a place.
    #[error("there are more than {PLACES} backends; leave some out")]
    Backends,
    /// A server ID of another length is never found.
    #[error("backend '{0}' has no server ID of the length that 'quic' says; give it one")]
    ServerId(String),
    /// Only what is terminated in between would need it elsewhere.
    #[error(
        "PROXY protocol is for TCP with fullnat; leave 'proxy' out, backends see the client's address"
    )]
    Proxy,
    /// Two servers of one ID.
    #[error("backend '{0}' has the server ID of another one; give each its own")]
    ServerTwice(String),
}

/// There is no such backend.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no backend '{backend}' of a service '{service}'")]
pub struct Unknown {
    /// The service asked for.
    pub service: String,
    /// The backend asked for.
    pub backend: String,
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
            known: HashMap::new(),
            numbers: Vec::new(),
            free: Vec::new(),
            plan,
            steps: Vec::new(),
        };
        control.change(services, None)?;
        Ok(control)
    }

    /// The plan as it is now.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    /// Other services from `now` on. Backends that stay keep their connections, health and set
    /// weights; new ones are up, and start slowly.
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
        let tables = check(&services, self.entries, self.seed)?;
        let named = services.iter().flat_map(|s| s.backends.iter().map(|b| name(s, b)));
        let names: Vec<Name> = named.collect();
        let gone: Vec<Name> = self.known.keys().filter(|k| !names.contains(k)).cloned().collect();
        for name in gone {
            if let Some(known) = self.known.remove(&name) {
                self.free.push(place(known.id));
            }
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
            let known = Known { id, active: Arc::default(), is_up: true, since: now, weight: None };
            self.known.insert(name, known);
        }
        self.services = services.into_iter().map(Arc::new).collect();
        let now = now.unwrap_or(0);
        Ok(self.make(tables, now))
    }

    /// Sets the weight of a backend until it is set again; `None` is the configured one. 0 drains it:
    /// connections that it has stay.
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
        self.known(service, backend)?.weight = weight.map(|weight| weight.min(HEAVIEST));
        Ok(self.remake(now))
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
        let known = self.known(service, backend)?;
        if known.is_up == is_up {
            return Ok(None);
        }
        (known.is_up, known.since) = (is_up, Some(now));
        Ok(Some(self.remake(now)))
    }

    /// The next plan, if slow start has come a step further by `now`.
    pub fn tick(&mut self, now: Nanos) -> Option<Arc<Plan>> {
        (self.steps(now) != self.steps).then(|| self.remake(now))
    }

    fn known(&mut self, service: &str, backend: &str) -> Result<&mut Known, Unknown> {
        let unknown = || Unknown { service: service.into(), backend: backend.into() };
        let found = self.services.iter().filter(|s| s.name == service);
        let mut found = found.flat_map(|s| s.backends.iter().map(move |b| (s, b)));
        let (service, backend) = found.find(|(_, b)| b.name == backend).ok_or_else(unknown)?;
        self.known.get_mut(&name(service, backend)).ok_or_else(unknown)
    }

    /// How far each backend is with its start, in steps.
    fn steps(&self, now: Nanos) -> Vec<u64> {
        let step = |service: &Service, backend: &Backend| {
            let since = self.known.get(&name(service, backend))?.since?;
            let past = now.saturating_sub(since);
            (past < service.slow_start).then(|| past * STEPS / service.slow_start)
        };
        let all = self.services.iter().flat_map(|s| s.backends.iter().map(move |b| (s, b)));
        all.map(|(service, backend)| step(service, backend).unwrap_or(STEPS - 1)).collect()
    }

    fn remake(&mut self, now: Nanos) -> Arc<Plan> {
        // The services were checked when they were set, and weights do not make a table wrong.
        let services: Vec<Service> = self.services.iter().map(|s| (**s).clone()).collect();
        match check(&services, self.entries, self.seed) {
            Ok(fronts) => self.make(fronts, now),
            Err(_) => self.plan(),
        }
    }

    fn make(&mut self, (fronts, returns): (Vec<Front>, Vec<Front>), now: Nanos) -> Arc<Plan> {
        self.steps = self.steps(now);
        let mut targets: Vec<Option<Target>> = vec![None; self.numbers.len()];
        let (mut tables, mut at) = (Vec::new(), 0);
        for (number, service) in (0u16..).zip(&self.services) {
            let all: Vec<&Known> =
                service.backends.iter().filter_map(|b| self.known.get(&name(service, b))).collect();
            let believe = all.iter().any(|known| known.is_up) || service.all_down == AllDown::Drop;
            let steps = self.steps.get(at..at + all.len()).unwrap_or_default();
            at += all.len();
            let weight = |((backend, known), step): ((&Backend, &&Known), &u64)| {
                let weight = known.weight.unwrap_or(backend.weight);
                let takes = (known.is_up || !believe) && !backend.drain;
                // In hundredths; who starts has one of ten steps at once, and never nothing.
                let slowly = u64::from(weight) * 100 * (step + 1).min(STEPS) / STEPS;
                if takes { slowly as u32 } else { 0 }
            };
            let weights: Vec<u32> =
                service.backends.iter().zip(&all).zip(steps).map(weight).collect();
            for (index, (backend, known)) in (0..).zip(service.backends.iter().zip(&all)) {
                targets[place(known.id) as usize] = Some(Target {
                    id: known.id,
                    service: number,
                    index,
                    mode: service.mode,
                    addr: backend.addr,
                    port: backend.port,
                    exit: backend.exit,
                    keeps: keeps(service, known.is_up),
                    weight: weights[usize::from(index)],
                    active: Arc::clone(&known.active),
                });
            }
            let choices = choices(service, &weights);
            // A table of the last plan is as good, if nothing it is made of has changed.
            let maglev = Maglev::new(&choices, self.entries, self.seed).map(Arc::new);
            tables.push(Table {
                service: Arc::clone(service),
                members: all.iter().map(|known| place(known.id)).collect(),
                maglev: maglev.unwrap_or_else(|_| Arc::clone(&self.plan.services[0].maglev)),
                turns: turns(&weights),
                quic: (!service.quic.is_empty()).then(|| Reader::new(&service.quic)),
                servers: servers(service),
            });
        }
        self.plan = Arc::new(Plan {
            generation: self.plan.generation + 1,
            seed: self.seed,
            services: tables,
            fronts,
            targets,
            returns,
        });
        self.plan()
    }
}

fn name(service: &Service, backend: &Backend) -> Name {
    (service.name.clone(), backend.name.clone(), backend.addr, backend.port)
}

fn choices<'a>(service: &'a Service, weights: &[u32]) -> Vec<MaglevChoice<'a>> {
    let choice =
        |(backend, &weight): (&'a Backend, &u32)| MaglevChoice { name: &backend.name, weight };
    service.backends.iter().zip(weights).map(choice).collect()
}

fn servers(service: &Service) -> Vec<(ServerId, u16)> {
    let all = (0..).zip(&service.backends);
    let mut servers: Vec<_> =
        all.filter_map(|(at, b)| Some((ServerId::new(&b.server_id)?, at))).collect();
    servers.sort_unstable();
    servers
}

/// The addresses of all services, and those that answers come from.
fn check(
    services: &[Service],
    entries: u32,
    seed: u64,
) -> Result<(Vec<Front>, Vec<Front>), BadService> {
    let (mut fronts, mut returns) = (Vec::<Front>::new(), Vec::<(Front, &str)>::new());
    for (number, service) in (0u16..).zip(services) {
        let wrong = |backend, what| BadService { service: service.name.clone(), backend, what };
        let before = &services[..usize::from(number)];
        if before.iter().any(|other| other.name == service.name) {
            return Err(wrong(None, BadWhat::Twice));
        }
        let (first, last) = (*service.ports.start(), *service.ports.end());
        if first == 0 || first > last {
            return Err(wrong(None, BadWhat::Ports));
        }
        if service.proxy && (service.mode, service.proto) != (Mode::FullNat, proto::TCP) {
            return Err(wrong(None, BadWhat::Proxy));
        }
        let front = Front { addr: service.vip, proto: service.proto, first, last, service: number };
        let other = |f: &&Front| overlap(f, &front);
        if let Some(other) = fronts.iter().find(other) {
            let name = services[usize::from(other.service)].name.clone();
            return Err(wrong(None, BadWhat::Overlap(name)));
        }
        fronts.push(front);
        let weights: Vec<u32> = service.backends.iter().map(|b| b.weight).collect();
        Maglev::new(&choices(service, &weights), entries, seed)
            .map_err(|error| wrong(None, error.into()))?;
        for (at, backend) in service.backends.iter().enumerate() {
            let name = || backend.name.clone();
            let what = if backend.weight > HEAVIEST {
                BadWhat::Weight(backend.weight)
            } else if backend.port.is_some() && first != last {
                BadWhat::PortOfRange
            } else if backend.port.is_some() && !service.mode.translates() {
                BadWhat::PortKept
            } else if service.mode.overhead(false) == 0
                && backend.addr.is_ipv4() != service.vip.is_ipv4()
            {
                BadWhat::Family(name())
            } else if service.quic.iter().any(|q| q.server_bytes() != backend.server_id.len()) {
                BadWhat::ServerId(name())
            } else if !backend.server_id.is_empty()
                && service.backends[..at].iter().any(|b| b.server_id == backend.server_id)
            {
                BadWhat::ServerTwice(name())
            } else {
                if service.mode == Mode::Dnat {
                    let (first, last) = backend.port.map_or((first, last), |port| (port, port));
                    let front = Front { addr: backend.addr, first, last, ..front };
                    if let Some((other, _)) = returns.iter().find(|(f, _)| overlap(f, &front)) {
                        let other = services[usize::from(other.service)].name.clone();
                        return Err(wrong(Some(at), BadWhat::Returns(name(), other)));
                    }
                    returns.push((front, &backend.name));
                }
                continue;
            };
            return Err(wrong(Some(at), what));
        }
    }
    if services.iter().map(|s| s.backends.len()).sum::<usize>() > PLACES {
        let service = services.first().map(|s| s.name.clone()).unwrap_or_default();
        return Err(BadService { service, backend: None, what: BadWhat::Backends });
    }
    fronts.sort_unstable();
    let mut returns: Vec<Front> = returns.into_iter().map(|(front, _)| front).collect();
    returns.sort_unstable();
    Ok((fronts, returns))
}

fn overlap(a: &Front, b: &Front) -> bool {
    (a.addr, a.proto) == (b.addr, b.proto) && a.first <= b.last && b.first <= a.last
}

#[cfg(test)]
mod tests;
