//! `[balance]` and `[[service]]`: their words, and what can be wrong with them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use flowyard_frame::proto;
use flowyard_lb::quic;
use flowyard_lb::{
    AllDown, Backend, Choice, Conns, Control, Exit, Mode, OnDown, Service, Timeouts,
};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::check::{Checked, port_name};
use super::health::CheckConfig;
use super::{Config, ConfigError, WorkKind, hex};
use crate::work::{BalanceSettings, Place};

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
            entries: super::free(flowyard_flow::table::Maglev::ENTRIES),
            seed: None,
            connections: super::free(1 << 16),
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
    /// How a backend is told the client's address.
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

/// How a backend is told the client's address.
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

impl Config {
    /// The services.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn services(&self) -> Result<Vec<Service>, ConfigError> {
        self.service.iter().map(|service| self.one_service(service.get_ref())).collect()
    }

    fn one_service(&self, service: &ServiceConfig) -> Result<Service, ConfigError> {
        let backends: Result<_, _> =
            service.backend.iter().map(|backend| self.backend(backend.get_ref())).collect();
        let quic: Result<_, _> = service.quic.iter().map(|quic| self.quic(quic)).collect();
        Ok(Service {
            name: service.name.get_ref().clone(),
            vip: self.address(&service.vip)?,
            proto: service.proto.into(),
            ports: service.port.get_ref().0.clone(),
            mode: service.mode.into(),
            choice: service.choice.into(),
            quic: quic?,
            mss: service.mss,
            mtu: service.mtu,
            slow_start: service.slow_start_ms.saturating_mul(1_000_000),
            proxy: service.proxy.is_some(),
            answers: service.answer,
            all_down: service.all_down.into(),
            on_down: service.on_down.into(),
            check: self.health_check(service)?,
            backends: backends?,
        })
    }

    fn backend(&self, backend: &BackendConfig) -> Result<Backend, ConfigError> {
        let server_id = match &backend.server_id {
            None => Vec::new(),
            Some(text) => hex(text.get_ref()).ok_or_else(|| {
                let what = format!("'{}' is no server ID", text.get_ref());
                self.error(text.span(), what, "write it in hexadecimal, as \"01ab\"")
            })?,
        };
        let addr = self.address(&backend.addr)?;
        Ok(Backend {
            name: backend.name.get_ref().clone(),
            addr,
            port: backend.port,
            weight: backend.weight,
            drain: backend.drain,
            exit: self.exit(&backend.exit, Some(addr))?,
            server_id,
        })
    }

    fn quic(&self, quic: &Spanned<QuicConfig>) -> Result<quic::Config, ConfigError> {
        let QuicConfig { codepoint, server_id_bytes, nonce_bytes, key } = quic.get_ref();
        let key = match key {
            None => None,
            Some(text) => Some(hex(text).and_then(|key| key.try_into().ok()).ok_or_else(|| {
                let mend = "write 16 bytes in hexadecimal";
                self.error(quic.span(), "this is no AES key", mend)
            })?),
        };
        let config = quic::Config::new(*codepoint, *server_id_bytes, *nonce_bytes, key);
        config.map_err(|error| self.split(quic.span(), &error.to_string()))
    }

    /// A way out, to `addr` if no other next hop is written.
    fn exit(&self, exit: &ExitConfig, addr: Option<IpAddr>) -> Result<Exit, ConfigError> {
        port_name(self, exit.port.get_ref(), exit.port.span())?;
        let port = self.port_number(exit.port.get_ref()).unwrap_or_default();
        let src = self.port_macs()?.get(usize::from(port)).copied().unwrap_or_default();
        let written = exit.next_hop.as_ref().map(|text| (text, text.get_ref().parse::<IpAddr>()));
        let (via, at) = match (written, addr) {
            (Some((text, Err(_))), _) => {
                return Ok(Exit { port, src, dst: self.mac(text)?, via: None });
            }
            (Some((text, Ok(via))), _) => (via, text.span()),
            (None, Some(addr)) => (addr, exit.port.span()),
            (None, None) => {
                let mend = "write its MAC address, or the IP address of a gateway, as 'next_hop'";
                return Err(self.error(exit.port.span(), "there is no next hop", mend));
            }
        };
        let mine = self.balance().address.remove(exit.port.get_ref()).unwrap_or_default();
        let same = |mine: &Spanned<String>| mine.get_ref().contains(':') == via.is_ipv6();
        if mine.is_empty() || via.is_ipv4() && !mine.iter().any(same) {
            let name = exit.port.get_ref();
            let what = format!("nobody can be asked for the MAC address of {via} at port '{name}'");
            let mend = "write the MAC address as 'next_hop', or an address of the port's own in 'address' of [balance]";
            return Err(self.error(at, what, mend));
        }
        Ok(Exit { port, src, dst: [0; 6], via: Some(via) })
    }

    /// What the balancer is called at each port.
    fn places(&self, balance: &BalanceConfig) -> Result<Vec<Place>, ConfigError> {
        let place = |mac| Place { mac, ..Place::default() };
        let mut places: Vec<Place> = self.port_macs()?.into_iter().map(place).collect();
        let at = self.balance.as_ref().map_or(0..0, Spanned::span);
        for (port, addrs) in &balance.address {
            port_name(self, port, addrs.first().map_or(at.clone(), Spanned::span))?;
            let place = &mut places[usize::from(self.port_number(port).unwrap_or_default())];
            place.addrs = addrs.iter().map(|text| self.address(text)).collect::<Result<_, _>>()?;
            place.answers = balance.answer.is_none() && !addrs.is_empty();
        }
        for port in balance.answer.iter().flatten() {
            port_name(self, port.get_ref(), port.span())?;
            let number = self.port_number(port.get_ref()).unwrap_or_default();
            places[usize::from(number)].answers = true;
        }
        Ok(places)
    }

    fn address(&self, text: &Spanned<String>) -> Result<IpAddr, ConfigError> {
        IpAddr::from_str(text.get_ref()).map_err(|_| {
            let what = format!("'{}' is no IP address", text.get_ref());
            self.error(text.span(), what, "write it as 192.0.2.1 or 2001:db8::1")
        })
    }

    /// An error of another crate: what, and after "; " the mend.
    fn split(&self, span: std::ops::Range<usize>, text: &str) -> ConfigError {
        let (what, mend) = text.rsplit_once("; ").unwrap_or((text, "see docs/balance.md"));
        self.error(span, what, mend)
    }

    /// Health checks that begin in a second at most; 0 is no limit.
    #[must_use]
    pub fn checks_per_second(&self) -> u32 {
        self.balance().checks_per_second
    }

    fn balance(&self) -> BalanceConfig {
        self.balance.as_ref().map(|balance| balance.get_ref().clone()).unwrap_or_default()
    }

    /// Control of the services.
    ///
    /// # Errors
    /// The first service that is wrong.
    pub(crate) fn control(&self) -> Result<Control, ConfigError> {
        let balance = self.balance();
        let seed = balance.seed.unwrap_or(self.yard.seed);
        Control::new(self.services()?, *balance.entries.get_ref(), seed).map_err(|error| {
            let service =
                self.service.iter().rfind(|s| *s.get_ref().name.get_ref() == error.service);
            let backend =
                service.zip(error.backend).and_then(|(s, at)| s.get_ref().backend.get(at));
            let span = match (backend, service) {
                (Some(backend), _) => backend.get_ref().name.span(),
                (None, Some(service)) => service.get_ref().name.span(),
                (None, None) => 0..0,
            };
            self.split(span, &error.to_string())
        })
    }

    /// What else the balancer needs.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub(crate) fn balance_settings(&self) -> Result<BalanceSettings, ConfigError> {
        let balance = self.balance();
        let connections = *balance.connections.get_ref();
        let ms = |ms: u64| ms.saturating_mul(1_000_000);
        let clients =
            balance.clients.as_ref().map(|exit| self.exit(exit.get_ref(), None)).transpose()?;
        let local: Result<_, _> = balance.local.iter().map(|text| self.address(text)).collect();
        let mut pass = vec![None; self.port.len()];
        for (from, to) in &balance.pass {
            let at = self.balance.as_ref().map_or(0..0, Spanned::span);
            port_name(self, from, at)?;
            port_name(self, to.get_ref(), to.span())?;
            let from = self.port_number(from).unwrap_or_default();
            pass[usize::from(from)] = self.port_number(to.get_ref());
        }
        Ok(BalanceSettings {
            connections,
            full_drops: balance.full == FullConfig::Drop,
            opening_most: if balance.opening == 0 { connections / 4 } else { balance.opening },
            timeouts: Timeouts {
                opening: ms(balance.opening_ms),
                open: ms(balance.open_ms),
                closing: ms(balance.closing_ms),
                datagrams: ms(balance.datagrams_ms),
            },
            clients: clients.unwrap_or_default(),
            local: local?,
            pass,
            places: self.places(&balance)?,
            neighbour_fresh: ms(balance.neighbour_ms),
        })
    }
}

