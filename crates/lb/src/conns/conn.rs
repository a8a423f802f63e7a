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
    /// The first tick at which the entry is expired; 0 if the slot is free.
    pub(super) deadline: u32,
    pub(super) next: u32,
    pub(super) prev: u32,
    /// As in [`Proxied`]; with [`ENDED`] the sequence number behind the client's FIN.
    pub(super) first: u32,
    /// The local port, or 0.
    pub(super) port: u16,
    /// The index of the local address; without a local port, [`COPY`] and [`ELSEWHERE`].
    pub(super) address: u8,
    /// Bits 0 and 1 are the state, bits 2 and 3 the stage of an inserted header, the others flags as below.
    pub(super) marks: u8,
}

/// In `marks`: the state.
pub(super) const STATE: u8 = 3;
/// In `marks`: the connection is not established.
pub(super) const UNESTABLISHED: u8 = 1 << 4;
/// In `marks`: the backend has answered.
pub(super) const ANSWERED: u8 = 1 << 5;
/// In `marks`: answers of the backend pass through the balancer.
pub(super) const TWO_WAY: u8 = 1 << 6;
/// In `marks` of a connection that is not closing: an adapter was asked to mark the client's packets.
pub(super) const OFFERED: u8 = 1 << 7;
/// In `marks` of a closing connection: the end of what the client sends is known.
pub(super) const ENDED: u8 = OFFERED;

/// In `address` of a connection without a local port: it is counted for another entry.
pub(super) const COPY: u8 = 1;
/// In `address` of a connection without a local port: its first packet here was not its first one, so another machine may have
/// an entry of it.
pub(super) const ELSEWHERE: u8 = 2;

/// A local address and port of a FullNAT connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LocalPort {
    /// The port; 0 if the connection has none.
    pub port: u16,
    /// The index of the address among those of the core.
    pub address: u8,
}

/// What was seen of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The backend has answered.
    pub is_answered: bool,
    /// The connection is established.
    pub is_established: bool,
    /// The sequence number behind everything that the client has sent, if it has ended its part and the number is known.
    pub end: Option<u32>,
    /// Another machine may have an entry of it, because its first packet here was not its first one.
    pub began_elsewhere: bool,
}

impl Conn {
    /// The 5-tuple and IP version.
    #[must_use]
    pub const fn key(&self) -> &ConnKey {
        &self.key
    }

    /// The state, which selects the timeout.
    #[must_use]
    #[inline]
    pub const fn state(&self) -> State {
        State::of_marks(self.marks & STATE)
    }

    #[inline]
    pub(super) const fn set_state(&mut self, state: State) {
        self.marks = self.marks & !STATE | state as u8;
    }

    /// Whether the client was seen to be real, as far as this can be seen: see [`super::Conns::seen`].
    #[must_use]
    #[inline]
    pub const fn is_established(&self) -> bool {
        self.marks & UNESTABLISHED == 0
    }

    /// Whether the connection is established, or has at least an answer of its backend, and where the client has ended it.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        let is_answered = self.marks & ANSWERED != 0;
        Progress {
            is_answered,
            is_established: self.is_established(),
            end: self.end(),
            began_elsewhere: self.began_elsewhere(),
        }
    }

    /// The progress of an inserted PROXY protocol header.
    #[must_use]
    pub const fn proxied(&self) -> Proxied {
        let stage = match self.marks >> 2 & 3 {
            0 => Stage::None,
            1 => Stage::Waiting,
            2 => Stage::Near,
            _ => Stage::Far,
        };
        let first = if self.end().is_some() { 0 } else { self.first };
        Proxied { first, stage }
    }

    pub(super) const fn set_proxied(&mut self, proxied: Proxied) {
        if self.end().is_some() {
            self.marks &= !ENDED;
        }
        self.first = proxied.first;
        self.marks = self.marks & !(3 << 2) | (proxied.stage as u8) << 2;
    }

    /// The local address and port of a FullNAT connection.
    #[must_use]
    #[inline]
    pub const fn local(&self) -> LocalPort {
        LocalPort { port: self.port, address: self.address }
    }

    /// Whether the connection counts among those of its backend by this entry, and not by that of another core.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        self.port != 0 || self.address & COPY == 0
    }

    /// Whether another machine may have an entry of the connection. It is not known of connections with a local port, which
    /// belong to one machine.
    #[must_use]
    pub const fn began_elsewhere(&self) -> bool {
        self.port == 0 && self.address & ELSEWHERE != 0
    }

    /// Whether the slot is free.
    pub(super) const fn is_free(&self) -> bool {
        self.deadline == 0
    }
}

/// In place of a slot: none.
pub(super) const NONE: u32 = u32::MAX;
