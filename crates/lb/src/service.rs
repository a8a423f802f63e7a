//! Configuration of services and backends, as plain data.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use flowyard_frame::Nanos;

use crate::check::Check;
use crate::persist::Persistence;
use crate::plan::Ceiling;
use crate::quic;

/// A virtual IP address (VIP) with its ports, and the backends that serve it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Unique among the services of one balancer.
    pub name: String,
    /// The virtual IP address that clients connect to.
    pub vip: IpAddr,
    /// IANA protocol number of TCP, UDP or SCTP.
    pub proto: u8,
    /// The destination ports that clients connect to.
    pub ports: RangeInclusive<u16>,
    /// How packets are forwarded to a backend.
    pub mode: Mode,
    /// How the backend of a new connection is chosen.
    pub choice: Choice,
    /// How server IDs are encoded in QUIC connection IDs. If empty, QUIC is routed by address like
    /// any other UDP.
    pub quic: Vec<quic::Config>,
    /// Upper limit for the MSS option of a client's SYN, in bytes.
    pub mss: Option<u16>,
    /// The largest IP packet on the path to a backend, in bytes, including the tunnel header.
    /// Longer packets are answered with an ICMP error or dropped. `None` is no limit.
    pub mtu: Option<u16>,
    /// Time in which the weight of a backend that comes up grows to its full value; 0 is at once.
    pub slow_start: Nanos,
    /// Whether a PROXY protocol v2 header carries the client's address to the backend. Possible
    /// for TCP with FullNAT only.
    pub proxy: bool,
    /// Whether a TCP option carries the client's address to the backend. Possible for TCP with FullNAT only, and not with `proxy`.
    pub toa: bool,
    /// Whether the balancer answers ARP requests and neighbour solicitations for the VIP.
    pub answers: bool,
    /// Whether each datagram is placed by itself, and no connection is entered. Possible for UDP, not with FullNAT.
    pub one_packet: bool,
    /// How connections of a client's network stay with one backend, if they do.
    pub persist: Option<Persistence>,
    /// The most entries of this service in the connection table of a core; 0 is no limit.
    pub connections: usize,
    /// The most unestablished entries of this service in the connection table of a core; 0 is the limit of
    /// all services.
    pub opening: usize,
    /// The behaviour when every backend is down.
    pub all_down: AllDown,
    /// The treatment of existing connections of a backend that is down.
    pub on_down: OnDown,
    /// The health check of the backends. Without one, backends always count as up.
    pub check: Option<Check>,
    /// At most 2^20 over all services.
    pub backends: Vec<Backend>,
}

impl Service {
    /// A service with these backends, and the defaults of the configuration for everything else. It has no health check.
    #[must_use]
    pub fn new(
        name: &str,
        vip: IpAddr,
        proto: u8,
        ports: RangeInclusive<u16>,
        mode: Mode,
        backends: Vec<Backend>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            vip,
            proto,
            ports,
            mode,
            choice: Choice::Maglev,
            quic: Vec::new(),
            mss: None,
            mtu: None,
            slow_start: 0,
            proxy: false,
            toa: false,
            answers: true,
            one_packet: false,
            persist: None,
            connections: 0,
            opening: 0,
            all_down: AllDown::Drop,
            on_down: OnDown::Move,
            check: None,
            backends,
        }
    }
}

impl Service {
    /// Whether segments from clients are changed so that the backend learns the client's address.
    #[inline]
    pub(crate) const fn tells(&self) -> bool {
        self.proxy | self.toa
    }
}

