//! What control knows, for people who ask.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowyard_frame::Nanos;

use super::{Control, name};
use crate::counts::Sum;
use crate::plan::{Table, place};
use crate::service::Service;

/// A service, as it is.
#[derive(Clone, Debug)]
pub struct ServiceState {
    /// As described.
    pub service: Arc<Service>,
    /// The checksum of its table.
    pub checksum: u64,
    /// Entries of its table.
    pub entries: u32,
    /// What was counted since it came: for backends that went since, too.
    pub counts: Sum,
    /// Its backends, in the order in which they are described.
    pub backends: Vec<BackendState>,
}

/// A backend, as it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BackendState {
    /// Its number.
    pub id: u32,
    /// Whether it is up.
    pub is_up: bool,
    /// Since when.
    pub since: Nanos,
    /// Whether somebody drains it, besides what is described.
    pub drained: bool,
    /// The weight that somebody set.
    pub set_weight: Option<u32>,
    /// The weight that new connections go by, in hundredths: health, drain and slow start are in it.
    pub weight: u32,
    /// Entries of its service's table that name it.
    pub entries: u32,
    /// Connections that it has.
    pub active: u32,
    /// What was counted since it came.
    pub counts: Sum,
}

impl Control {
    /// Every service with its backends.
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
        let mut counts = totals.map_or_else(Sum::default, super::Totals::sum);
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
                active: known.active.load(Ordering::Relaxed),
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
            backends,
        }
    }
}
