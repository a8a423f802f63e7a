//! The connections and neighbours of a core, for another process and from one: see `crate::handed`.

use flowyard_frame::Nanos;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};

use crate::handed::VERSION;

use super::balance::Balance;
use super::locals::LOCALS;

impl Balance {
    /// The connections, the neighbours and the local addresses of this core.
    pub(super) fn write_state(&self, now: Nanos) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.number(VERSION);
        self.neighbours.hand_over(&mut writer);
        for v6 in [false, true] {
            let locals = self.locals.of(self.core, v6);
            writer.number(locals.len() as u64);
            locals.iter().for_each(|addr| {
                writer.text(&addr.to_string());
            });
        }
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
        let locals = [self.read_locals(&mut reader)?, self.read_locals(&mut reader)?];
        let places = self.hub.inherited();
        let Some(mut conns) = self.table(self.core) else { return Ok(()) };
        let plan = &self.plan;
        let place =
            |backend| places.get(&backend).copied().filter(|(id, _)| plan.target(*id).is_some());
        let local = |v6, index: u8| *locals[usize::from(v6)].get(usize::from(index))?;
        let taken = conns.take_over(&mut reader, plan.seed(), now, (place, local), |conn| {
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
                "connections whose backend or local address is not configured any more were left out"
            );
        }
        Ok(())
    }

    /// Reads the local addresses of the other process. For each, its index here; `None` if another core has it, or none.
    fn read_locals(&self, reader: &mut Reader<'_>) -> Result<Vec<Option<u8>>, BadState> {
        let count = reader.number()?.min(LOCALS as u64);
        let one = |_| {
            let addr = reader.text()?.parse().map_err(|_| BadState)?;
            let owner = self.locals.owner(addr).filter(|(core, _)| usize::from(*core) == self.core);
            Ok(owner.map(|(_, index)| index))
        };
        (0..count).map(one).collect()
    }
}
