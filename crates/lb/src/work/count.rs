//! Traffic counters of the balancer: a packet is counted for the backend that it is sent to or comes
//! from, or for its service if there is no backend.

use crate::{Cell, Limit, REASONS};
use flowyard_frame::{Batch, To};

use super::balance::Balance;
use flowyard_yard::DropReason;

// Every reason of a balancer has a counter; code 0 is not a reason. Those of IPsec come last, and have none here.
const _: () = assert!((DropReason::NoSa.code() as usize) < REASONS);

impl Balance {
    /// This core's counters of the backend of the current packet.
    fn cell(&self) -> Option<&Cell> {
        self.plan.target(self.whose.get()?)?.counts.of(self.core)
    }

    /// Counts the packet of `lane`, which had `bytes` bytes, as sent to the backend or as dropped.
    #[inline]
    pub(super) fn went_in(&self, batch: &Batch, lane: usize, bytes: u64) {
        let Some(cell) = self.cell() else { return };
        match batch.actions[lane].to {
            To::Drop(reason) => cell.dropped(reason),
            _ => cell.went_in(bytes),
        }
    }

    /// Counts the packet of `lane`, which had `bytes` bytes, as a reply of the backend or as dropped. Does
    /// nothing if the packet has no backend.
    #[inline]
    pub(super) fn came_out(&self, batch: &Batch, lane: usize, bytes: u64) {
        let Some(cell) = self.cell() else { return };
        match batch.actions[lane].to {
            To::Drop(reason) => cell.dropped(reason),
            _ => cell.came_out(bytes),
        }
    }

    /// Counts a new connection to a backend.
    #[cold]
    pub(super) fn connected(&self, backend: u32) {
        let cell = self.plan.target(backend).and_then(|target| target.counts.of(self.core));
        if let Some(cell) = cell {
            cell.connection();
        }
    }

    /// Counts a connection of a backend that another machine has had.
    #[cold]
    pub(super) fn came_from_another(&self, backend: u32) {
        let cell = self.plan.target(backend).and_then(|target| target.counts.of(self.core));
        if let Some(cell) = cell {
            cell.resumed();
        }
    }

    /// Counts a new connection that a backend did not get because of its limit.
    #[cold]
    pub(super) fn passed_over(&self, backend: u32) {
        let cell = self.plan.target(backend).and_then(|target| target.counts.of(self.core));
        if let Some(cell) = cell {
            cell.passed_over();
        }
    }

    /// Counts a new connection or a reply of a backend that could belong to two services.
    #[cold]
    pub(super) fn ambiguous(&self, backend: u32) {
        let cell = self.plan.target(backend).and_then(|target| target.counts.of(self.core));
        if let Some(cell) = cell {
            cell.ambiguous();
        }
    }

    /// Counts a segment to the backend of the current packet that has no room for the client's address.
    #[cold]
    pub(super) fn toa_omitted(&self) {
        if let Some(cell) = self.cell() {
            cell.toa_omitted();
        }
    }

    /// Counts a packet to a service that was dropped before a backend was chosen.
    #[cold]
    pub(super) fn unserved(&self, service: u16, reason: DropReason) {
        if let Some(cell) = self.service_cell(service) {
            cell.dropped(reason.code());
        }
    }

    /// Counts a packet to a service whose connection got no entry.
    #[cold]
    pub(super) fn refused(&self, service: u16, limit: Limit) {
        if let Some(cell) = self.service_cell(service) {
            cell.refused(limit);
        }
    }

    /// This core's counters of what a service does without a backend.
    fn service_cell(&self, service: u16) -> Option<&Cell> {
        let table = self.plan.services().get(usize::from(service))?;
        table.counts.as_ref()?.of(self.core)
    }
}
