//! What the cores of a port share, and a bound socket.

use std::sync::{Arc, Mutex, PoisonError};

use flowyard_pool::Umem;

use super::super::calls::{Program, Socket, System};
use super::super::plan::XdpPort;
use crate::live::{Interface, OpenError};

/// State shared by the cores of a port.
pub(super) struct Common<S: System> {
    pub(super) system: S,
    pub(super) port: XdpPort,
    pub(super) umem: Umem,
    pub(super) program: Mutex<Option<Arc<S::Program>>>,
}

impl<S: System> Common<S> {
    /// The program on `interface`; the first caller attaches it. `old` is one whose socket is not
    /// bound any more: it may be on another interface with the same index, in another namespace.
    pub(super) fn program(
        &self,
        interface: &Interface,
        old: Option<&Arc<S::Program>>,
    ) -> Result<Arc<S::Program>, OpenError> {
        let mut held = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = &*held
            && program.is_on(interface.index)
            && !old.is_some_and(|old| Arc::ptr_eq(old, program))
        {
            return Ok(Arc::clone(program));
        }
        if let Some(program) = held.take() {
            // It may still be attached, under another index, and there can be only one.
            program.detach();
        }
        let program = Arc::new(self.system.program(
            interface,
            &self.port.rules,
            self.port.settings.multi_buffer,
            self.port.ahead.as_deref(),
        )?);
        *held = Some(Arc::clone(&program));
        Ok(program)
    }

    /// Detaches the program from an interface that was moved to another namespace.
    pub(super) fn release(&self) {
        let mut held = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = held.take() {
            program.detach();
        }
    }
}

/// A bound socket.
pub(super) struct Bound<S: System> {
    pub(super) socket: S::Socket,
    pub(super) program: Arc<S::Program>,
    /// The index of the interface.
    pub(super) index: u32,
}

impl<S: System> Bound<S> {
    pub(super) fn is_bound(&self, index: u32) -> bool {
        self.index == index && self.socket.is_bound() && self.program.is_on(index)
    }
}
