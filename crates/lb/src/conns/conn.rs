//! An entry of the connection table.

use super::key::ConnKey;
use super::proxied::{Proxied, Stage};
use super::state::State;

/// An entry of the table: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Conn {
    pub(super) key: ConnKey,
    /// The backend's ID in the plan.
    pub backend: u32,
    /// The first tick at which the entry is expired.
    pub(super) deadline: u32,
    pub(super) next: u32,
    pub(super) prev: u32,
    /// As in [`Proxied`].
    pub(super) first: u32,
    pub(super) stage: Stage,
    pub(super) state: State,
    pub(super) free: bool,
    pub(super) spare: u8,
}

impl Conn {
    /// The 5-tuple and IP version.
    #[must_use]
    pub const fn key(&self) -> &ConnKey {
        &self.key
    }

    /// The state, which selects the timeout.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The progress of an inserted PROXY protocol header.
    #[must_use]
    pub const fn proxied(&self) -> Proxied {
        Proxied { first: self.first, stage: self.stage }
    }
}

/// In place of a slot: none.
pub(super) const NONE: u32 = u32::MAX;
