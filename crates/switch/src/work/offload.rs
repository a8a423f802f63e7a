//! The switch's part in what is answered in front of it, and the counters of ports.

use std::sync::Arc;

use flowyard_frame::Nanos;
use flowyard_yard::front::Front;

use super::{Switch, SwitchHub};

impl SwitchHub {
    pub(super) fn count(&self, port: u16, sent: bool, core: usize, bytes: usize, now: Nanos) {
        self.count_all(port, sent, core, (1, bytes), now);
    }

    /// Counts frames and their bytes.
    #[inline]
    pub(super) fn count_all(
        &self,
        port: u16,
        sent: bool,
        core: usize,
        of: (u64, usize),
        now: Nanos,
    ) {
        let at = (usize::from(port) * 2 + usize::from(sent)) * self.settings.cores + core;
        if let Some(counts) = self.counts.get(at) {
            counts.add(of.0, of.1 as u64, now);
        }
    }
}

impl Switch {
    /// The switch with a front that answers what its port mapping answers.
    #[must_use]
    pub fn behind(mut self, front: Option<&Arc<dyn Front>>) -> Self {
        if let Some(front) = front {
            self.datapath.set_front(Arc::clone(front));
        }
        self
    }

    /// Counts frames that were answered in front.
    pub(super) fn look_ahead(&mut self, now: Nanos) -> u32 {
        self.datapath.look_ahead(now);
        for moved in self.datapath.moved() {
            let of = (moved.seen.packets, moved.seen.bytes as usize);
            self.hub.count_all(moved.from, false, self.core, of, moved.seen.last);
            self.hub.count_all(moved.to, true, self.core, of, moved.seen.last);
        }
        0
    }
}
