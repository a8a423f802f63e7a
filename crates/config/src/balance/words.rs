//! The keys of `[balance]` and `[[service]]`, with their defaults.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use flowyard_frame::proto;
use flowyard_lb::{AllDown, Choice, Mode, OnDown, Timeouts};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Spanned;

use super::sync::SyncConfig;
use crate::exit::ExitConfig;
use crate::free;
use crate::health::CheckConfig;

/// `[balance]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BalanceConfig {
    /// The number of entries of a Maglev table; it must be prime.
    pub entries: Spanned<u32>,
    /// The seed by which backends are chosen: the same on all machines that are to choose alike, and
    /// secret from clients.
    pub seed: Option<Spanned<u64>>,
    /// Whether other machines balance the same services. They must choose alike, so `seed` must be
    /// written.
    pub cluster: Spanned<bool>,
    /// The number of connections that each core stores.
    pub connections: Spanned<usize>,
    /// How new connections are treated when the connection table is full.
    pub full: FullConfig,
    /// The largest number of unestablished connections of each core; 0 is half of all connections.
    pub opening: Spanned<usize>,
    /// The time after which an idle unestablished connection of TCP or SCTP is forgotten, in milliseconds.
    pub opening_ms: u64,
    /// As `opening_ms`, for established connections.
    pub open_ms: u64,
    /// As `opening_ms`, for closing connections.
    pub closing_ms: u64,
    /// As `opening_ms`, for UDP.
    pub datagrams_ms: u64,
    /// The next hop towards clients, for replies that pass through the balancer.
    pub clients: Option<Spanned<ExitConfig>>,
    /// Source addresses of the balancer, for tunnels and FullNAT.
    pub local: Vec<Spanned<String>>,
    /// The addresses of ports. The balancer sends ARP and neighbour requests from them, and answers
    /// requests for them.
    pub address: BTreeMap<String, Vec<Spanned<String>>>,
    /// The ports by which the balancer answers requests for a VIP or a local address; by default
    /// those that have an address.
    pub answer: Option<Vec<Spanned<String>>>,
    /// The time for which the MAC address of a next hop is used before it is requested again, in
    /// milliseconds.
    pub neighbour_ms: u64,
    /// For frames of no service: the port by which they leave, by the port at which they came in.
    pub pass: BTreeMap<String, Spanned<String>>,
    /// The largest number of health checks that begin in one second, over all backends; 0 is no
    /// limit.
    pub checks_per_second: u32,
    /// The user that commands of health checks run as if flowyard is started by root; by default `nobody`.
    pub command_user: Option<Spanned<String>>,
    /// How VIPs are announced to a routing daemon; by default they are not.
    pub announce: Option<Spanned<AnnounceConfig>>,
    /// How connections are synchronized with other nodes; by default they are not.
    pub sync: Option<Spanned<SyncConfig>>,
}

/// `[balance.announce]`: routes to VIPs, for a routing daemon.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnnounceConfig {
    /// The routing table of the kernel that gets the routes.
    pub table: Spanned<u32>,
    /// The TUN interface that the routes lead to; the instance creates it, and it ends with the instance.
    pub interface: Spanned<String>,
    /// How long the cores run before the first announcement, in milliseconds.
    pub after_ms: u64,
    /// How long the cores go on after the withdrawal when the instance ends, in milliseconds.
    pub withdraw_ms: u64,
}

impl Default for AnnounceConfig {
    fn default() -> Self {
        Self {
            table: free(7925),
            interface: free("flowyard-vips".to_owned()),
            after_ms: 3000,
            withdraw_ms: 3000,
        }
    }
}

impl Default for BalanceConfig {
    fn default() -> Self {
        let Timeouts { opening, open, closing, datagrams } = Timeouts::default();
        Self {
            entries: free(flowyard_flow::table::Maglev::ENTRIES),
            seed: None,
            cluster: free(false),
            connections: free(1 << 16),
            full: FullConfig::Stateless,
            opening: free(0),
            opening_ms: opening / 1_000_000,
            open_ms: open / 1_000_000,
            closing_ms: closing / 1_000_000,
            datagrams_ms: datagrams / 1_000_000,
            clients: None,
            local: Vec::new(),
            address: BTreeMap::new(),
            answer: None,
            neighbour_ms: 30_000,
            pass: BTreeMap::new(),
            checks_per_second: 1000,
            command_user: None,
            announce: None,
            sync: None,
        }
    }
}

