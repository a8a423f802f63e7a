//! Hand-over: another process takes over the ports and the state of a running engine.
//!
//! ```text
//!  old   running ──pause──> paused, drained ──descriptors, state──> leave
//!                              └──resume──> running        (the new process has failed)
//!  new                      built on the descriptors ──go_on(state)──> start
//! ```
//!
//! Ports are paused, not closed: frames that arrive meanwhile wait in the rings of the kernel, which both processes share.
//! An engine that is paused and drained touches neither these rings nor its state, so either process can go on.
//!
//! Invariants: no frame is in the engine when its state is taken, so the new process cannot reorder frames; exactly one of
//! the two processes goes on.
//! Thread-safety: a core hands over what it owns, between two batches; everything else is called by one thread.

pub mod bytes;

use std::sync::Arc;
use std::time::Duration;

/// The state of a core that is paused and drained.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CoreState {
    /// By the number of the port, where it has stopped to receive. Ports may have other numbers in another process.
    pub ports: Vec<(u16, Vec<u64>)>,
    /// The state of the work, in a format that the work defines.
    pub work: Vec<u8>,
}

/// The state of an engine that is paused and drained.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct YardState {
    /// By core.
    pub cores: Vec<Arc<CoreState>>,
    /// The state of control planes, by the name of their kind.
    pub control: Vec<(String, Vec<u8>)>,
}

/// Why an engine cannot be handed over; it continues to run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandoverError {
    /// A core did not answer in time.
    #[error("core {0} does not answer; it may be overloaded: try again")]
    Silent(usize),
    /// A port has no descriptors that another process could use.
    #[error(
        "core {0} has a port of a kind that cannot be handed over (see docs/fleet.md); stop this process instead"
    )]
    Port(usize),
    /// The work has state that cannot be handed over.
    #[error(
        "the state of this work cannot be handed over (see docs/fleet.md); stop this process instead"
    )]
    Work,
    /// Frames were inside for too long.
    #[error("frames did not leave the engine within {0:?}; try again when its ports are less busy")]
    Busy(Duration),
    /// A part of the state does not fit the engine that is to go on with it.
    #[error("{0}")]
    Unfit(String),
}
