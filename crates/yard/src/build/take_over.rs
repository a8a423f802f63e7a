//! An engine goes on where another process has stopped: see [`crate::handover`].

use flowyard_frame::Nanos;

use super::Yard;
use crate::handover::{HandoverError, YardState};

impl Yard {
    /// Goes on where another engine has stopped. To be called before the engine is started, with the control planes that it
    /// was built with.
    ///
    /// # Errors
    /// The state does not fit this engine, which must then not be started.
    pub fn go_on(&mut self, state: &YardState, now: Nanos) -> Result<(), HandoverError> {
        for (kind, state) in &state.control {
            let known = self.control.iter().find(|control| control.kind() == kind);
            let fits = known.map_or(Ok(()), |control| control.go_on(state, now));
            fits.map_err(HandoverError::Unfit)?;
        }
        if state.cores.len() != self.cores.len() {
            let (had, has) = (state.cores.len(), self.cores.len());
            let what = format!(
                "the running process has {had} cores and the configuration has {has}: restart it instead"
            );
            return Err(HandoverError::Unfit(what));
        }
        let mut both = self.cores.iter_mut().zip(&state.cores);
        both.try_for_each(|(core, state)| core.go_on(state, now))?;
        self.pool.begin(); // the ports have claimed the buffers that the kernel has
        Ok(())
    }
}
