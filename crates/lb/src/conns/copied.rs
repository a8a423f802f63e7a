//! Copies of entries, for other machines.

use flowyard_frame::Nanos;

use super::key::ConnKey;
use super::{Conns, wheel};

/// An established connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// The ID of its backend.
    pub(crate) backend: u32,
    /// The tick at which its entry ends, unless packets come.
    pub(crate) deadline: u32,
    pub(crate) key: ConnKey,
}

impl Conns {
    /// Copies the established connections without a local port in `count` slots from `first` on to `copies`. An entry that another
    /// core counts is left out: that core has the connection, too. Returns whether there are slots behind them.
    pub(crate) fn copy(
        &self,
        first: usize,
        count: usize,
        now: Nanos,
        copies: &mut Vec<Copied>,
    ) -> bool {
        let tick = wheel::tick(now);
        let end = first.saturating_add(count).min(self.slots.len());
        for conn in self.slots.get(first..end).unwrap_or_default() {
            if conn.is_established() && conn.port == 0 && conn.is_counted() && tick < conn.deadline
            {
                let (backend, deadline, key) = (conn.backend, conn.deadline, conn.key);
                copies.push(Copied { backend, deadline, key });
            }
        }
        end < self.slots.len()
    }
}
