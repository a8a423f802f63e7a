//! What a balancer counts: for the backend that a packet went to or came from, or else for the
//! service it was for.

use crate::{Cell, REASONS};
use flowyard_frame::{Batch, To};

use super::Balance;
use flowyard_yard::DropReason;

/// There is a number for each reason; 0 is none.
const _: () = assert!(DropReason::ALL.len() < REASONS);

impl Balance {
    /// Where this core counts for the backend that the last packet was for.
    fn cell(&self) -> Option<&Cell> {
        self.plan.target(self.whose.get()?)?.counts.of(self.core)
    }

    /// The packet of `lane`, of so many bytes, went to a backend; or it was dropped.
    #[inline]
    pub(super) fn went_in(&self, batch: &Batch, lane: usize, bytes: u64) {
        let Some(cell) = self.cell() else { return };
        match batch.actions[lane].to {
            To::Drop(reason) => cell.dropped(reason),
            _ => cell.went_in(bytes),
        }
    }

    /// The packet of `lane`, of so many bytes, came from a backend, if one is known.
    #[inline]
    pub(super) fn came_out(&self, batch: &Batch, lane: usize, bytes: u64) {
        let Some(cell) = self.cell() else { return };
        match batch.actions[lane].to {
            To::Drop(reason) => cell.dropped(reason),
            _ => cell.came_out(bytes),
        }
    }

    /// A connection with a backend began.
    #[cold]
    pub(super) fn connected(&self, backend: u32) {
        let cell = self.plan.target(backend).and_then(|target| target.counts.of(self.core));
        if let Some(cell) = cell {
            cell.connection();
        }
    }

    /// A packet for a service was dropped, and there was no backend for it.
    #[cold]
    pub(super) fn unserved(&self, service: u16, reason: DropReason) {
        let table = self.plan.services().get(usize::from(service));
        let counts = table.and_then(|table| table.counts.as_ref());
        if let Some(cell) = counts.and_then(|counts| counts.of(self.core)) {
            cell.dropped(reason.code());
        }
    }
}