/// A server that handles connections of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backend {
    /// Unique in its service. Maglev tables are computed from the names, so a backend must have the
    /// same name on every machine of a cluster.
    pub name: String,
    /// The address that packets are forwarded to.
    pub addr: IpAddr,
    /// The destination port after translation (DNAT and FullNAT); `None` keeps the client's.
    pub port: Option<u16>,
    /// Share of the new connections relative to the other backends; 0 drains the backend.
    pub weight: u32,
    /// If set, the backend gets no new connections whatever its weight; existing ones stay.
    pub drain: bool,
    /// Whether the backend gets new connections only while no other backend of the service accepts any.
    pub backup: bool,
    /// The limit of its connections, if it has one.
    pub ceiling: Option<Ceiling>,
    /// The port and MAC addresses for packets to this backend.
    pub exit: Exit,
    /// The server ID in QUIC connection IDs; empty if the service does not route QUIC.
    pub server_id: Vec<u8>,
}

/// An output port, and the MAC addresses of frames that leave there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exit {
    /// Port number in the engine's configuration.
    pub port: u16,
    /// Source MAC address: that of the port.
    pub src: [u8; 6],
    /// Destination MAC address: that of the next hop. Zero if it must be resolved.
    pub dst: [u8; 6],
    /// The IP address whose MAC address must be resolved: the next hop or a gateway.
    pub via: Option<IpAddr>,
}

/// How packets are forwarded to a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Direct server return: only MAC addresses change. The VIP is configured on the backend, which
    /// replies to the client directly.
    Dsr,
    /// The destination address is translated to the backend's. Replies return through the balancer.
    Dnat,
    /// The destination address is translated to the backend's and the source address to one of the
    /// local addresses. Replies return through the balancer.
    FullNat,
    /// IP-in-IP tunnel to the backend (RFC 2003, 2473, 4213). The VIP is configured on the backend.
    Ipip,
    /// UDP tunnel to the backend: Generic UDP Encapsulation, variant 1 (draft-ietf-intarea-gue),
    /// port 6080.
    Gue,
}

impl Mode {
    /// Length in bytes of the tunnel header in front of the client's packet, for a backend with an
    /// IPv6 (`v6`) or IPv4 address.
    #[must_use]
    pub const fn overhead(self, v6: bool) -> usize {
        let ip = if v6 { 40 } else { 20 };
        match self {
            Self::Ipip => ip,
            Self::Gue => ip + 8,
            Self::Dsr | Self::Dnat | Self::FullNat => 0,
        }
    }

    /// Whether addresses are translated, so that replies must return through the balancer.
    #[must_use]
    pub const fn translates(self) -> bool {
        matches!(self, Self::Dnat | Self::FullNat)
    }
}

/// How the backend of a new connection is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Maglev table indexed by a hash of the 5-tuple: every machine makes the same choice.
    Maglev,
    /// Weighted round robin.
    RoundRobin,
    /// The backend with the fewest connections in relation to its weight, the new one included: the shortest expected delay of IPVS (`sed`).
    LeastConnections,
    /// Maglev table indexed by a hash of the source address: all connections of a client go to one
    /// backend.
    SourceHash,
    /// The backend with the fewest connections in relation to its weight, without the new one: `wlc` of IPVS.
    WeightedLeast,
    /// A backend without connections, or else as [`Choice::LeastConnections`]: never queue (`nq`) of IPVS.
    NeverQueue,
    /// The backend with the largest weight: weighted failover (`fo`) of IPVS.
    Failover,
    /// The backend with the largest weight of those that have less connections than their weight: overflow (`ovf`) of IPVS.
    Overflow,
}

impl Choice {
    /// Whether the weights and the connections of all backends are compared for each new connection.
    #[must_use]
    pub const fn compares(self) -> bool {
        !matches!(self, Self::Maglev | Self::SourceHash | Self::RoundRobin)
    }
}

/// The behaviour of a service when every backend is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllDown {
    /// New connections are dropped.
    Drop,
    /// Health is ignored: all backends are used as if they were up.
    Use,
}

/// The treatment of existing connections of a backend that is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDown {
    /// Their packets go to another backend. It does not know the connection, so TCP resets it and the
    /// client reconnects.
    Move,
    /// Their packets still go to the backend that is down.
    Keep,
}
