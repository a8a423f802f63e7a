//! Builds plans from the configuration and the state of the backends.

use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Arc;

use flowyard_flow::table::maglev::Choice as MaglevChoice;
use flowyard_flow::table::{Maglev, Replica};
use flowyard_frame::Nanos;
use siphasher::sip::SipHasher24;

use super::state::{Control, Known, name};
use crate::plan::{Fronts, Plan, Table, Target, keeps, place, turns};
use crate::quic::{Reader, ServerId};
use crate::service::{AllDown, Backend, Service};

/// The number of weight steps of a slow start. Each step needs a plan.
const STEPS: u64 = 10;

impl Control {
    /// The slow-start step of each backend at `now`, from 0 to `STEPS - 1`.
    pub(super) fn steps(&self, now: Nanos) -> Vec<u64> {
        let step = |service: &Service, backend: &Backend| {
            let since = self.known.get(&name(service, backend))?.since?;
            let past = now.saturating_sub(since);
            (past < service.slow_start).then(|| past * STEPS / service.slow_start)
        };
        let all = self.services.iter().flat_map(|s| s.backends.iter().map(move |b| (s, b)));
        all.map(|(service, backend)| step(service, backend).unwrap_or(STEPS - 1)).collect()
    }

    /// Builds the next plan from the same services, after the state of a backend changed.
    pub(super) fn remake(&mut self, now: Nanos) -> Arc<Plan> {
        self.make(self.plan.fronts.clone(), now)
    }

    /// Builds the next plan.
    pub(super) fn make(&mut self, fronts: Fronts, now: Nanos) -> Arc<Plan> {
        self.steps = self.steps(now);
        let mut targets: Vec<Option<Target>> = vec![None; self.numbers.len()];
        let (mut tables, mut at) = (Vec::new(), 0);
        for (number, service) in (0u16..).zip(&self.services) {
            let all: Vec<&Known> =
                service.backends.iter().filter_map(|b| self.known.get(&name(service, b))).collect();
            let believe = all.iter().any(|known| known.is_up) || service.all_down == AllDown::Drop;
            let steps = self.steps.get(at..at + all.len()).unwrap_or_default();
            at += all.len();
            let asked = self.totals.get(&service.name).and_then(|totals| totals.asked.clone());
            let weight = |((backend, known), step): ((&Backend, &&Known), &u64)| {
                let weight = known.weight.unwrap_or(backend.weight);
                let drains = backend.drain || known.drained;
                let takes = (known.is_up || !believe) && !drains;
                // In hundredths. A backend that starts gets the first of ten steps at once, so its
                // weight is never 0.
                let slowly = u64::from(weight) * 100 * (step + 1).min(STEPS) / STEPS;
                if takes { slowly as u32 } else { 0 }
            };
            let mut weights: Vec<u32> =
                service.backends.iter().zip(&all).zip(steps).map(weight).collect();
            hold_backups(&service.backends, &mut weights);
            for (index, (backend, known)) in (0..).zip(service.backends.iter().zip(&all)) {
                targets[place(known.id) as usize] = Some(Target {
                    id: known.id,
                    identity: identity(service, backend),
                    service: number,
                    index,
                    mode: service.mode,
                    addr: backend.addr,
                    port: backend.port,
                    exit: backend.exit,
                    keeps: keeps(service, known.is_up || !believe) && !service.one_packet,
                    asked: asked.clone(),
                    shares: fronts.shared.binary_search(&(number, index)).is_ok(),
                    lasts: lasts(
                        service,
                        backend,
                        known.is_up || !believe,
                        weights[usize::from(index)],
                    ),
                    weight: weights[usize::from(index)],
                    active: Arc::clone(&known.active),
                    ceiling: backend.ceiling,
                    counts: Arc::clone(&known.counts),
                });
            }
            tables.push(Table {
                maglev: self.maglev(service, &weights),
                service: Arc::clone(service),
                number: self.totals.get(&service.name).map_or(0, |totals| totals.number),
                members: all.iter().map(|known| place(known.id)).collect(),
                turns: turns(&weights),
                weights,
                quic: (!service.quic.is_empty()).then(|| Reader::new(&service.quic)),
                servers: servers(service),
                asked,
                persist: self
                    .totals
                    .get(&service.name)
                    .and_then(|totals| totals.persist.as_ref().map(|(_, table)| Arc::clone(table))),
                counts: self.totals.get(&service.name).map(|t| Arc::clone(&t.counts)),
            });
        }
        let all = (0u32..).zip(&targets);
        let mut identities: Vec<_> =
            all.filter_map(|(at, t)| Some((t.as_ref()?.identity, at))).collect();
        identities.sort_unstable();
        self.plan = Arc::new(Plan {
            generation: self.plan.generation + 1,
            entries: self.entries,
            seed: self.seed,
            services: tables,
            fronts,
            targets,
            identities,
        });
        self.plan()
    }

    /// The Maglev table of `service`: that of the last plan if names and weights are unchanged.
    fn maglev(&self, service: &Service, weights: &[u32]) -> Arc<Maglev> {
        let names = |s: &Service| s.backends.iter().map(|b| b.name.clone()).collect::<Vec<_>>();
        let equal = |old: &&Table| {
            old.service.name == service.name
                && old.weights == weights
                && names(&old.service) == names(service)
        };
        if let Some(old) = self.plan.services.iter().find(equal) {
            return Arc::clone(&old.maglev);
        }
        let maglev = Maglev::new(&choices(service, weights), self.entries, self.seed);
        // The services were validated when they were set, and weights cannot make a table invalid.
        maglev.map_or_else(|_| Arc::default(), Arc::new)
    }
}

/// Whether new connections of a network that has this backend still go to it. A drained backend is up and has the weight 0, as a
/// backup has while other backends accept connections; but a backup is left then.
fn lasts(service: &Service, backend: &Backend, is_up: bool, weight: u32) -> bool {
    let keeps_drained = service.persist.is_some_and(|persist| persist.keeps_drained);
    is_up && (weight > 0 || keeps_drained && !backend.backup)
}

/// The identity of a backend. Machines may run different versions, so it never changes.
fn identity(service: &Service, backend: &Backend) -> u64 {
    let mut hasher = SipHasher24::new();
    for name in [&service.name, &backend.name] {
        hasher.write_u64((name.len() as u64).to_le());
        hasher.write(name.as_bytes());
    }
    match backend.addr {
        IpAddr::V4(addr) => hasher.write(&addr.octets()),
        IpAddr::V6(addr) => hasher.write(&addr.octets()),
    }
    hasher.write(&backend.port.map_or(0, u32::from).to_le_bytes());
    (hasher.finish() & Replica::MOST).max(1)
}

/// Sets the weights of backups to 0 while another backend has a weight.
pub(crate) fn hold_backups(backends: &[Backend], weights: &mut [u32]) {
    if backends.iter().zip(&*weights).any(|(backend, weight)| !backend.backup && *weight > 0) {
        let all = backends.iter().zip(weights);
        all.filter(|(backend, _)| backend.backup).for_each(|(_, weight)| *weight = 0);
    }
}

pub(crate) fn choices<'a>(service: &'a Service, weights: &[u32]) -> Vec<MaglevChoice<'a>> {
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
