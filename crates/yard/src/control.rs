//! Control planes: the halves of works that are not on a core.
//!
//! Thread-safety: shared by all threads.

use std::any::Any;
use std::sync::Arc;

use flowyard_frame::Nanos;

use crate::arrivals::Arrivals;
use crate::mail::Mail;

/// The half of a work that is shared by all cores and controlled by other threads.
pub trait ControlPlane: Any + Send + Sync {
    /// Called once, when an engine with this control plane is built: `mail` reaches its cores.
    fn connect(&self, _mail: &Mail) {}

    /// What the work notes about frames that enter an ordered queue of several consumers.
    fn arrivals(self: Arc<Self>) -> Option<Arc<dyn Arrivals>> {
        None
    }

    /// The name of its kind, by which its state is found by a process that takes over.
    fn kind(&self) -> &'static str {
        ""
    }

    /// The name of its kind and its state, for a process that takes over; `None` if it has no state.
    fn hand_over(&self, _now: Nanos) -> Option<(&'static str, Vec<u8>)> {
        None
    }

    /// Continues with the state of another process, before the engine is started.
    ///
    /// # Errors
    /// The state is not one of this kind.
    fn go_on(&self, _state: &[u8], _now: Nanos) -> Result<(), String> {
        Ok(())
    }

    /// Continues what takes time; called from time to time by the thread that runs the engine.
    fn tick(&self, _now: Nanos) {}
}

/// The control plane of type `T` among `all`.
pub(crate) fn find_control<T: ControlPlane>(all: &[Arc<dyn ControlPlane>]) -> Option<Arc<T>> {
    all.iter().find_map(|control| {
        let any: Arc<dyn Any + Send + Sync> = Arc::<dyn ControlPlane>::clone(control);
        any.downcast().ok()
    })
}
