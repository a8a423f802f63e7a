//! State of a connection, as far as it can be determined from the client's packets alone.

use flowyard_frame::{FlowKey, Nanos};

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// TCP: the client sent a SYN and nothing else yet.
    Opening,
    /// TCP and SCTP: the connection is established.
    Open,
    /// TCP: a FIN or RST was sent.
    Closing,
    /// UDP, which has no connections.
    Datagrams,
}

impl State {
    /// The state of a new connection whose first packet has this protocol and these TCP flags.
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

    /// The state in the lowest two bits of the marks of an entry.
    #[must_use]
    #[inline]
    pub(super) const fn of_marks(marks: u8) -> Self {
        match marks & 3 {
            0 => Self::Opening,
            1 => Self::Open,
            2 => Self::Closing,
            _ => Self::Datagrams,
        }
    }

    /// The next state after a packet with these TCP flags (0 if it is not TCP).
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

    /// Whether a packet of the backend with these flags shows that the backend has the connection. A TCP
    /// answers a SYN with a forged source with a SYN, and all other segments with forged sources with a RST.
    #[must_use]
    pub(super) const fn is_proven_by(self, flags: u8) -> bool {
        matches!(self, Self::Open) && flags & FlowKey::ACK != 0 && flags & FlowKey::SYN == 0
    }
}

/// Idle timeout of a connection by state, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// In [`State::Opening`], and of every TCP and SCTP connection that is not established.
    pub opening: Nanos,
    /// In [`State::Open`]. Keepalives (RFC 9293 section 3.8.4) are sent every two hours, if at all. A
    /// connection that continues after this timeout still reaches the same backend if the service
    /// chooses by hash and its backends are unchanged.
    pub open: Nanos,
    /// In [`State::Closing`].
    pub closing: Nanos,
    /// In [`State::Datagrams`].
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
    /// The timeout of a connection in `state` that is not established. It must be the same for all connections
    /// of a service.
    #[must_use]
    pub const fn unestablished(&self, state: State) -> Nanos {
        match state {
            State::Datagrams => self.datagrams,
            _ => self.opening,
        }
    }

    /// The longest of them.
    #[must_use]
    pub fn longest(&self) -> Nanos {
        self.opening.max(self.open).max(self.closing).max(self.datagrams)
    }

    /// The timeout of an established connection in `state`.
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

#[cfg(test)]
mod tests {
    use flowyard_frame::proto;

    use super::*;

    const SYN: u8 = FlowKey::SYN;
    const ACK: u8 = FlowKey::ACK;
    const FIN: u8 = FlowKey::FIN;
    const RST: u8 = FlowKey::RST;
    /// The flags PSH, URG, ECE and CWR, which say nothing about the state.
    const OTHER: u8 = 0xe8;

    #[test]
    fn the_first_packet_determines_the_state() {
        for other in [0, OTHER] {
            let first = |flags| State::first(proto::TCP, flags | other);
            assert_eq!([SYN, SYN | FIN, SYN | RST].map(first), [State::Opening; 3]);
            assert_eq!([ACK, 0, SYN | ACK].map(first), [State::Open; 3]);
            let ends = [FIN, RST, FIN | ACK, RST | ACK, FIN | RST, SYN | ACK | FIN];
            assert_eq!(ends.map(first), [State::Closing; 6]);
        }
        for flags in [0, SYN, FIN, RST, 0xff] {
            assert_eq!(State::first(proto::UDP, flags), State::Datagrams);
            assert_eq!(State::first(132, flags), State::Open, "SCTP");
        }
    }

    #[test]
    fn later_packets_of_the_client_open_and_close_a_connection() {
        for other in [0, OTHER] {
            let after = |state: State, flags: u8| state.after(flags | other);
            for state in [State::Opening, State::Open] {
                for flags in [FIN, RST, FIN | ACK, RST | ACK, SYN | RST] {
                    assert_eq!(after(state, flags), State::Closing);
                }
            }
            assert_eq!(
                [SYN, SYN | ACK].map(|flags| after(State::Opening, flags)),
                [State::Opening; 2]
            );
            assert_eq!([0, ACK].map(|flags| after(State::Opening, flags)), [State::Open; 2]);
            assert_eq!([0, ACK, SYN].map(|flags| after(State::Open, flags)), [State::Open; 3]);
            for state in [State::Closing, State::Datagrams] {
                assert_eq!([0, SYN, ACK, FIN, RST].map(|flags| after(state, flags)), [state; 5]);
            }
        }
    }

    #[test]
    fn an_ack_of_the_backend_proves_an_open_connection() {
        for other in [0, OTHER] {
            let proven = |state: State, flags: u8| state.is_proven_by(flags | other);
            assert!(proven(State::Open, ACK) && proven(State::Open, ACK | FIN));
            assert!(![0, SYN, RST, SYN | ACK].into_iter().any(|flags| proven(State::Open, flags)));
            for state in [State::Opening, State::Closing, State::Datagrams] {
                assert!(!proven(state, ACK), "{state:?}");
            }
        }
    }

    #[test]
    fn each_state_has_its_timeout() {
        let timeouts = Timeouts { opening: 1, open: 2, closing: 3, datagrams: 4 };
        let all = [State::Opening, State::Open, State::Closing, State::Datagrams];
        assert_eq!(all.map(|state| timeouts.of(state)), [1, 2, 3, 4]);
        assert_eq!(all.map(|state| timeouts.unestablished(state)), [1, 1, 1, 4]);
        let default = all.map(|state| Timeouts::default().of(state) / 1_000_000_000);
        assert_eq!(default, [30, 900, 30, 120], "seconds");
    }
}