/// How new connections are treated when the connection table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FullConfig {
    /// The Maglev table alone chooses the backend of each packet.
    Stateless,
    /// They are dropped.
    Drop,
}

/// One of `[[service]]`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// The virtual address, to which clients connect.
    pub vip: Spanned<String>,
    /// `tcp`, `udp` or `sctp`.
    pub proto: ProtoConfig,
    /// The port to which clients connect, or a range as `"5000-5010"`.
    pub port: Spanned<PortRange>,
    /// How packets are forwarded to a backend.
    pub mode: ModeConfig,
    /// How the backend of a new connection is chosen.
    #[serde(default)]
    pub choice: ChoiceConfig,
    /// The encoding of server IDs in QUIC connection IDs.
    #[serde(default)]
    pub quic: Vec<Spanned<QuicConfig>>,
    /// The largest segment size that a SYN may announce.
    pub mss: Option<Spanned<u16>>,
    /// The largest IP packet that may be sent to a backend.
    pub mtu: Option<Spanned<u16>>,
    /// The time in which a backend that is new, or up again, reaches its full weight.
    #[serde(default)]
    pub slow_start_ms: u64,
    /// How a backend is notified of the client's address.
    pub proxy: Option<ProxyConfig>,
    /// Whether a TCP option notifies a backend of the client's address.
    #[serde(default)]
    pub toa: bool,
    /// Whether the balancer answers ARP and neighbour requests for the VIP.
    #[serde(default = "yes")]
    pub answer: bool,
    /// Whether each datagram is placed by itself.
    #[serde(default = "none")]
    pub one_packet: Spanned<bool>,
    /// How connections of a client's network stay with one backend; by default they do not.
    pub persist: Option<Spanned<PersistConfig>>,
    /// The most connections of this service that each core stores; 0 is no limit.
    #[serde(default)]
    pub connections: usize,
    /// The most unestablished connections of this service on each core; 0 is the limit of all services.
    #[serde(default = "none")]
    pub opening: Spanned<usize>,
    /// What happens when every backend is down: `drop` or `use`.
    #[serde(default)]
    pub all_down: AllDownConfig,
    /// What happens to connections of a backend that is down: `move` or `keep`.
    #[serde(default)]
    pub on_down: OnDownConfig,
    /// The health check of the backends.
    pub check: Option<Spanned<CheckConfig>>,
    /// The SRV records that backends come from, beside those that are written.
    pub srv: Option<Spanned<SrvConfig>>,
    /// The backends.
    #[serde(default)]
    pub backend: Vec<Spanned<BackendConfig>>,
}

/// The SRV records that backends of a service come from.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SrvConfig {
    /// The name of the records, as `_http._tcp.web.example`.
    pub name: Spanned<String>,
    /// The port and next hop towards the backends.
    pub exit: ExitConfig,
}

/// How connections of a client's network stay with one backend.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PersistConfig {
    /// The time without new connections after which the backend of a network is forgotten.
    pub seconds: Spanned<u64>,
    /// The leading bits of an IPv4 address that are the network.
    pub mask_ipv4: Spanned<u8>,
    /// The leading bits of an IPv6 address that are the network.
    pub mask_ipv6: Spanned<u8>,
    /// The most networks that are stored.
    pub networks: Spanned<usize>,
    /// Whether new connections of a network still go to its backend while this is drained.
    pub drained: DrainedConfig,
}

impl Default for PersistConfig {
    fn default() -> Self {
        Self {
            seconds: free(300),
            mask_ipv4: free(32),
            mask_ipv6: free(128),
            networks: free(1 << 16),
            drained: DrainedConfig::Keep,
        }
    }
}

/// Whether new connections of a network still go to its backend while this is drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainedConfig {
    /// They do.
    Keep,
    /// The network gets another backend.
    Move,
}

/// How a backend is notified of the client's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyConfig {
    /// PROXY protocol, version 2.
    V2,
}