/// Finds what is wrong first.
pub(crate) fn check(config: &Config) -> Checked {
    let balances = *config.work.get_ref().kind.get_ref() == WorkKind::Balance;
    if !balances {
        let section = config.balance.as_ref().map(|b| ("[balance]", b.span()));
        let first = config.service.first().map(|s| ("[[service]]", s.span()));
        if let Some((section, at)) = section.or(first) {
            let what = format!("{section} is for kind = \"balance\"");
            return Err(config.error(at, what, "write that kind in [work], or leave it out"));
        }
        return Ok(());
    }
    if config.service.is_empty() {
        let mend = "add a [[service]] with name, vip, proto, port and mode";
        return Err(config.error(config.work.span(), "there is no service", mend));
    }
    let balance = config.balance();
    if !(1..=Conns::MOST).contains(balance.connections.get_ref()) {
        let what = format!("a core cannot keep {} connections", balance.connections.get_ref());
        return Err(config.error(balance.connections.span(), what, "write 1 to 1073741824"));
    }
    config.balance_settings()?;
    config.control()?;
    let local =
        |v6: bool| balance.local.iter().filter(|text| text.get_ref().contains(':') == v6).count();
    // Addresses are dealt out to cores in turns: fullnat needs one on each core that works.
    let consumers = config.queue.iter().flat_map(|queue| queue.get_ref().consumers.get_ref());
    let cores = consumers.map(|core| usize::from(*core.get_ref()) + 1).max().unwrap_or(1);
    for service in &config.service {
        let (span, service) = (service.get_ref().name.span(), service.get_ref());
        let mode = Mode::from(service.mode);
        if mode.translates() && balance.clients.is_none() {
            let mend = "add 'clients = { port = ..., next_hop = ... }' to [balance]";
            return Err(config.error(span, "answers of this service have no way to clients", mend));
        }
        let needs = match mode {
            Mode::FullNat => cores,
            _ => usize::from(mode.overhead(false) > 0),
        };
        let have = |backend: &BackendConfig| local(backend.addr.get_ref().contains(':'));
        let lacks = service.backend.iter().find(|backend| have(backend.get_ref()) < needs);
        if let Some(backend) = lacks {
            let span = backend.get_ref().addr.span();
            if have(backend.get_ref()) == 0 {
                let what = "packets to this backend have no source address";
                let mend = "add an address of its family to 'local' in [balance]";
                return Err(config.error(span, what, mend));
            }
            let what =
                format!("fullnat needs {needs} local addresses of this family, one for each core");
            return Err(config.error(span, what, "add some to 'local' in [balance]"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
