//! The connections and neighbours of a core, for another process and from one: see `crate::handed`.

use flowyard_frame::Nanos;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};

use crate::handed::VERSION;

use super::balance::Balance;

impl Balance {
    /// The connections and the neighbours of this core.
    pub(super) fn write_state(&self, now: Nanos) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.number(VERSION);
        self.neighbours.hand_over(&mut writer);
        if let Some(conns) = self.table(self.core) {
            conns.hand_over(now, &mut writer);
        }
        writer.finish()
    }

    /// Continues with what [`Balance::write_state`] has written.
    pub(super) fn read_state(&mut self, state: &[u8], now: Nanos) -> Result<(), String> {
        self.renew_plan();
        let mut reader = Reader::new(state);
        if reader.number()? != VERSION {
            return Err(BadState.into());
        }
        self.neighbours.take_over(&mut reader, now)?;
        let places = self.hub.inherited();
        let Some(mut conns) = self.table(self.core) else { return Ok(()) };
        let plan = &self.plan;
        let place =
            |backend| places.get(&backend).copied().filter(|(id, _)| plan.target(*id).is_some());
        let taken = conns.take_over(&mut reader, plan.seed(), now, place, |conn| {
            if let Some(target) = plan.target(conn.backend).filter(|_| conn.is_counted()) {
                target.count(true);
            }
        });
        let (taken, left) = taken?;
        drop(conns);
        if left > 0 {
            tracing::warn!(
                core = self.core,
                taken,
                left,
                "connections of backends that are not configured any more were left out"
            );
        }
        Ok(())
    }
}
