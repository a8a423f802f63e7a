//! Forward: a fixed map from the port at which a frame came in to the port by which it leaves. A message
//! [`PortMap`] replaces the map.

use flowyard_frame::{Batch, LANES, Nanos, To};

use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::work::{ControlMessage, Work};

/// A new map for [`Forward`]: the port by which frames leave, by the port at which they came in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMap(pub Vec<u16>);

/// A static port map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forward {
    /// The port by which frames leave, by the port at which they came in.
    out: Box<[To]>,
}

impl Forward {
    /// Frames that came in at port `i` leave by port `map[i]`. Frames from ports beyond the map are
    /// dropped.
    #[must_use]
    pub fn new(map: &[u16]) -> Self {
        Self { out: map.iter().map(|&port| To::Port(port)).collect() }
    }
}

impl Work for Forward {
    fn hand_over(&self, _now: Nanos) -> Option<Vec<u8>> {
        Some(Vec::new()) // its map is configured
    }

    fn go_on(&mut self, _state: &[u8], _now: Nanos) -> Result<(), String> {
        Ok(())
    }

    fn control(
        &mut self,
        message: &ControlMessage,
        _now: Nanos,
        _send: &mut dyn FnMut(u16, &[u8]),
    ) {
        if let Some(PortMap(map)) = message.downcast_ref() {
            *self = Self::new(map);
        }
    }

    #[inline]
    fn work(&mut self, batch: &mut Batch, _pool: &Pool, now: Nanos) -> Nanos {
        for lane in 0..batch.len().min(LANES) {
            let action = &mut batch.actions[lane];
            if matches!(action.to, To::Queue(_)) {
                let out = self.out.get(usize::from(batch.keys[lane].in_port));
                action.to = out.copied().unwrap_or(To::Drop(DropReason::NoRoute.code()));
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::{Action, FlowKey, Frame};

    use super::*;

    #[test]
    fn frames_leave_by_the_mapped_port_and_others_are_dropped() {
        let mut batch = Batch::default();
        for in_port in 0..3 {
            let key = FlowKey { in_port, ..FlowKey::ZERO };
            let lane = batch.push(Frame::default(), key).unwrap();
            batch.actions[lane] = Action::queue(0);
        }
        batch.push(Frame::default(), FlowKey::ZERO).unwrap();
        batch.actions[3].to = To::Port(7); // a table has already decided
        assert_eq!(Forward::new(&[1, 0]).work(&mut batch, &Pool::new(1, 64), 5), 5);
        let to: Vec<_> = batch.actions[..4].iter().map(|action| action.to).collect();
        let dropped = To::Drop(DropReason::NoRoute.code());
        assert_eq!(to, [To::Port(1), To::Port(0), dropped, To::Port(7)]);
    }

    #[test]
    fn a_message_replaces_the_map() {
        let mut forward = Forward::new(&[1, 0]);
        let message: ControlMessage = std::sync::Arc::new(PortMap(vec![2, 2, 0]));
        forward.control(&message, 0, &mut |_, _| {});
        assert_eq!(forward, Forward::new(&[2, 2, 0]));
        let foreign: ControlMessage = std::sync::Arc::new(7_u8);
        forward.control(&foreign, 0, &mut |_, _| {});
        assert_eq!(forward, Forward::new(&[2, 2, 0]));
    }
}
