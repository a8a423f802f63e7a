//! The switch's part in what is answered in front of it, and the counters of ports.

use std::sync::Arc;

use flowyard_frame::{Batch, Lanes, Nanos, To};
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

    /// Counts frames at the port by which they leave.
    #[inline]
    pub(super) fn count_sent(&self, to: To, lanes: Lanes, bytes: usize, now: Nanos) {
        if let To::Port(port) = to {
            self.hub.count_all(port, true, self.core, (lanes.count().into(), bytes), now);
        }
    }

    /// Counts the frames of `lanes` at the ports by which they leave.
    pub(super) fn count_each(&self, batch: &Batch, lanes: Lanes, now: Nanos) {
        let mut left = lanes;
        while let Some(first) = { left }.next() {
            let to = batch.actions[first].to;
            let (mut same, mut bytes) = (Lanes::NONE, 0);
            for lane in left.take_while(|&lane| batch.actions[lane].to == to) {
                (same, bytes) = (same.with(lane), bytes + batch.frames[lane].len());
            }
            left = left.without(same);
            self.count_sent(to, same, bytes, now);
        }
    }

    /// Counts frames that were answered in front. Returns 1 while some are not counted yet.
    pub(super) fn look_ahead(&mut self, now: Nanos) -> u32 {
        let has_noted = self.datapath.count_if_due(now);
        self.datapath.look_ahead(now);
        for moved in self.datapath.moved() {
            let of = (moved.seen.packets, moved.seen.bytes as usize);
            self.hub.count_all(moved.from, false, self.core, of, moved.seen.last);
            self.hub.count_all(moved.to, true, self.core, of, moved.seen.last);
        }
        has_noted.into()
    }
}
