//! `[balance]` and `[[service]]`: their words, and what they are when they are left out.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use flowyard_frame::proto;
use flowyard_lb::{AllDown, Choice, Mode, OnDown, Timeouts};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::free;
use crate::health::CheckConfig;

/// `[balance]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BalanceConfig {
    /// Entries of a Maglev table: a prime.
    pub entries: Spanned<u32>,
    /// The same on all machines that shall choose alike; secret from clients.
    pub seed: Option<u64>,
    /// Connections that each core keeps.
    pub connections: Spanned<usize>,
    /// What happens to new ones when all are taken.
    pub full: FullConfig,
    /// Connections of each core that may be opening at a time; 0 is a quarter of all.
    pub opening: usize,
    /// For how long a silent connection is kept, in milliseconds, by state.
    pub opening_ms: u64,
    /// As `opening_ms`.
    pub open_ms: u64,
    /// As `opening_ms`.
    pub closing_ms: u64,
    /// As `opening_ms`: UDP.
    pub datagrams_ms: u64,
    /// The way to clients, for answers that come back this way.
    pub clients: Option<Spanned<ExitConfig>>,
    /// Addresses of its own: sources of tunnels and of FullNAT.
    pub local: Vec<Spanned<String>>,
    /// The addresses of ports: neighbours are asked for from them, and answered.
    pub address: BTreeMap<String, Vec<Spanned<String>>>,
    /// Ports by which it answers who has a VIP, or a local address; left out, those with an address.
    pub answer: Option<Vec<Spanned<String>>>,
    /// For how long the MAC address of a next hop is believed before it is asked for again, in
    /// milliseconds.
    pub neighbour_ms: u64,
    /// By port a frame came in by, the port by which it leaves if it is for no service.
    pub pass: BTreeMap<String, Spanned<String>>,
    /// Health checks that begin in a second at most, over all backends; 0 is no limit.
    pub checks_per_second: u32,
}

impl Default for BalanceConfig {
    fn default() -> Self {
        let Timeouts { opening, open, closing, datagrams } = Timeouts::default();
        Self {
            entries: free(flowyard_flow::table::Maglev::ENTRIES),
            seed: None,
            connections: free(1 << 16),
            full: FullConfig::Stateless,
            opening: 0,
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
        }
    }
}

/// What happens to new connections when all are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FullConfig {
    /// Maglev alone decides, packet by packet.
    Stateless,
    /// They are dropped.
    Drop,
}

/// A way out: port and next hop.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitConfig {
    /// The port.
    pub port: Spanned<String>,
    /// The MAC address that frames get as destination, or the IP address of a gateway; left out, the backend is on
    /// the port's link itself.
    pub next_hop: Option<Spanned<String>>,
}

/// One of `[[service]]`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// The address that clients know.
    pub vip: Spanned<String>,
    /// `tcp`, `udp` or `sctp`.
    pub proto: ProtoConfig,
    /// The port that clients know, or a range as `"5000-5010"`.
    pub port: Spanned<PortRange>,
    /// How packets get to a backend.
    pub mode: ModeConfig,
    /// Which backend a new connection gets.
    #[serde(default)]
    pub choice: ChoiceConfig,
    /// How server IDs stand in QUIC connection IDs.
    #[serde(default)]
    pub quic: Vec<Spanned<QuicConfig>>,
    /// The largest TCP segment that a SYN may offer.
    pub mss: Option<u16>,
    /// The largest IP packet on the way to a backend.
    pub mtu: Option<u16>,
    /// How long a new backend, or one that was down, takes to its full weight.
    #[serde(default)]
    pub slow_start_ms: u64,
    /// How a backend learns the client's address.
    pub proxy: Option<ProxyConfig>,
    /// Whether it is said that the VIP is here, where that is asked.
    #[serde(default = "yes")]
    pub answer: bool,
    /// What happens when every backend is down: `drop` or `use`.
    #[serde(default)]
    pub all_down: AllDownConfig,
    /// What happens to connections of a backend that is down: `move` or `keep`.
    #[serde(default)]
    pub on_down: OnDownConfig,
    /// How backends are asked how they are.
    pub check: Option<Spanned<CheckConfig>>,
    /// Who answers.
    #[serde(default)]
    pub backend: Vec<Spanned<BackendConfig>>,
}

/// How a backend learns the client's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyConfig {
    /// PROXY protocol, version 2.
    V2,
}

/// One of `[[service.backend]]`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// Its address.
    pub addr: Spanned<String>,
    /// Its port, if it is another than the client's.
    pub port: Option<u16>,
    /// Its part of new connections.
    #[serde(default = "one")]
    pub weight: u32,
    /// No new connections.
    #[serde(default)]
    pub drain: bool,
    /// The way there.
    pub exit: ExitConfig,
    /// Its server ID in QUIC connection IDs, in hexadecimal.
    pub server_id: Option<Spanned<String>>,
}

/// How server IDs stand in the QUIC connection IDs of one codepoint.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuicConfig {
    /// The first three bits: 0 to 6.
    pub codepoint: u8,
    /// Bytes of a server ID.
    pub server_id_bytes: usize,
    /// Bytes of a nonce.
    pub nonce_bytes: usize,
    /// The AES key, 16 bytes in hexadecimal; left out, nothing is encrypted.
    pub key: Option<String>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident -> $to:ty { $($word:ident $(= $text:literal)? => $value:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
        #[serde(rename_all = "lowercase")]
        #[allow(missing_docs, reason = "they are those of what they stand for")]
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
    /// How packets get to a backend.
    ModeConfig -> Mode {
        Dsr => Mode::Dsr, Dnat => Mode::Dnat, FullNat => Mode::FullNat, Ipip => Mode::Ipip, Gue => Mode::Gue,
    }
}
words! {
    /// Which backend a new connection gets.
    ChoiceConfig -> Choice {
        Maglev => Choice::Maglev, RoundRobin => Choice::RoundRobin,
        Least => Choice::LeastConnections, Source => Choice::SourceHash,
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

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = PortRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port, or a range as \"5000-5010\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<PortRange, E> {
                let port = u16::try_from(number).map_err(|_| E::custom("a port is 1 to 65535"))?;
                Ok(PortRange(port..=port))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PortRange, E> {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let port = |text: &str| text.trim().parse::<u16>();
                match (port(first), port(last)) {
                    (Ok(first), Ok(last)) => Ok(PortRange(first..=last)),
                    _ => Err(E::custom("ports are written as 80, or \"5000-5010\"")),
                }
            }
        }
        from.deserialize_any(Either)
    }
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}
