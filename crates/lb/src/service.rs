//! Services and backends as a user describes them: plain data.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use flowyard_frame::Nanos;

use crate::check::Check;
use crate::quic;

/// A virtual address, and who answers for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its name; unique.
    pub name: String,
    /// The address that clients know.
    pub vip: IpAddr,
    /// TCP, UDP or SCTP (IANA).
    pub proto: u8,
    /// The ports that clients know.
    pub ports: RangeInclusive<u16>,
    /// How packets get to a backend.
    pub mode: Mode,
    /// Which backend a connection gets.
    pub choice: Choice,
    /// How server IDs stand in QUIC connection IDs; none routes QUIC by address as other UDP.
    pub quic: Vec<quic::Config>,
    /// The largest TCP segment that a SYN may offer, in bytes.
    pub mss: Option<u16>,
    /// The largest IP packet on the way to a backend, in bytes: what is longer with its tunnel
    /// header is answered with ICMP, or dropped. None is no limit.
    pub mtu: Option<u16>,
    /// How long a backend that comes up takes to its full weight.
    pub slow_start: Nanos,
    /// Whether a backend is told the client's address by a header of PROXY protocol v2: FullNAT of TCP.
    pub proxy: bool,
    /// Whether the balancer says that the VIP is its own, where it is asked (ARP, neighbour discovery).
    pub answers: bool,
    /// What happens when every backend is down.
    pub all_down: AllDown,
    /// What happens to the connections of a backend that is down.
    pub on_down: OnDown,
    /// How backends are asked how they are; none are always up.
    pub check: Option<Check>,
    /// Who answers.
    pub backends: Vec<Backend>,
}

/// One who answers for a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backend {
    /// Its name; unique in its service. Every machine calls it the same.
    pub name: String,
    /// Its address.
    pub addr: IpAddr,
    /// Its port, if it is another than the client's (DNAT and FullNAT).
    pub port: Option<u16>,
    /// Its part of the new connections; 0 drains it.
    pub weight: u32,
    /// No new connections, whatever the weight: those it has stay.
    pub drain: bool,
    /// Where packets to it leave.
    pub exit: Exit,
    /// Its server ID in QUIC connection IDs.
    pub server_id: Vec<u8>,
}

/// A port, and the MAC addresses that frames get there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exit {
    /// The port of the yard.
    pub port: u16,
    /// The port's own address.
    pub src: [u8; 6],
    /// The next hop's; nothing where it has to be asked for.
    pub dst: [u8; 6],
    /// Whose MAC address is to be asked for: the next hop's, or a gateway's.
    pub via: Option<IpAddr>,
}

/// How packets get to a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Direct server return: only MAC addresses change. The backend has the VIP itself, and answers the
    /// client directly.
    Dsr,
    /// The destination becomes the backend's; answers come back this way.
    Dnat,
    /// The destination becomes the backend's, the source one of the pool of local addresses; answers come back
    /// this way.
    FullNat,
    /// In an IP packet to the backend (RFC 2003, 2473, 4213), which has the VIP itself.
    Ipip,
    /// In a UDP datagram to the backend: Generic UDP Encapsulation, variant 1 (draft-ietf-intarea-gue),
    /// port 6080.
    Gue,
}

impl Mode {
    /// Bytes in front of the client's packet, to a backend of the given family.
    #[must_use]
    pub const fn overhead(self, v6: bool) -> usize {
        let ip = if v6 { 40 } else { 20 };
        match self {
            Self::Ipip => ip,
            Self::Gue => ip + 8,
            Self::Dsr | Self::Dnat | Self::FullNat => 0,
        }
    }

    /// Whether addresses are translated, so that answers must come back this way.
    #[must_use]
    pub const fn translates(self) -> bool {
        matches!(self, Self::Dnat | Self::FullNat)
    }
}

/// Which backend a new connection gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// By the hash of the 5-tuple: the same on every machine.
    Maglev,
    /// In turns, by weight.
    RoundRobin,
    /// That with the fewest connections for its weight.
    LeastConnections,
    /// By the hash of the source address: a client stays with its backend.
    SourceHash,
}

/// What happens when every backend is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllDown {
    /// New connections are dropped.
    Drop,
    /// Health is not believed: all backends are used.
    Use,
}

/// What happens to the connections of a backend that is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDown {
    /// They go to another one, which knows nothing of them: TCP resets them, clients come again.
    Move,
    /// They stay, in hope.
    Keep,
}
