//! The state of services and backends, for display.

use std::sync::Arc;

use flowyard_frame::Nanos;

use super::state::{Control, Totals, name};
use crate::counts::Sum;
use crate::persist::{Persist, Persistence};
use crate::plan::{Table, place};
use crate::service::Service;

/// The state of a service.
#[derive(Clone, Debug)]
pub struct ServiceState {
    /// The configuration.
    pub service: Arc<Service>,
    /// The checksum of its Maglev table.
    pub checksum: u64,
    /// The size of its Maglev table; 0 if no backend accepts new connections.
    pub entries: u32,
    /// Totals since the service was added, including those of backends removed since.
    pub counts: Sum,
    /// What became of new connections, if the service has persistence.
    pub persist: Option<(Persistence, Arc<Persist>)>,
    /// The backends, in the order of the configuration.
    pub backends: Vec<BackendState>,
}

/// The state of a backend.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BackendState {
    /// As in [`crate::Target::id`].
    pub id: u32,
    /// The result of health checks.
    pub is_up: bool,
    /// When it last came up or went down.
    pub since: Nanos,
    /// Whether it is drained manually, which is independent of the configuration.
    pub drained: bool,
    /// The weight that was set manually.
    pub set_weight: Option<u32>,
    /// The effective weight for new connections, in hundredths. It includes health, drain and slow
    /// start.
    pub weight: u32,
    /// The number of entries of its service's Maglev table that name it.
    pub entries: u32,
    /// Current connections.
    pub active: u32,
    /// Whether it has reached its limit of connections.
    pub is_full: bool,
    /// Totals since the backend was added.
    pub counts: Sum,
}

impl Control {
    /// The state of every service, with its backends.
    #[must_use]
    pub fn states(&self) -> Vec<ServiceState> {
        self.plan.services.iter().map(|table| self.state(table)).collect()
    }

    fn state(&self, table: &Table) -> ServiceState {
        let service = &table.service;
        let mut entries = vec![0; service.backends.len()];
        for &index in table.maglev.entries() {
            entries[usize::from(index)] += 1;
        }
        let totals = self.totals.get(&service.name);
        let mut counts = totals.map_or_else(Sum::default, Totals::sum);
        let backend = |(at, backend)| {
            let known = self.known.get(&name(service, backend))?;
            let target = self.plan.targets.get(place(known.id) as usize)?.as_ref()?;
            Some(BackendState {
                id: known.id,
                is_up: known.is_up,
                since: known.changed,
                drained: known.drained,
                set_weight: known.weight,
                weight: target.weight,
                entries: entries.get::<usize>(at).copied().unwrap_or(0),
                active: known.active.get(),
                is_full: !target.has_room(),
                counts: known.counts.sum(),
            })
        };
        let backends: Vec<BackendState> =
            service.backends.iter().enumerate().filter_map(backend).collect();
        for backend in &backends {
            counts = counts.plus(&backend.counts);
        }
        ServiceState {
            service: Arc::clone(service),
            checksum: table.checksum(),
            entries: table.maglev.entries().len() as u32,
            counts,
            persist: totals.and_then(|totals| totals.persist.clone()),
            backends,
        }
    }
}