/// One of `[[service.backend]]`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BackendConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// Its address.
    pub addr: Spanned<String>,
    /// Its port, if it differs from the client's.
    pub port: Option<NonZeroU16>,
    /// Its share of new connections, relative to the other backends.
    #[serde(default = "one")]
    pub weight: u32,
    /// Whether it gets no new connections.
    #[serde(default)]
    pub drain: bool,
    /// Whether it gets new connections only while no other backend of the service accepts any.
    #[serde(default)]
    pub backup: bool,
    /// The number of connections with which it gets no new ones; 0 is no limit.
    #[serde(default = "none")]
    pub max_connections: Spanned<u32>,
    /// When it has less connections than this, it gets new ones again.
    pub resume_connections: Option<Spanned<u32>>,
    /// The port and next hop towards it.
    pub exit: ExitConfig,
    /// Its server ID in QUIC connection IDs, in hexadecimal.
    pub server_id: Option<Spanned<String>>,
}

/// The encoding of server IDs in the QUIC connection IDs of one codepoint.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QuicConfig {
    /// The codepoint in the first three bits, 0 to 6.
    pub codepoint: u8,
    /// The length of a server ID.
    pub server_id_bytes: usize,
    /// The length of a nonce.
    pub nonce_bytes: usize,
    /// The AES key, 16 bytes in hexadecimal; by default nothing is encrypted.
    pub key: Option<String>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident -> $to:ty { $($word:ident $(= $text:literal)? => $value:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
        #[serde(rename_all = "lowercase")]
        #[allow(missing_docs, reason = "the variants are those of the type that they stand for")]
        pub enum $name { $($(#[serde(rename = $text)])? $word,)* }

        impl From<$name> for $to {
            fn from(word: $name) -> Self {
                match word { $($name::$word => $value,)* }
            }
        }
    };
}

words! {
    /// A protocol with ports.
    ProtoConfig -> u8 { Tcp => proto::TCP, Udp => proto::UDP, Sctp => proto::SCTP }
}
words! {
    /// How packets are forwarded to a backend.
    ModeConfig -> Mode {
        Dsr => Mode::Dsr, Dnat => Mode::Dnat, FullNat => Mode::FullNat, Ipip => Mode::Ipip, Gue => Mode::Gue,
    }
}
words! {
    /// How the backend of a new connection is chosen.
    ChoiceConfig -> Choice {
        Maglev => Choice::Maglev, RoundRobin => Choice::RoundRobin,
        Least => Choice::LeastConnections, Source => Choice::SourceHash,
        Wlc => Choice::WeightedLeast, Sed => Choice::LeastConnections, Nq => Choice::NeverQueue,
        Fo => Choice::Failover, Ovf => Choice::Overflow,
    }
}
words! {
    /// What happens when every backend is down.
    AllDownConfig -> AllDown { Drop => AllDown::Drop, Use => AllDown::Use }
}
words! {
    /// What happens to connections of a backend that is down.
    OnDownConfig -> OnDown { Move => OnDown::Move, Keep => OnDown::Keep }
}

#[allow(clippy::derivable_impls, reason = "the enums are made by a macro")]
impl Default for ChoiceConfig {
    fn default() -> Self {
        Self::Maglev
    }
}

#[allow(clippy::derivable_impls, reason = "the enums are made by a macro")]
impl Default for AllDownConfig {
    fn default() -> Self {
        Self::Drop
    }
}

#[allow(clippy::derivable_impls, reason = "the enums are made by a macro")]
impl Default for OnDownConfig {
    fn default() -> Self {
        Self::Move
    }
}

/// A port as `80`, or ports as `"5000-5010"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortRange(pub RangeInclusive<u16>);

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}-{}", self.0.start(), self.0.end()))
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = PortRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port from 1 to 65535, or a range as \"5000-5010\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<PortRange, E> {
                match u16::try_from(number) {
                    Ok(port) if port > 0 => Ok(PortRange(port..=port)),
                    _ => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PortRange, E> {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let port = |text: &str| text.trim().parse::<u16>();
                match (port(first), port(last)) {
                    (Ok(first @ 1..), Ok(last)) if first <= last => Ok(PortRange(first..=last)),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        from.deserialize_any(Either)
    }
}

const fn yes() -> bool {
    true
}

fn none<T: Default>() -> Spanned<T> {
    free(T::default())
}

const fn one() -> u32 {
    1
}
