//! What a connection is doing, as far as a load balancer that sees one direction can know.

use flowyard_frame::{FlowKey, Nanos};

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// TCP: the client sent a SYN, and nothing else yet.
    Opening,
    /// TCP, SCTP: it is open.
    Open,
    /// TCP: there was a FIN or RST.
    Closing,
    /// A protocol that has no connections: UDP.
    Datagrams,
}

impl State {
    /// The state that a connection begins in with a packet of `proto` and these TCP flags.
    #[must_use]
    #[inline]
    pub const fn first(proto: u8, flags: u8) -> Self {
        match proto {
            flowyard_frame::proto::UDP => Self::Datagrams,
            flowyard_frame::proto::TCP => match flags & (FlowKey::SYN | FlowKey::ACK) {
                FlowKey::SYN => Self::Opening,
                _ if flags & (FlowKey::FIN | FlowKey::RST) != 0 => Self::Closing,
                _ => Self::Open,
            },
            _ => Self::Open,
        }
    }

    /// The state after a packet with these TCP flags; 0 outside TCP.
    #[must_use]
    #[inline]
    pub const fn after(self, flags: u8) -> Self {
        match self {
            Self::Datagrams | Self::Closing => self,
            _ if flags & (FlowKey::FIN | FlowKey::RST) != 0 => Self::Closing,
            Self::Opening if flags & FlowKey::SYN == 0 => Self::Open,
            Self::Opening | Self::Open => self,
        }
    }
}

/// For how long a connection is kept without a packet, by state, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// After a SYN alone.
    pub opening: Nanos,
    /// When open. A keepalive (RFC 9293 section 3.8.4) comes each two hours, if at all: who goes
    /// on later than this finds the same backend as long as the choice is a consistent one and
    /// the backends are the same.
    pub open: Nanos,
    /// After a FIN or RST.
    pub closing: Nanos,
    /// UDP.
    pub datagrams: Nanos,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |seconds: u64| seconds * 1_000_000_000;
        Self {
            opening: seconds(30),
            open: seconds(900),
            closing: seconds(30),
            datagrams: seconds(120),
        }
    }
}

impl Timeouts {
    /// That of `state`.
    #[must_use]
    #[inline]
    pub const fn of(&self, state: State) -> Nanos {
        match state {
            State::Opening => self.opening,
            State::Open => self.open,
            State::Closing => self.closing,
            State::Datagrams => self.datagrams,
        }
    }
}
