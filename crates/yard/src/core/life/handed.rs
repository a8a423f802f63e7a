//! The state of a core, for another process and from one: see [`crate::handover`].

use std::sync::Arc;
use std::time::Duration;

use flowyard_frame::Nanos;

use crate::core::Core;
use crate::core::parts::Handover;
use crate::handover::{CoreState, HandoverError};
use crate::port::{CorePorts, Rx};

impl Core {
    /// The descriptors of its ports.
    pub(crate) fn descriptors(&mut self) -> Option<CorePorts> {
        let one = |(port, rx): &mut (u16, Box<dyn Rx>)| Some((*port, rx.descriptors()?));
        self.entry.ports.iter_mut().map(one).collect::<Option<Vec<_>>>().map(Arc::new)
    }

    /// Its state, if its ports are paused between two frames and no frame is inside.
    pub(crate) fn state(&mut self, now: Nanos) -> Result<Arc<CoreState>, HandoverError> {
        let busy = HandoverError::Busy(Duration::ZERO);
        if self.entry.handover != Handover::Paused || !self.is_clear() {
            return Err(busy);
        }
        let one = |(port, rx): &mut (u16, Box<dyn Rx>)| Some((*port, rx.position()?));
        let ports = self.entry.ports.iter_mut().map(one).collect::<Option<_>>().ok_or(busy)?;
        let work = self.server.work.hand_over(now).ok_or(HandoverError::Work)?;
        Ok(Arc::new(CoreState { ports, work }))
    }

    /// Pauses its ports, or receives again.
    pub(crate) fn pause(&mut self, paused: bool) {
        self.entry.handover = if paused { Handover::Paused } else { Handover::Runs };
        self.entry.ports.iter_mut().for_each(|(_, rx)| rx.pause(paused));
    }

    /// Continues with the state of another process.
    pub(crate) fn go_on(&mut self, state: &CoreState, now: Nanos) -> Result<(), HandoverError> {
        let Self { entry, server, pool, places, id, .. } = self;
        // Ports that only this process has begin by themselves.
        for (number, position) in &state.ports {
            let port = entry.ports.iter_mut().find(|(port, _)| port == number);
            if !port.is_some_and(|(_, rx)| rx.go_on(position, pool)) {
                let name = places.ports.get(usize::from(*number)).map_or("", |port| &port.name);
                let what = format!(
                    "port '{name}' cannot go on on core {id} where the running process stopped"
                );
                return Err(HandoverError::Unfit(what));
            }
        }
        server.work.go_on(&state.work, now).map_err(HandoverError::Unfit)
    }
}
