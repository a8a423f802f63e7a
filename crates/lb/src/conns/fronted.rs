//! Connections that are answered in front of the balancer: it sees few of their packets.
//!
//! ```text
//!  slot ──> flow in the front ──> when its last packet came: the deadline is set when the wheel inspects the entry
//!  entry ends, or changes its state ──> the flow is listed, and the balancer removes it before the batch leaves
//! ```

use std::sync::Arc;

use flowyard_frame::Nanos;
use flowyard_yard::front::Front;

use super::conn::NONE;
use super::{Conns, wheel};

/// In place of a flow: the front has refused the connection.
const REFUSED: u32 = NONE - 1;

#[derive(Clone, Debug)]
pub(super) struct Fronted {
    front: Arc<dyn Front>,
    /// The flow of each slot.
    flows: Vec<u32>,
    /// Flows whose connections ended or changed.
    gone: Vec<u32>,
    /// How many of `flows` there are.
    len: usize,
}

impl Conns {
    /// The table with connections that `front` answers.
    #[must_use]
    pub fn with_front(mut self, front: Arc<dyn Front>) -> Self {
        let (flows, gone) = (vec![NONE; self.capacity], Vec::with_capacity(256));
        self.fronted = Some(Box::new(Fronted { front, flows, gone, len: 0 }));
        self
    }

    /// Whether the connection in `slot` can be given to the front: it is not there, and was not refused.
    pub fn may_go_ahead(&self, slot: u32) -> bool {
        self.fronted.as_ref().is_some_and(|it| it.flows.get(slot as usize) == Some(&NONE))
    }

    /// Notes that the front answers the connection in `slot` as `flow`; `None` if it refused.
    pub fn set_flow(&mut self, slot: u32, flow: Option<u32>) {
        if let Some(it) = &mut self.fronted
            && let Some(place) = it.flows.get_mut(slot as usize)
        {
            *place = flow.unwrap_or(REFUSED);
            it.len += usize::from(flow.is_some());
        }
    }

    /// Notes that the connection in `slot` is not answered by the front any more, if it is that of `flow`.
    pub fn forget_flow(&mut self, slot: u32, flow: u32) {
        if let Some(it) = &mut self.fronted
            && let Some(place) = it.flows.get_mut(slot as usize)
            && *place == flow
        {
            *place = NONE;
            it.len -= 1;
        }
    }

    /// The number of connections that the front answers.
    #[must_use]
    pub fn in_front(&self) -> usize {
        self.fronted.as_ref().map_or(0, |it| it.len)
    }

    /// Whether the front answers the connection in `slot`.
    pub(super) fn is_in_front(&self, slot: usize) -> bool {
        self.fronted.as_ref().and_then(|it| it.flows.get(slot)).is_some_and(|flow| *flow < REFUSED)
    }

    /// A flow whose connection ended or changed.
    pub fn gone_flow(&mut self) -> Option<u32> {
        self.fronted.as_mut()?.gone.pop()
    }

    /// The entry in `slot` is another one, or in another state.
    pub(super) fn leave_front(&mut self, slot: u32) {
        self.unmark(slot);
        let Some(it) = &mut self.fronted else { return };
        let Some(place) = it.flows.get_mut(slot as usize) else { return };
        let flow = std::mem::replace(place, NONE);
        if flow < REFUSED {
            it.gone.push(flow);
            it.len -= 1;
        }
    }

    /// Sets the deadline of the connection in `slot` by the packets that the front answered. Returns whether it
    /// is later than `now`.
    pub fn renew(&mut self, slot: u32, now: Nanos) -> bool {
        let Some(it) = &self.fronted else { return false };
        let Some(&flow) = it.flows.get(slot as usize).filter(|flow| **flow < REFUSED) else {
            return false;
        };
        let last =
            [0, 1].map(|entry| it.front.seen(flow, entry).last).into_iter().max().unwrap_or(0);
        if last == 0 {
            return false;
        }
        let timeout = self.timeouts.of(self.slots[slot as usize].state());
        let deadline = wheel::after(last.min(now), timeout);
        let conn = &mut self.slots[slot as usize];
        conn.deadline = conn.deadline.max(deadline);
        wheel::tick(now) < conn.deadline
    }
}
